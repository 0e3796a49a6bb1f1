//! RMSNorm (spec 2.4).
//!
//! `y = (x * r) * w`, `r = 1 / sqrt(mean(x^2) + eps)` over the last axis, multiplied before any rounding to a storage
//! type (golden has none). Shapes: x `[S,n]`, w `[n]`. r follows the normative text of `linalg`: sum of squares by the
//! rule for dot products, the rest in f64, rounded once.

use rayon::prelude::*;

use super::Ctx;
use crate::linalg::{Real, sums_of_squares};
use crate::made::Made;

/// Rows of one task.
const ROWS: usize = 64;

/// `r` of each row of `n` values: `[S]`.
pub(crate) fn inverse_rms<T: Real>(ctx: Ctx<'_>, x: &[T], n: usize, eps: f64) -> Made<T> {
    if let Some(r) = ctx.values(|there| there.inverse_rms(T::single(x), n, eps)) {
        return r;
    }
    let mut r = vec![T::ZERO; x.len() / n];
    r.par_chunks_mut(ROWS).zip(x.par_chunks(ROWS * n)).for_each(|(r, x)| {
        let mut sums = [0f64; ROWS];
        let sums = &mut sums[..r.len()];
        sums_of_squares(ctx.isa, x, n, sums);
        for (r, &ss) in r.iter_mut().zip(sums.iter()) {
            *r = T::of(1.0 / (ss / n as f64 + eps).sqrt());
        }
    });
    r.into()
}

/// `(x * r) * w`: `[S,n]`.
pub(crate) fn rms_norm<T: Real>(ctx: Ctx<'_>, x: &[T], w: &[T], eps: f64) -> Made<T> {
    let n = w.len();
    if let Some(y) = ctx.values(|there| there.rms_norm(T::single(x), n, Some(T::single(w)), eps)) {
        return y;
    }
    let r = inverse_rms(ctx, x, n, eps);
    let mut y = x.to_vec();
    y.par_chunks_mut(ROWS * n).zip(r.par_chunks(ROWS)).for_each(|(y, r)| {
        for (y, &r) in y.chunks_exact_mut(n).zip(r) {
            for (y, &w) in y.iter_mut().zip(w) {
                *y = (*y * r) * w;
            }
        }
    });
    y.into()
}

/// `x * r` without weight, in place: the per-head norm of q (spec 2.5).
pub(crate) fn rms_scale<T: Real>(ctx: Ctx<'_>, x: &mut Made<T>, n: usize, eps: f64) {
    if let Some(y) = ctx.values(|there| there.rms_norm(T::single(x), n, None, eps)) {
        *x = y;
        return;
    }
    let r = inverse_rms(ctx, x, n, eps);
    x.par_chunks_mut(ROWS * n).zip(r.par_chunks(ROWS)).for_each(|(x, r)| {
        for (x, &r) in x.chunks_exact_mut(n).zip(r) {
            for x in x {
                *x = *x * r;
            }
        }
    });
}
