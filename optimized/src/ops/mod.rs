//! The ops of a block under numeric rules: one op, one file, slices in and vectors out.
//!
//! Row-wise ops give each row the same bits whatever rows come with it. State lives in `serving/`, not here.

pub(crate) mod attend;
pub(crate) mod compress;
pub(crate) mod experts;
pub(crate) mod hc;
pub(crate) mod head;
pub(crate) mod index;
pub(crate) mod key_value;
pub(crate) mod norm;
pub(crate) mod output;
pub(crate) mod query;
pub(crate) mod rope;
pub(crate) mod route;

use rayon::prelude::*;

/// Runs `f(row, out_row)` over the rows of `out`, in parallel when there is enough to do.
pub(crate) fn rows<T: Send>(out: &mut [T], width: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    const INLINE: usize = 1 << 13;
    if width == 0 {
        return;
    }
    if out.len() <= INLINE {
        out.chunks_exact_mut(width).enumerate().for_each(|(i, row)| f(i, row));
    } else {
        out.par_chunks_exact_mut(width).enumerate().for_each(|(i, row)| f(i, row));
    }
}

/// Runs `f(first, a_part, b_part)` over two slices of which `b` has one element for each `block` elements of `a`, in
/// parallel when there is enough to do. `first` is the index in `a` of the part's first element.
pub(crate) fn tasks(a: &mut [f32], b: &mut [f32], block: usize, f: impl Fn(usize, &mut [f32], &mut [f32]) + Sync) {
    const TASK: usize = 1 << 14;
    let blocks = (TASK / block).max(1);
    if a.len() <= 2 * TASK {
        f(0, a, b);
    } else {
        let parts = a.par_chunks_mut(blocks * block).zip(b.par_chunks_mut(blocks)).enumerate();
        parts.for_each(|(i, (a, b))| f(i * blocks * block, a, b));
    }
}

/// Runs `f(i, part)` over parts of `width` elements, the last of which may be shorter, in parallel when there is enough
/// to do.
pub(crate) fn groups(out: &mut [f32], width: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    const INLINE: usize = 1 << 12;
    if out.len() <= INLINE {
        out.chunks_mut(width).enumerate().for_each(|(i, part)| f(i, part));
    } else {
        out.par_chunks_mut(width).enumerate().for_each(|(i, part)| f(i, part));
    }
}
