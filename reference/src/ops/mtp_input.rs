//! Input of a multi-token-prediction block (spec 2.14).
//!
//! `e = RMSNorm(embed[id(t+1)]; enorm)` `[S,D]`; `g = RMSNorm(h[t,j]; hnorm)` per stream over D;
//! `x[t,j] = e e_proj^T + g[j] h_proj^T` `[S,hc,D]`. The block itself is an ordinary sliding block with score routing,
//! followed by its own hyper-connection head and norm and the SHARED table.

use super::rms_norm::rms_norm;
use super::{Ctx, linear};
use crate::linalg::{Packed, Real};
use crate::made::Made;

/// Weights of the input.
pub(crate) struct MtpWeights<T> {
    /// `[D,D]`
    pub(crate) e_proj: Packed<T>,
    /// `[D,D]`
    pub(crate) h_proj: Packed<T>,
    /// `[D]`
    pub(crate) enorm: Vec<T>,
    /// `[D]`
    pub(crate) hnorm: Vec<T>,
}

/// Embeddings of the next ids `[S,D]` and streams `[S,hc,D]` to the block's streams `[S,hc,D]`.
pub(crate) fn mtp_input<T: Real>(ctx: Ctx<'_>, w: &MtpWeights<T>, next: &[T], h: &[T]) -> Made<T> {
    let (d, eps) = (ctx.config.hidden_size, ctx.config.rms_norm_eps);
    let e = linear(ctx, &rms_norm(ctx, next, &w.enorm, eps), d, &w.e_proj);
    let mut x = linear(ctx, &rms_norm(ctx, h, &w.hnorm, eps), d, &w.h_proj);
    let there = ctx.values(|there| there.add(T::single(&x), T::single(&e), d, ctx.config.hc_mult));
    if let Some(x) = there {
        return x;
    }
    for (streams, e) in x.chunks_exact_mut(ctx.config.hc_mult * d).zip(e.chunks_exact(d)) {
        for stream in streams.chunks_exact_mut(d) {
            for (x, &e) in stream.iter_mut().zip(e) {
                *x = e + *x;
            }
        }
    }
    x
}
