//! A history's final content and logits against golden's.

use std::collections::{BTreeMap, BTreeSet};

use karat_seam::{Block, Data, Recorded, Recorder, RowId, Site, Tap, Tensor};

use super::pass::Ran;

/// Distance of a history from golden.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FromGolden {
    /// Largest difference of a logit over the largest logit.
    pub logits: f64,
    /// The same of the logits of the first MTP block, where there is one.
    pub mtp: Option<f64>,
    /// The same of KV content, over its tensor's largest value: window rows, entries, index keys and compressor rows after
    /// the last token.
    pub content: f64,
    /// Where the content is farthest.
    pub content_at: String,
    /// Positions whose most probable token is another.
    pub top: usize,
    /// Rows with other experts, and with other entries.
    pub decisions: (usize, usize),
}

impl FromGolden {
    /// The larger distances and all changes of both.
    pub(super) fn with(self, other: &Self) -> Self {
        let farther = other.content > self.content;
        let (experts, entries) = self.decisions;
        Self {
            logits: self.logits.max(other.logits),
            mtp: [self.mtp, other.mtp].into_iter().flatten().reduce(f64::max),
            content: self.content.max(other.content),
            content_at: if farther { other.content_at.clone() } else { self.content_at },
            top: self.top + other.top,
            decisions: (experts + other.decisions.0, entries + other.decisions.1),
        }
    }
}

/// Compares sequence `seq` of a history with golden; `rows` are the identities of its final rows.
pub(super) fn compare(own: &Ran, golden: &Ran, seq: usize, rows: &[RowId], vocab: usize) -> FromGolden {
    let (a, b) = (&own.logits[seq], &golden.logits[seq]);
    let tops = a.chunks_exact(vocab).zip(b.chunks_exact(vocab));
    let mtp = own.mtp.get(seq).zip(golden.mtp.get(seq)).map(|(a, b)| relative(a, b));
    let top = tops.filter(|(a, b)| top(a) != top(b)).count();
    let mut out = FromGolden { logits: relative(a, b), mtp, top, ..FromGolden::default() };
    let runs_mtp = !own.mtp.is_empty();
    for ((site, _), golden) in golden.seen.taps.iter().filter(|((_, s), _)| *s as usize == seq) {
        if matches!(site.block, Block::Mtp(_)) && !runs_mtp {
            continue;
        }
        match site.tap {
            Tap::FfnIdx => out.decisions.0 += changed(&own.seen, *site, golden, rows),
            Tap::AttnSelected => out.decisions.1 += changed(&own.seen, *site, golden, rows),
            _ => {}
        }
        let Some(own) = own.seen.get(*site, seq as u32) else { continue };
        let error = match (&own.tensor.data, &golden.tensor.data) {
            (Data::F32(a), Data::F32(b)) if site.tap.is_state() && a.len() == b.len() => relative(a, b),
            (Data::F32(_), Data::F32(_)) if site.tap.is_state() => f64::INFINITY,
            (Data::I64(a), Data::I64(b)) if site.tap == Tap::StateWinPos && a != b => f64::INFINITY,
            _ => continue,
        };
        if error > out.content {
            (out.content, out.content_at) = (error, site.to_string());
        }
    }
    out
}

/// Rows whose set of choices is another. Golden's rows are by position; a history's may be another sequence's, which
/// shares the beginning.
fn changed(own: &Recorder, site: Site, golden: &Recorded, rows: &[RowId]) -> usize {
    let mut at: BTreeMap<RowId, (&Tensor, usize)> = BTreeMap::new();
    for seq in rows.iter().map(|row| row.seq).collect::<BTreeSet<u32>>() {
        if let Some(seen) = own.get(site, seq) {
            at.extend(seen.rows.iter().enumerate().map(|(i, row)| (*row, (&seen.tensor, i))));
        }
    }
    let differs = |(position, row): &(usize, &RowId)| match at.get(row) {
        Some((tensor, i)) => choices(tensor, *i) != choices(&golden.tensor, *position),
        None => true,
    };
    rows.iter().enumerate().filter(differs).count()
}

/// Experts of a row, or the entries that its mask marks, ascending.
fn choices(tensor: &Tensor, row: usize) -> Vec<i64> {
    let width = tensor.width();
    let range = row * width..(row + 1) * width;
    let mut out: Vec<i64> = match &tensor.data {
        Data::I64(v) => v[range].to_vec(),
        Data::U8(v) => (0i64..).zip(&v[range]).filter(|(_, marked)| **marked != 0).map(|(i, _)| i).collect(),
        _ => Vec::new(),
    };
    out.sort_unstable();
    out
}

fn top(logits: &[f32]) -> usize {
    // The first of equals.
    (0..logits.len()).reduce(|best, i| if logits[i] > logits[best] { i } else { best }).unwrap_or(0)
}

/// Largest difference over the largest value of `b`; infinite when a value is not a number.
fn relative(a: &[f32], b: &[f32]) -> f64 {
    let scale = b.iter().fold(0f64, |m, v| m.max(f64::from(*v).abs()));
    let far = a.iter().zip(b).filter(|(a, b)| a != b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs());
    let worst = far.fold(0f64, |m, d| if d.is_nan() { f64::INFINITY } else { m.max(d) });
    if worst == 0.0 { 0.0 } else { worst / scale.max(f64::MIN_POSITIVE) }
}
