//! Matrix products of activations: `out[m,n] = dot(a[m,:], b[n,:])`, tiles of the one dot product.

use std::ops::Range;

use super::dot::{dot_portable, has_simd};

/// `out [m,n] = a [m,k] * b [n,k]^T` in f32, on the calling thread: its callers are spread over queries already.
pub(crate) fn gemm(a: &[f32], b: &[f32], k: usize, out: &mut [f32]) {
    let (m, n) = (a.len() / k, b.len() / k);
    debug_assert_eq!(out.len(), m * n);
    panel(0..m, 0..n, out, &Dense { a, b, k });
}

struct Dense<'a> {
    a: &'a [f32],
    b: &'a [f32],
    k: usize,
}

fn rows<const R: usize>(data: &[f32], first: usize, width: usize) -> [&[f32]; R] {
    std::array::from_fn(|r| &data[(first + r) * width..(first + r + 1) * width])
}

impl Dense<'_> {
    fn tile<const M: usize, const N: usize>(&self, row: usize, col: usize) -> [[f32; N]; M] {
        let (a, b) = (rows::<M>(self.a, row, self.k), rows::<N>(self.b, col, self.k));
        #[cfg(target_arch = "x86_64")]
        if has_simd() {
            return super::simd_dot::tile(a, b);
        }
        a.map(|a| b.map(|b| dot_portable(a, b)))
    }
}

/// Fills `out [rows, cols]` with tiles of 4 x 2, then the edges.
fn panel(rows: Range<usize>, cols: Range<usize>, out: &mut [f32], p: &Dense<'_>) {
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
