//! Indexer of CSA layers (spec 2.8); its keys come from its own compressor (`compress`).
//!
//! `iq = qr wq_b^T` `[S,Hi,di]`, rope on the last rd of di dims at the row's position.
//! `iw = (x weights_proj^T) * (di^-0.5 * Hi^-0.5)` `[S,Hi]`.
//! `score[t,w] = sum_h relu(iq[t,h] . ik[w]) * iw[t,h]` for visible w, `w < (t+1) div r`; -inf elsewhere. `[S,T]`.
//! Golden skips the Hadamard transform: it is orthogonal and applied to both sides.

use rayon::prelude::*;

use super::rope::Angles;
use super::{Ctx, linear, rows};
use crate::linalg::{Packed, Real, dot_lanes, matmul_here};

/// qr `[S,R]` to iq `[S,Hi,di]`.
pub(crate) fn index_query<T: Real>(ctx: Ctx<'_>, qr: &[T], wq_b: &Packed<T>, angles: &Angles<T>) -> Vec<T> {
    let (heads, di) = (ctx.config.index_n_heads, ctx.config.index_head_dim);
    let mut iq = linear(ctx, qr, ctx.config.q_lora_rank, wq_b);
    for (t, q) in iq.chunks_exact_mut(heads * di).enumerate() {
        angles.rotate(t, q, di);
    }
    iq
}

/// x `[S,D]` to iw `[S,Hi]`, both scale factors included.
pub(crate) fn index_weights<T: Real>(ctx: Ctx<'_>, x: &[T], weights_proj: &Packed<T>) -> Vec<T> {
    let (heads, di) = (ctx.config.index_n_heads as f64, ctx.config.index_head_dim as f64);
    let scale = T::of(1.0 / di.sqrt() * (1.0 / heads.sqrt()));
    let mut iw = linear(ctx, x, ctx.config.hidden_size, weights_proj);
    for w in &mut iw {
        *w = *w * scale;
    }
    iw
}

/// Scores `[S,T]` of rows at positions `first..first+S` against T entries.
pub(crate) fn index_score<T: Real>(ctx: Ctx<'_>, iq: &[T], ik: &[T], iw: &[T], first: usize, ratio: usize) -> Vec<T> {
    let (heads, di) = (ctx.config.index_n_heads, ctx.config.index_head_dim);
    let keys = rows(ik, di);
    let total = keys.len();
    if total == 0 {
        return Vec::new();
    }
    let mut scores = vec![T::NEG_INFINITY; iw.len() / heads * total];
    let init = || (Packed::default(), Vec::new(), Vec::new());
    scores.par_chunks_exact_mut(total).enumerate().for_each_init(init, |(packed, dots, sums), (t, scores)| {
        let visible = ((first + t + 1) / ratio).min(total);
        packed.refill(heads, di, &iq[t * heads * di..(t + 1) * heads * di]);
        dots.clear();
        dots.resize(visible * heads, T::ZERO);
        matmul_here(ctx.isa, &keys[..visible], packed, dots);
        for dot in dots.iter_mut() {
            if *dot <= T::ZERO {
                *dot = T::ZERO;
            }
        }
        dot_lanes(ctx.isa, dots, &iw[t * heads..(t + 1) * heads], &mut scores[..visible], sums);
    });
    scores
}
