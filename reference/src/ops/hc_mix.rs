//! Collapse of the streams into a branch and combination after it (spec 2.2).
//!
//! collapse: `x[t,:] = sum_j pre[t,j] * h[t,j,:]`, `[S,D]`.
//! combine: `h'[t,k,:] = post[t,k] * y[t,:] + sum_j comb[t,j,k] * h[t,j,:]`, `[S,hc,D]`: comb is summed over its FIRST
//! index, and h is the stream state that entered this part. Order of the sums: normative text of `linalg`.

use rayon::prelude::*;

use super::Ctx;
use super::hc_coefficients::Coefficients;
use crate::lent::{Lent, List, listed};
use crate::linalg::{Real, mix_rows};
use crate::made::Made;

/// `[S,hc]` x `[S,hc,D]` to `[S,D]`.
pub(crate) fn collapse<T: Real>(ctx: Ctx<'_>, pre: &[T], h: &[T]) -> Made<T> {
    let (hc, d) = (ctx.config.hc_mult, ctx.config.hidden_size);
    if let Some(x) = ctx.values(|there| there.collapse(T::single(pre), T::single(h), hc)) {
        return x;
    }
    let mut x = vec![T::ZERO; h.len() / hc];
    x.par_chunks_exact_mut(d).enumerate().with_min_len(16).for_each_init(Lent::<List<T>>::take, |list, (t, x)| {
        listed(list, |streams| {
            streams.extend(h[t * hc * d..(t + 1) * hc * d].chunks_exact(d));
            mix_rows(ctx.isa, &pre[t * hc..(t + 1) * hc], 1, streams, None, x);
        });
    });
    x.into()
}

/// Streams after the part: `[S,hc,D]`.
pub(crate) fn combine<T: Real>(ctx: Ctx<'_>, mix: &Coefficients<T>, h: &[T], y: &[T]) -> Made<T> {
    let (hc, d) = (ctx.config.hc_mult, ctx.config.hidden_size);
    let there = ctx.values(|there| {
        let (comb, post) = (T::single(&mix.comb), T::single(&mix.post));
        there.combine(comb, post, T::single(h), T::single(y), hc)
    });
    if let Some(out) = there {
        return out;
    }
    let mut out = vec![T::ZERO; h.len()];
    let init = || (Lent::<List<T>>::take(), Lent::<Vec<T>>::take());
    out.par_chunks_exact_mut(hc * d).enumerate().with_min_len(16).for_each_init(init, |(list, a), (t, out)| {
        a.clear();
        a.extend_from_slice(&mix.comb[t * hc * hc..(t + 1) * hc * hc]);
        a.extend_from_slice(&mix.post[t * hc..(t + 1) * hc]);
        listed(list, |rows| {
            rows.extend(h[t * hc * d..(t + 1) * hc * d].chunks_exact(d));
            rows.push(&y[t * d..(t + 1) * d]);
            mix_rows(ctx.isa, a, hc, rows, None, out);
        });
    });
    out.into()
}
