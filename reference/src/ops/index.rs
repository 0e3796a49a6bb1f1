//! Indexer of CSA layers (spec 2.8); its keys come from its own compressor (`compress`).
//!
//! `iq = qr wq_b^T` `[S,Hi,di]`, rope on the last rd of di dims at the row's position.
//! `iw = (x weights_proj^T) * (di^-0.5 * Hi^-0.5)` `[S,Hi]`.
//! `score[t,w] = sum_h relu(iq[t,h] . ik[w]) * iw[t,h]` for visible w, `w < (t+1) div r`; -inf elsewhere. `[S,T]`.
//! Golden skips the Hadamard transform: it is orthogonal and applied to both sides.

use rayon::prelude::*;

use super::rope::Angles;
use super::{Ctx, linear};
use crate::backend::Scoring;
use crate::lent::{Lent, List, listed};
use crate::linalg::{Packed, Real, ScoreBuffers, relu_scores};
use crate::made::Made;

/// Queries that are scored together.
const QUERIES: usize = 8;

/// qr `[S,R]` to iq `[S,Hi,di]`.
pub(crate) fn index_query<T: Real>(ctx: Ctx<'_>, qr: &[T], wq_b: &Packed<T>, angles: &Angles<T>) -> Made<T> {
    let (heads, di) = (ctx.config.index_n_heads, ctx.config.index_head_dim);
    let mut iq = linear(ctx, qr, ctx.config.q_lora_rank, wq_b);
    angles.rotate_rows(ctx, &mut iq, (heads, di), false);
    iq
}

/// x `[S,D]` to iw `[S,Hi]`, both scale factors included.
pub(crate) fn index_weights<T: Real>(ctx: Ctx<'_>, x: &[T], weights_proj: &Packed<T>) -> Made<T> {
    let (heads, di) = (ctx.config.index_n_heads as f64, ctx.config.index_head_dim as f64);
    let scale = T::of(1.0 / di.sqrt() * (1.0 / heads.sqrt()));
    let mut iw = linear(ctx, x, ctx.config.hidden_size, weights_proj);
    if let Some(iw) = ctx.values(|there| there.scale(T::single(&iw), T::single(&[scale])[0])) {
        return iw;
    }
    for w in &mut *iw {
        *w = *w * scale;
    }
    iw
}

/// Scores `[S,T]` of rows at positions `first..first+S` against T entries.
pub(crate) fn index_score<T: Real>(ctx: Ctx<'_>, iq: &[T], ik: &[T], iw: &[T], first: usize, ratio: usize) -> Made<T> {
    let (heads, di) = (ctx.config.index_n_heads, ctx.config.index_head_dim);
    let total = ik.len() / di;
    if total == 0 {
        return Vec::new().into();
    }
    let scoring = || {
        let (q, k, w) = (T::single(iq), T::single(ik), T::single(iw));
        Scoring { q, k, w, heads, first, ratio }
    };
    if let Some(scores) = ctx.values(|there| there.index_scores(scoring())) {
        return scores;
    }
    let keys = Packed::from_rows(total, di, |w, out| out.copy_from_slice(&ik[w * di..(w + 1) * di]));
    let mut scores = vec![T::NEG_INFINITY; iw.len() / heads * total];
    let blocks = scores.par_chunks_mut(QUERIES * total).zip(iq.par_chunks(QUERIES * heads * di));
    let blocks = blocks.zip(iw.par_chunks(QUERIES * heads)).enumerate();
    let init = || (Lent::<List<T>>::take(), Lent::<ScoreBuffers<T>>::take());
    blocks.for_each_init(init, |(list, buffers), (b, ((scores, iq), iw))| {
        let queries = scores.len() / total;
        let mut visible: [&mut [T]; QUERIES] = Default::default();
        for (t, (visible, row)) in visible.iter_mut().zip(scores.chunks_exact_mut(total)).enumerate() {
            *visible = &mut row[..((first + b * QUERIES + t + 1) / ratio).min(total)];
        }
        listed(list, |heads| {
            heads.extend(iq.chunks_exact(di));
            relu_scores(ctx.isa, heads, &keys, iw, &mut visible[..queries], buffers);
        });
    });
    scores.into()
}
