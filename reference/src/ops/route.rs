//! Router (spec 2.11).
//!
//! `logits = x gate^T` `[S,E]`; `s = sqrt(softplus(logits))`. Hash layers: experts of the row's INPUT id from tid2eid;
//! others: the K best of `s + bias` (bias for selection only; ties: lower index). `wt = s[idx] / sum(s[idx]) * scale`,
//! from the unbiased s, the sum in slot order. idx `[S,K]`, best first; wt `[S,K]`.

#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use super::select::top_k;
use super::{Ctx, linear};
use crate::linalg::{Function, Packed, Real, map, ordered_sum};
use crate::made::Made;

/// Weights of a router.
pub(crate) struct RouterWeights<T> {
    /// `[E,D]`
    pub(crate) gate: Packed<T>,
    /// How experts are chosen.
    pub(crate) choice: Choice<T>,
}

/// How a layer chooses experts.
pub(crate) enum Choice<T> {
    /// By score plus this bias `[E]`.
    Scored(Vec<T>),
    /// By id: `[V,K]`.
    Hashed(Vec<u32>),
}

/// x `[S,D]` to router logits `[S,E]`.
pub(crate) fn router_logits<T: Real>(ctx: Ctx<'_>, x: &[T], w: &RouterWeights<T>) -> Made<T> {
    linear(ctx, x, ctx.config.hidden_size, &w.gate)
}

/// `sqrt(softplus(logit))`.
struct Affinity;

impl<T: Real> Function<T> for Affinity {
    #[inline(always)]
    fn of(&self, v: T) -> T {
        v.softplus().sqrt()
    }
}

/// Experts `[S,K]` of rows with these input ids.
pub(crate) fn choose<T: Real>(ctx: Ctx<'_>, logits: &[T], w: &RouterWeights<T>, ids: &[u32]) -> Vec<u32> {
    let (experts, k) = (ctx.config.n_routed_experts, ctx.config.num_experts_per_tok);
    match &w.choice {
        Choice::Hashed(table) => ids.iter().flat_map(|&id| &table[id as usize * k..][..k]).copied().collect(),
        Choice::Scored(bias) => {
            if let Some(idx) = ctx.there::<T, _>(|there| there.choose(T::single(logits), T::single(bias), k)) {
                return idx;
            }
            let mut s = logits.to_vec();
            map(ctx.isa, &mut s, Affinity);
            // One more: the worst of a row goes when a better one is in.
            let mut idx = Vec::with_capacity(s.len() / experts * k + 1);
            for biased in s.chunks_exact_mut(experts) {
                biased.iter_mut().zip(bias).for_each(|(s, &b)| *s = *s + b);
                top_k(biased, k, &mut idx);
            }
            idx
        }
    }
}

/// Routing weights `[S,K]` of the chosen experts.
pub(crate) fn weights<T: Real>(ctx: Ctx<'_>, logits: &[T], idx: &[u32]) -> Made<T> {
    let (experts, k) = (ctx.config.n_routed_experts, ctx.config.num_experts_per_tok);
    let factor = ctx.config.routed_scaling_factor;
    if let Some(wt) = ctx.values(|there| there.route_weights(T::single(logits), experts, idx, k, factor)) {
        return wt;
    }
    let mut wt = Vec::with_capacity(idx.len());
    for (logits, idx) in logits.chunks_exact(experts).zip(idx.chunks_exact(k)) {
        wt.extend(idx.iter().map(|&e| logits[e as usize]));
    }
    map(ctx.isa, &mut wt, Affinity);
    for s in wt.chunks_exact_mut(k) {
        let sum = ordered_sum(s.iter().copied());
        for s in s {
            *s = T::of(s.wide() / sum * factor);
        }
    }
    wt.into()
}
