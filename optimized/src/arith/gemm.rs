//! Matrix products `out[m,n] = dot(a[m,:], b[n,:])`: tiles of the one dot product, spread over threads.

use rayon::prelude::*;

use super::dot::{LANES, dot_portable, has_simd, lanes_portable, tree};

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

/// Work under this many multiply-adds is not worth a second thread.
const INLINE: usize = 1 << 16;
/// Rows of `a` in one task, and rows of `b` in one task when `a` has few rows.
const TASK: usize = 32;

/// `out [m,n] = a [m,k] * b [n,k]^T` in f32.
pub(crate) fn gemm(a: &[f32], b: &[f32], k: usize, out: &mut [f32]) {
    let (m, n) = (a.len() / k, b.len() / k);
    debug_assert_eq!(out.len(), m * n);
    split(m, n, k, out, &|rows, cols, out| {
        panel(rows, cols, out, &Dense { a, b, k });
    });
}

/// `out[m,n] = sum over blocks kb of (dot of raw codes) * sa[m, kb / ratio] * sb[n, kb]`, where `b`'s block divides `a`'s.
/// A block's dot is kept as its eight lane sums, each scaled and added to the lane's running sum; the tree comes last.
pub(crate) fn gemm_scaled(a: Scaled<'_>, b: Scaled<'_>, k: usize, out: &mut [f32]) {
    let (m, n) = (a.codes.len() / k, b.codes.len() / k);
    debug_assert_eq!(out.len(), m * n);
    debug_assert!(a.block.is_multiple_of(b.block));
    split(m, n, k, out, &|rows, cols, out| {
        panel(rows, cols, out, &Blocked { a, b, k });
    });
}

type Range = std::ops::Range<usize>;

/// Cuts the output into tasks. The cut never changes an output's bits: every output is one dot product.
fn split(m: usize, n: usize, k: usize, out: &mut [f32], run: &(dyn Fn(Range, Range, &mut [f32]) + Sync)) {
    if m == 0 || n == 0 {
        return;
    }
    if m * n * k <= INLINE || rayon::current_num_threads() == 1 {
        run(0..m, 0..n, out);
    } else if m >= 2 * TASK {
        out.par_chunks_mut(TASK * n).enumerate().for_each(|(i, out)| {
            let start = i * TASK;
            run(start..(start + TASK).min(m), 0..n, out);
        });
    } else {
        let panels: Vec<(Range, Vec<f32>)> = (0..n.div_ceil(TASK))
            .into_par_iter()
            .map(|j| {
                let cols = j * TASK..((j + 1) * TASK).min(n);
                let mut part = vec![0.0; m * cols.len()];
                run(0..m, cols.clone(), &mut part);
                (cols, part)
            })
            .collect();
        for (cols, part) in panels {
            for (row, values) in part.chunks_exact(cols.len()).enumerate() {
                out[row * n + cols.start..row * n + cols.end].copy_from_slice(values);
            }
        }
    }
}

/// One kind of product: tiles of the outputs of some rows and columns.
trait Product {
    fn tile<const M: usize, const N: usize>(&self, row: usize, col: usize) -> [[f32; N]; M];
}

struct Dense<'a> {
    a: &'a [f32],
    b: &'a [f32],
    k: usize,
}

struct Blocked<'a> {
    a: Scaled<'a>,
    b: Scaled<'a>,
    k: usize,
}

fn rows<const R: usize>(data: &[f32], first: usize, width: usize) -> [&[f32]; R] {
    std::array::from_fn(|r| &data[(first + r) * width..(first + r + 1) * width])
}

impl Product for Dense<'_> {
    fn tile<const M: usize, const N: usize>(&self, row: usize, col: usize) -> [[f32; N]; M] {
        let (a, b) = (rows::<M>(self.a, row, self.k), rows::<N>(self.b, col, self.k));
        #[cfg(target_arch = "x86_64")]
        if has_simd() {
            return super::simd_dot::tile(a, b);
        }
        a.map(|a| b.map(|b| dot_portable(a, b)))
    }
}

impl Product for Blocked<'_> {
    fn tile<const M: usize, const N: usize>(&self, row: usize, col: usize) -> [[f32; N]; M] {
        let (ka, kb, ratio) = (self.k / self.a.block, self.k / self.b.block, self.a.block / self.b.block);
        let (a, b) = (rows::<M>(self.a.codes, row, self.k), rows::<N>(self.b.codes, col, self.k));
        let (sa, sb) = (rows::<M>(self.a.scales, row, ka), rows::<N>(self.b.scales, col, kb));
        #[cfg(target_arch = "x86_64")]
        if has_simd() {
            return super::simd_dot::tile_scaled(a, sa, b, sb, self.b.block, ratio);
        }
        std::array::from_fn(|m| std::array::from_fn(|n| scaled_portable(a[m], sa[m], b[n], sb[n], self.b.block, ratio)))
    }
}

/// The portable form of one output of [`gemm_scaled`].
pub(super) fn scaled_portable(a: &[f32], sa: &[f32], b: &[f32], sb: &[f32], block: usize, ratio: usize) -> f32 {
    let mut acc = [0.0f32; LANES];
    for (kb, (a, b)) in a.chunks_exact(block).zip(b.chunks_exact(block)).enumerate() {
        let mut t = [0.0; LANES];
        lanes_portable(a, b, &mut t);
        let s = sa[kb / ratio] * sb[kb];
        for (acc, t) in acc.iter_mut().zip(t) {
            *acc = t.mul_add(s, *acc);
        }
    }
    tree(acc)
}

/// Fills `out [rows, cols]` with tiles of 4 x 2, then the edges.
fn panel(rows: Range, cols: Range, out: &mut [f32], p: &impl Product) {
    let width = cols.len();
    let at = |row: usize, col: usize| (row - rows.start) * width + (col - cols.start);
    let mut col = cols.start;
    while col < cols.end {
        let pair = col + 1 < cols.end;
        let mut row = rows.start;
        while row < rows.end {
            if row + 4 <= rows.end {
                if pair {
                    put::<4, 2>(&p.tile(row, col), out, at(row, col), width);
                } else {
                    put::<4, 1>(&p.tile(row, col), out, at(row, col), width);
                }
                row += 4;
            } else {
                if pair {
                    put::<1, 2>(&p.tile(row, col), out, at(row, col), width);
                } else {
                    put::<1, 1>(&p.tile(row, col), out, at(row, col), width);
                }
                row += 1;
            }
        }
        col += if pair { 2 } else { 1 };
    }
}

fn put<const M: usize, const N: usize>(tile: &[[f32; N]; M], out: &mut [f32], at: usize, width: usize) {
    for (m, row) in tile.iter().enumerate() {
        out[at + m * width..at + m * width + N].copy_from_slice(row);
    }
}
