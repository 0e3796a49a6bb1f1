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
