//! Hyper-connection coefficients, mHC (spec 2.3).
//!
//! `f = flatten(h)` `[S, hc*D]` in stream-major order; `r` = inverse rms of f over all hc*D values, no weight;
//! `m = (f fn^T) * r`, fn `[(2+hc)*hc, hc*D]`; m splits into pre `[hc]`, post `[hc]`, comb `[hc,hc]` (row j, column k):
//! `pre = sigmoid(m*scale[0] + base) + eps`, `post = 2*sigmoid(m*scale[1] + base)`,
//! `C = softmax over k (m*scale[2] + base) + eps`, then Sinkhorn: columns, and (iters - 1) times rows, columns, each
//! `C / (sum + eps)`. Ends on columns. comb is `[in, out]`.

#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use rayon::prelude::*;

use super::rms_norm::inverse_rms;
use super::{Ctx, linear};
use crate::backend::Sinkhorn;
use crate::lent::Lent;
use crate::linalg::{Job, LANES, Machine, Packed, Real, dispatch};
use crate::made::Made;

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
    pub(crate) pre: Made<T>,
    /// `[S,hc]`
    pub(crate) post: Made<T>,
    /// `[S,hc,hc]`
    pub(crate) comb: Made<T>,
}

/// Coefficients of streams `[S,hc,D]`.
pub(crate) fn hc_coefficients<T: Real>(ctx: Ctx<'_>, w: &HcWeights<T>, h: &[T]) -> Coefficients<T> {
    let (hc, width) = (ctx.config.hc_mult, ctx.config.hc_mult * ctx.config.hidden_size);
    let m = linear(ctx, h, width, &w.mix);
    let r = inverse_rms(ctx, h, width, ctx.config.rms_norm_eps);
    let s = r.len();
    let size = Sinkhorn { hc, iters: ctx.config.hc_sinkhorn_iters, eps: ctx.config.hc_eps as f32 };
    let there = ctx.there::<T, _>(|there| {
        there.coefficients(T::single(&m), T::single(&r), T::single(&w.base), T::single(&w.scale), size)
    });
    if let Some(made) = there {
        let [pre, post, comb] = [made.0, made.1, made.2].map(|values| ctx.made(values));
        return Coefficients { pre, post, comb };
    }
    let [mut pre, mut post, mut comb] = [hc, hc, hc * hc].map(|width| vec![T::ZERO; s * width]);
    let rows = pre.par_chunks_mut(LANES * hc).zip(post.par_chunks_mut(LANES * hc));
    let rows = rows.zip(comb.par_chunks_mut(LANES * hc * hc));
    let inputs = m.par_chunks(LANES * w.base.len()).zip(r.par_chunks(LANES));
    rows.zip(inputs).for_each_init(Lent::<Vec<_>>::take, |lanes, (((pre, post), comb), (m, r))| {
        lanes.resize(w.base.len(), [T::ZERO; LANES]);
        let (iters, eps) = (ctx.config.hc_sinkhorn_iters, T::of(ctx.config.hc_eps));
        dispatch(ctx.isa, SomeRows { w, hc, iters, eps, m, r, pre, post, comb, lanes });
    });
    Coefficients { pre: pre.into(), post: post.into(), comb: comb.into() }
}

/// Up to LANES rows side by side.
struct SomeRows<'a, T> {
    w: &'a HcWeights<T>,
    hc: usize,
    iters: usize,
    eps: T,
    /// `[S, (2+hc)*hc]` products with fn.
    m: &'a [T],
    /// `[S]`
    r: &'a [T],
    pre: &'a mut [T],
    post: &'a mut [T],
    comb: &'a mut [T],
    /// One value a row for each of the (2+hc)*hc coefficients.
    lanes: &'a mut [[T; LANES]],
}

impl<T: Real> Job for SomeRows<'_, T> {
    #[inline(always)]
    fn run<M: Machine, const R: usize, const H: usize, const P: usize>(self) {
        let Self { w, hc, iters, eps, m, r, pre, post, comb, lanes } = self;
        let n = lanes.len();
        for (t, &r) in r.iter().enumerate() {
            let m = &m[t * n..(t + 1) * n];
            for (part, range) in [0..hc, hc..2 * hc, 2 * hc..n].into_iter().enumerate() {
                for i in range {
                    lanes[i][t] = m[i] * r * w.scale[part] + w.base[i];
                }
            }
        }
        let (gates, c) = lanes.split_at_mut(2 * hc);
        for v in gates.as_flattened_mut() {
            *v = v.sigmoid();
        }
        sinkhorn(c, hc, iters, eps);
        let two = T::of(2.0);
        for t in 0..r.len() {
            for j in 0..hc {
                pre[t * hc + j] = gates[j][t] + eps;
                post[t * hc + j] = two * gates[hc + j][t];
            }
            for i in 0..hc * hc {
                comb[t * hc * hc + i] = c[i][t];
            }
        }
    }
}

/// c `[hc,hc]`, LANES matrices side by side.
#[inline(always)]
fn sinkhorn<T: Real>(c: &mut [[T; LANES]], hc: usize, iters: usize, eps: T) {
    for row in c.chunks_exact_mut(hc) {
        let mut max = [T::NEG_INFINITY; LANES];
        for v in row.iter() {
            for t in 0..LANES {
                max[t] = if v[t] > max[t] { v[t] } else { max[t] };
            }
        }
        for v in row.iter_mut() {
            for t in 0..LANES {
                v[t] = v[t] - max[t];
            }
        }
        for v in row.as_flattened_mut() {
            *v = v.exp();
        }
        let mut den = [0f64; LANES];
        for v in row.iter() {
            for t in 0..LANES {
                den[t] += v[t].wide();
            }
        }
        for v in row.iter_mut() {
            for t in 0..LANES {
                v[t] = T::of(v[t].wide() / den[t]) + eps;
            }
        }
    }
    normalise(c, hc, 1, hc, eps);
    for _ in 1..iters {
        normalise(c, hc, hc, 1, eps);
        normalise(c, hc, 1, hc, eps);
    }
}

/// Divides each of hc lines (rows: `from` = hc, `step` = 1; columns: the other way round) by its sum + eps.
#[inline(always)]
fn normalise<T: Real>(c: &mut [[T; LANES]], hc: usize, from: usize, step: usize, eps: T) {
    for line in 0..hc {
        let mut sum = [T::ZERO; LANES];
        for i in 0..hc {
            let v = &c[line * from + i * step];
            for t in 0..LANES {
                sum[t] = sum[t] + v[t];
            }
        }
        for t in 0..LANES {
            sum[t] = sum[t] + eps;
        }
        for i in 0..hc {
            let v = &mut c[line * from + i * step];
            for t in 0..LANES {
                v[t] = v[t] / sum[t];
            }
        }
    }
}
