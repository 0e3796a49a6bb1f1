//! KV state of one layer and sequence (spec section 3): the window ring and the compressor's rows.

use crate::arith::round_rows;
use crate::ops::compress::CompressorWeights;
use crate::plan::Store;

/// Raw kv of the last W tokens in the official layout: token p at row p mod W.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    ring: Vec<f32>,
    size: usize,
    width: usize,
    /// Tokens so far.
    len: usize,
    /// Every row written since [`Self::restore`], for the pages; `None` in the plain form.
    fresh: Option<Vec<f32>>,
}

impl Window {
    /// An empty ring of `size` rows of `width` values. Free rows are poisoned: a stale read shows as NaN.
    pub(crate) fn new(size: usize, width: usize) -> Self {
        Self { ring: vec![f32::NAN; size * width], size, width, len: 0, fresh: None }
    }

    /// The ring after `len` tokens, from the rows of those that a next token sees, by position.
    pub(crate) fn restore<'a>(size: usize, width: usize, len: usize, row: impl Fn(usize) -> &'a [f32]) -> Self {
        let mut out = Self::new(size, width);
        for position in len.saturating_sub(size - 1)..len {
            let at = position % size * width;
            out.ring[at..at + width].copy_from_slice(row(position));
        }
        Self { len, fresh: Some(Vec::new()), ..out }
    }

    /// Rows written since it was restored, in order.
    pub(crate) fn fresh(&self) -> &[f32] {
        self.fresh.as_deref().unwrap_or_default()
    }

    /// Writes the rows of the next tokens; of more than W rows only the last W stay.
    pub(crate) fn write(&mut self, rows: &[f32]) {
        let n = rows.len() / self.width;
        for (i, row) in rows.chunks_exact(self.width).enumerate().skip(n.saturating_sub(self.size)) {
            let at = (self.len + i) % self.size * self.width;
            self.ring[at..at + self.width].copy_from_slice(row);
        }
        self.len += n;
        if let Some(fresh) = &mut self.fresh {
            fresh.extend_from_slice(rows);
        }
    }

    /// The row of a token that is still in the window.
    pub(crate) fn row(&self, position: usize) -> &[f32] {
        debug_assert!(position < self.len && position + self.size >= self.len);
        let at = position % self.size * self.width;
        &self.ring[at..at + self.width]
    }

    /// Canonical content: the last min(n, W-1) rows by position.
    pub(crate) fn canonical(&self) -> (Vec<f32>, Vec<i64>) {
        let first = self.len - self.len.min(self.size - 1);
        let rows = (first..self.len).flat_map(|p| self.row(p).iter().copied()).collect();
        (rows, (first as i64..self.len as i64).collect())
    }
}

/// Rows that wait for their window to complete, and the overlap rows of the last complete one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Compressor {
    /// `[n mod r, c*hd]`.
    pub pend_kvp: Vec<f32>,
    /// `[n mod r, c*hd]`, WITHOUT ape.
    pub pend_score: Vec<f32>,
    /// `[r, hd]` Ca columns; empty before the first complete window, and where nothing overlaps.
    pub prev_kvp: Vec<f32>,
    /// `[r, hd]` Ca scores, WITH ape.
    pub prev_score: Vec<f32>,
    /// Windows completed so far.
    pub windows: usize,
    /// With pages: the overlap rows' scores without ape, as the pages hold them, and their ape.
    prev_parts: Option<(Vec<f32>, Vec<f32>)>,
    /// Rows (kvp, then score without ape) taken since [`Self::restore`], for the pages; `None` in the plain form.
    fresh: Option<Vec<f32>>,
}

impl Compressor {
    /// Rounds the carried rows to the format in which the cache holds them between steps.
    pub(crate) fn store(&mut self, format: Store) {
        let Self { pend_kvp, pend_score, prev_kvp, prev_score, prev_parts, fresh, .. } = self;
        if let Some((score, ape)) = prev_parts.as_mut().filter(|_| format.rounds()) {
            // Later calls find the rounded score in its page and add its ape to that: so does the next step of this one.
            round_rows(true, score);
            prev_score.iter_mut().zip(score.iter().zip(ape)).for_each(|(z, (s, a))| *z = *s + *a);
            for rows in [pend_kvp, pend_score, prev_kvp].into_iter().chain(fresh) {
                round_rows(true, rows);
            }
            return;
        }
        for rows in [pend_kvp, pend_score, prev_kvp, prev_score].into_iter().chain(fresh) {
            round_rows(format.rounds(), rows);
        }
    }

    /// The state after `len` tokens, from the rows (kvp, then score without ape) of the open window and, where windows
    /// overlap, of the last complete one, by position. The score takes its ape here as it did when it was pooled.
    pub(crate) fn restore<'a>(w: &CompressorWeights, len: usize, row: impl Fn(usize) -> &'a [f32]) -> Self {
        let (width, hd) = (w.width(), w.head_dim());
        let windows = len / w.ratio;
        let mut out = Self { windows, fresh: Some(Vec::new()), ..Self::default() };
        for position in windows * w.ratio..len {
            out.pend_kvp.extend_from_slice(&row(position)[..width]);
            out.pend_score.extend_from_slice(&row(position)[width..]);
        }
        if w.overlap && windows > 0 {
            for slot in 0..w.ratio {
                let row = row((windows - 1) * w.ratio + slot);
                let ape = &w.ape[slot * width..slot * width + hd];
                out.prev_kvp.extend_from_slice(&row[..hd]);
                out.prev_score.extend(row[width..width + hd].iter().zip(ape).map(|(s, a)| s + a));
                let (scores, apes) = out.prev_parts.get_or_insert_default();
                scores.extend_from_slice(&row[width..width + hd]);
                apes.extend_from_slice(ape);
            }
        }
        out
    }

    /// Rows taken since it was restored, in order.
    pub(crate) fn fresh(&self) -> &[f32] {
        self.fresh.as_deref().unwrap_or_default()
    }

    /// Takes one token's row and score; gives the pooled entry when its window is complete.
    pub(crate) fn push(&mut self, w: &CompressorWeights, kvp: &[f32], score: &[f32]) -> Option<Vec<f32>> {
        if let Some(fresh) = &mut self.fresh {
            fresh.extend_from_slice(kvp);
            fresh.extend_from_slice(score);
        }
        self.pend_kvp.extend_from_slice(kvp);
        self.pend_score.extend_from_slice(score);
        if self.pend_kvp.len() < w.ratio * w.width() {
            return None;
        }
        let (width, hd) = (w.width(), w.head_dim());
        let z: Vec<f32> = self.pend_score.iter().zip(&w.ape).map(|(s, a)| s + a).collect();
        let own = self.pend_kvp.chunks_exact(width).zip(z.chunks_exact(width));
        let entry = if w.overlap {
            let mut slots: Vec<(&[f32], &[f32])> =
                self.prev_kvp.chunks_exact(hd).zip(self.prev_score.chunks_exact(hd)).collect();
            slots.extend(own.map(|(k, z)| (&k[hd..], &z[hd..])));
            w.pool(&slots)
        } else {
            w.pool(&own.collect::<Vec<_>>())
        };
        if w.overlap {
            let ca = |rows: &[f32]| rows.chunks_exact(width).flat_map(|r| r[..hd].iter().copied()).collect();
            (self.prev_kvp, self.prev_score) = (ca(&self.pend_kvp), ca(&z));
            self.prev_parts = self.fresh.is_some().then(|| (ca(&self.pend_score), ca(&w.ape)));
        }
        self.pend_kvp.clear();
        self.pend_score.clear();
        self.windows += 1;
        Some(entry)
    }
}
