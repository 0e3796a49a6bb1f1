//! Hyper-connection coefficients, mHC (spec 2.3).
//!
//! `f = flatten(h)` `[S, hc*D]` in stream-major order; `r` = inverse rms of f over all hc*D values, no weight;
//! `m = (f fn^T) * r`, fn `[(2+hc)*hc, hc*D]`; m splits into pre `[hc]`, post `[hc]`, comb `[hc,hc]` (row j, column k):
//! `pre = sigmoid(m*scale[0] + base) + eps`, `post = 2*sigmoid(m*scale[1] + base)`,
//! `C = softmax over k (m*scale[2] + base) + eps`, then Sinkhorn: columns, and (iters - 1) times rows, columns, each
//! `C / (sum + eps)`. Ends on columns. comb is `[in, out]`.

use rayon::prelude::*;

use super::rms_norm::inverse_rms;
use super::{Ctx, linear};
use crate::linalg::{Packed, Real, ordered_sum};

/// Weights of one mixing.
pub(crate) struct HcWeights<T> {
    /// fn `[(2+hc)*hc, hc*D]`.
    pub(crate) mix: Packed<T>,
    /// `[(2+hc)*hc]`.
    pub(crate) base: Vec<T>,
    /// `[3]`: pre, post, comb.
    pub(crate) scale: Vec<T>,
}

/// Coefficients of S rows.
pub(crate) struct Coefficients<T> {
    /// `[S,hc]`
    pub(crate) pre: Vec<T>,
    /// `[S,hc]`
    pub(crate) post: Vec<T>,
    /// `[S,hc,hc]`
    pub(crate) comb: Vec<T>,
}

/// Coefficients of streams `[S,hc,D]`.
pub(crate) fn hc_coefficients<T: Real>(ctx: Ctx<'_>, w: &HcWeights<T>, h: &[T]) -> Coefficients<T> {
    let (hc, width) = (ctx.config.hc_mult, ctx.config.hc_mult * ctx.config.hidden_size);
    let m = linear(ctx, h, width, &w.mix);
    let r = inverse_rms(ctx.isa, h, width, ctx.config.rms_norm_eps);
    let eps = T::of(ctx.config.hc_eps);
    let two = T::of(2.0);
    let s = r.len();
    let mut out =
        Coefficients { pre: vec![T::ZERO; s * hc], post: vec![T::ZERO; s * hc], comb: vec![T::ZERO; s * hc * hc] };
    let rows = out.pre.par_chunks_exact_mut(hc).zip(out.post.par_chunks_exact_mut(hc));
    rows.zip(out.comb.par_chunks_exact_mut(hc * hc)).enumerate().with_min_len(16).for_each(
        |(t, ((pre, post), comb))| {
            let m = &m[t * w.base.len()..(t + 1) * w.base.len()];
            let logit = |i: usize, part: usize| m[i] * r[t] * w.scale[part] + w.base[i];
            for j in 0..hc {
                pre[j] = logit(j, 0).sigmoid() + eps;
                post[j] = two * logit(hc + j, 1).sigmoid();
            }
            for (i, c) in comb.iter_mut().enumerate() {
                *c = logit(2 * hc + i, 2);
            }
            sinkhorn(comb, hc, ctx.config.hc_sinkhorn_iters, eps);
        },
    );
    out
}

fn sinkhorn<T: Real>(c: &mut [T], hc: usize, iters: usize, eps: T) {
    for row in c.chunks_exact_mut(hc) {
        let max = row.iter().fold(T::NEG_INFINITY, |m, &v| if v > m { v } else { m });
        for v in row.iter_mut() {
            *v = (*v - max).exp();
        }
        let den = ordered_sum(row.iter().copied());
        for v in row.iter_mut() {
            *v = T::of(v.wide() / den) + eps;
        }
    }
    columns(c, hc, eps);
    for _ in 1..iters {
        for row in c.chunks_exact_mut(hc) {
            let sum = row.iter().fold(T::ZERO, |sum, &v| sum + v) + eps;
            for v in row {
                *v = *v / sum;
            }
        }
        columns(c, hc, eps);
    }
}

fn columns<T: Real>(c: &mut [T], hc: usize, eps: T) {
    for k in 0..hc {
        let sum = (0..hc).fold(T::ZERO, |sum, j| sum + c[j * hc + k]) + eps;
        for j in 0..hc {
            c[j * hc + k] = c[j * hc + k] / sum;
        }
    }
}
