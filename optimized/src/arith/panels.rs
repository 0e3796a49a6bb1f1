//! Products with a resident weight, packed once: `out[m,n] = sum over k of a[m,k] * w[n,k]`.
//!
//! Each output is a chain of fused multiply-adds in ascending k inside a block of k; block sums are added, or scaled and
//! added, in ascending order. Vectors run over outputs, so no tile, batch or thread count changes a bit.

use std::ops::Range;

use rayon::prelude::*;

#[cfg(target_arch = "x86_64")]
use super::dot::has_simd;
use super::split::split;

/// Outputs of one panel.
pub(super) const WIDTH: usize = 16;
/// Rows of the tallest tile.
const TALL: usize = 6;
/// Length of a block of an unscaled product.
const BLOCK: usize = 256;
/// Values that one task packs: a band of an expert's rows is packed by the thread that multiplies by it.
const TASK: usize = 1 << 19;

/// Rows of codes with one scale for each block of consecutive columns.
#[derive(Clone, Copy)]
pub(crate) struct Scaled<'a> {
    /// `[rows, k]` raw code values.
    pub codes: &'a [f32],
    /// `[rows, k / block]` scales.
    pub scales: &'a [f32],
    /// Columns that share a scale.
    pub block: usize,
}

/// A packed weight: 16 rows side by side.
#[derive(Debug)]
pub(crate) struct Panels {
    rows: usize,
    k: usize,
    /// `[ceil(rows / 16), k, 16]`; rows past the last are zero.
    data: Vec<f32>,
    /// `[ceil(rows / 16), k / block, 16]`; empty without scales.
    scales: Vec<f32>,
    block: usize,
}

/// `[rows, k]` to `[ceil(rows / 16), k, 16]`. By squares of 16 by 16: rows that lie apart by a power of two share a set of the
/// first cache, so each of their lines is read once and whole.
fn interleave(values: &[f32], k: usize) -> Vec<f32> {
    let rows = values.len() / k.max(1);
    let mut out = vec![0.0; rows.div_ceil(WIDTH) * k * WIDTH];
    let panels = out.par_chunks_exact_mut((k * WIDTH).max(1)).zip(values.par_chunks((k * WIDTH).max(1)));
    panels.with_min_len((TASK / (k * WIDTH).max(1)).max(1)).for_each(|(panel, rows)| {
        let whole = if rows.len() == k * WIDTH { k / WIDTH * WIDTH } else { 0 };
        for (c, to) in panel[..whole * WIDTH].as_chunks_mut::<{ WIDTH * WIDTH }>().0.iter_mut().enumerate() {
            for (r, row) in rows.chunks_exact(k).enumerate() {
                let from: &[f32; WIDTH] = row[c * WIDTH..].first_chunk().expect("a whole square");
                from.iter().enumerate().for_each(|(i, v)| to[i * WIDTH + r] = *v);
            }
        }
        for (r, row) in rows.chunks_exact(k).enumerate() {
            for (slot, v) in panel[whole * WIDTH..].chunks_exact_mut(WIDTH).zip(&row[whole..]) {
                slot[r] = *v;
            }
        }
    });
    out
}

impl Panels {
    /// Packs `values [rows, k]`.
    pub(crate) fn pack(values: &[f32], k: usize) -> Self {
        Self { rows: values.len() / k, k, data: interleave(values, k), scales: Vec::new(), block: BLOCK }
    }

    /// k.
    pub(crate) fn columns(&self) -> usize {
        self.k
    }

    /// Packs codes with their scales.
    pub(crate) fn pack_scaled(w: Scaled<'_>, k: usize) -> Self {
        let scales = interleave(w.scales, k / w.block);
        Self { rows: w.codes.len() / k, k, data: interleave(w.codes, k), scales, block: w.block }
    }
}

/// `out [m, cols] = a [m,k] * w[cols]^T`.
pub(crate) fn product(a: &[f32], w: &Panels, cols: Range<usize>, out: &mut [f32]) {
    debug_assert!(w.scales.is_empty());
    run(&Job { a, sa: &[], step: BLOCK, a_block: BLOCK, w }, cols, out);
}

/// [`product`] on the calling thread, for callers that are spread over rows already.
pub(crate) fn product_here(a: &[f32], w: &Panels, cols: Range<usize>, out: &mut [f32]) {
    let job = Job { a, sa: &[], step: BLOCK, a_block: BLOCK, w };
    let (m, n) = (a.len() / w.k, cols.len());
    fill(&job, 0..m, cols, out, n);
}

/// `out[m,n] = sum over blocks of (dot of raw codes) * sa * sw`, in blocks of the smaller of both block lengths; the
/// smaller divides the larger, and both divide k.
pub(crate) fn product_scaled(a: Scaled<'_>, w: &Panels, cols: Range<usize>, out: &mut [f32]) {
    let step = a.block.min(w.block);
    assert!(!w.scales.is_empty() && w.k.is_multiple_of(a.block) && w.k.is_multiple_of(w.block));
    assert!(a.block.is_multiple_of(step) && w.block.is_multiple_of(step));
    assert_eq!(a.scales.len() * a.block, a.codes.len());
    run(&Job { a: a.codes, sa: a.scales, step, a_block: a.block, w }, cols, out);
}

/// One product; `sa` is empty where nothing is scaled.
pub(super) struct Job<'a> {
    pub a: &'a [f32],
    pub sa: &'a [f32],
    /// Columns that are summed before their sum is scaled and added.
    pub step: usize,
    pub a_block: usize,
    pub w: &'a Panels,
}

impl Job<'_> {
    /// Outputs of M rows from `row` on and one panel.
    fn tile<const M: usize>(&self, row: usize, panel: usize) -> [[f32; WIDTH]; M] {
        let k = self.w.k;
        let a: [&[f32]; M] = std::array::from_fn(|m| &self.a[(row + m) * k..(row + m + 1) * k]);
        let w = &self.w.data[panel * k * WIDTH..(panel + 1) * k * WIDTH];
        if self.sa.is_empty() {
            #[cfg(target_arch = "x86_64")]
            if has_simd() {
                return super::simd_panels::tile(a, w, self.step);
            }
            return tile_portable(a, w, self.step, |_, _| None);
        }
        let (na, nw) = (k / self.a_block, k / self.w.block);
        let sa: [&[f32]; M] = std::array::from_fn(|m| &self.sa[(row + m) * na..(row + m + 1) * na]);
        let sw = &self.w.scales[panel * nw * WIDTH..(panel + 1) * nw * WIDTH];
        let ratio = [self.a_block / self.step, self.w.block / self.step];
        #[cfg(target_arch = "x86_64")]
        if has_simd() {
            return super::simd_panels::tile_scaled(a, sa, w, sw, self.step, ratio);
        }
        tile_portable(a, w, self.step, |m, b| {
            let at = b / ratio[1] * WIDTH;
            Some(std::array::from_fn(|n| sa[m][b / ratio[0]] * sw[at + n]))
        })
    }
}

/// The portable form of a tile; `scale(m, block)` gives the factors of a block's sums.
pub(super) fn tile_portable<const M: usize>(
    a: [&[f32]; M],
    w: &[f32],
    step: usize,
    scale: impl Fn(usize, usize) -> Option<[f32; WIDTH]>,
) -> [[f32; WIDTH]; M] {
    let mut out = [[0.0f32; WIDTH]; M];
    for (m, out) in out.iter_mut().enumerate() {
        for (b, (a, w)) in a[m].chunks(step).zip(w.chunks(step * WIDTH)).enumerate() {
            let mut t = [0.0f32; WIDTH];
            for (a, w) in a.iter().zip(w.chunks_exact(WIDTH)) {
                for (t, w) in t.iter_mut().zip(w) {
                    *t = a.mul_add(*w, *t);
                }
            }
            let s = scale(m, b);
            for (n, out) in out.iter_mut().enumerate() {
                *out = s.map_or(*out + t[n], |s| t[n].mul_add(s[n], *out));
            }
        }
    }
    out
}

fn run(job: &Job<'_>, cols: Range<usize>, out: &mut [f32]) {
    let (k, n) = (job.w.k, cols.len());
    let m = job.a.len() / k;
    debug_assert!(cols.end <= job.w.rows && out.len() == m * n);
    split(m, n, k, out, &|rows, part, out| {
        let width = part.len();
        fill(job, rows, cols.start + part.start..cols.start + part.end, out, width);
    });
}

/// Fills `out [rows, width]` with the outputs of some rows and weight rows.
fn fill(job: &Job<'_>, rows: Range<usize>, wanted: Range<usize>, out: &mut [f32], width: usize) {
    for panel in wanted.start / WIDTH..wanted.end.div_ceil(WIDTH) {
        let first = (panel * WIDTH).max(wanted.start);
        let last = ((panel + 1) * WIDTH).min(wanted.end);
        let place = Place { skip: first - panel * WIDTH, at: first - wanted.start, len: last - first, n: width };
        let mut row = rows.start;
        while row < rows.end {
            let to = &mut out[(row - rows.start) * width..];
            row += match rows.end - row {
                1 => place.put(&job.tile::<1>(row, panel), to),
                2 => place.put(&job.tile::<2>(row, panel), to),
                3 => place.put(&job.tile::<3>(row, panel), to),
                4 => place.put(&job.tile::<4>(row, panel), to),
                5 => place.put(&job.tile::<5>(row, panel), to),
                _ => place.put(&job.tile::<TALL>(row, panel), to),
            };
        }
    }
}

/// Where the columns of a tile go.
struct Place {
    /// Columns of the tile before the first wanted one.
    skip: usize,
    /// Column of the output.
    at: usize,
    len: usize,
    /// Columns of the output.
    n: usize,
}

impl Place {
    fn put<const M: usize>(&self, tile: &[[f32; WIDTH]; M], out: &mut [f32]) -> usize {
        for (m, row) in tile.iter().enumerate() {
            let at = m * self.n + self.at;
            if self.len == WIDTH {
                out[at..at + WIDTH].copy_from_slice(row);
            } else {
                out[at..at + self.len].copy_from_slice(&row[self.skip..self.skip + self.len]);
            }
        }
        M
    }
}
