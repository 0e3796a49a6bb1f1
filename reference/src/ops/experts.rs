//! Experts (spec 2.11).
//!
//! Routed: for every row and slot, expert e = idx: `g = x w1^T`, `u = x w3^T` `[I]`, `act = wt * swiglu(g, u)`
//! (`[S,K,I]`, slots as idx); `routed = sum over slots of act w2^T` `[S,D]`, an f64 accumulator per output, experts in
//! ascending id, rounded once. Shared: the same without a weight. Experts are decoded one at a time, each once for all
//! the rows of all lanes.

use super::swiglu::swiglu;
use super::{Ctx, linear, rows};
use crate::linalg::{Packed, Real, matmul};

/// w1, w3 and w2 of the shared expert.
pub(crate) struct SharedWeights<T> {
    /// `[I,D]` gate.
    pub(crate) w1: Packed<T>,
    /// `[I,D]` up.
    pub(crate) w3: Packed<T>,
    /// `[D,I]` down.
    pub(crate) w2: Packed<T>,
}

/// x `[S,D]` to `[S,D]`.
pub(crate) fn shared<T: Real>(ctx: Ctx<'_>, w: &SharedWeights<T>, x: &[T]) -> Vec<T> {
    let x = rows(x, ctx.config.hidden_size);
    let act = activation(ctx, &w.w1, &w.w3, &x);
    linear(ctx, &act, w.w1.n(), &w.w2)
}

/// `swiglu(x w1^T, x w3^T)`: `[rows, I]`.
pub(crate) fn activation<T: Real>(ctx: Ctx<'_>, w1: &Packed<T>, w3: &Packed<T>, x: &[&[T]]) -> Vec<T> {
    let limit = T::of(ctx.config.swiglu_limit);
    let (mut g, u) = (matmul(ctx.isa, x, w1), matmul(ctx.isa, x, w3));
    for (g, u) in g.iter_mut().zip(u) {
        *g = swiglu(*g, u, limit);
    }
    g
}

/// Rows of several lanes that go through the experts together.
pub(crate) struct Routed<'a, T> {
    /// `[S,D]`
    pub(crate) x: &'a [T],
    /// `[S,K]`
    pub(crate) idx: &'a [u32],
    /// `[S,K]`
    pub(crate) wt: &'a [T],
}

/// For each expert the (part, row * K + slot) that chose it, in row order.
fn by_expert<T>(ctx: Ctx<'_>, parts: &[Routed<'_, T>]) -> Vec<Vec<(usize, usize)>> {
    let mut users = vec![Vec::new(); ctx.config.n_routed_experts];
    for (p, part) in parts.iter().enumerate() {
        for (slot, &e) in part.idx.iter().enumerate() {
            users[e as usize].push((p, slot));
        }
    }
    users
}

/// Weighted activations `[S,K,I]` of each part; `up(e)` gives w1 and w3 of an expert.
pub(crate) fn expert_act<T: Real, E>(
    ctx: Ctx<'_>,
    parts: &[Routed<'_, T>],
    mut up: impl FnMut(usize) -> Result<std::sync::Arc<[Packed<T>; 2]>, E>,
) -> Result<Vec<Vec<T>>, E> {
    let (d, k, inner) = (ctx.config.hidden_size, ctx.config.num_experts_per_tok, ctx.config.moe_intermediate_size);
    let mut acts: Vec<Vec<T>> = parts.iter().map(|part| vec![T::ZERO; part.idx.len() * inner]).collect();
    for (e, users) in by_expert(ctx, parts).into_iter().enumerate().filter(|(_, users)| !users.is_empty()) {
        let weights = up(e)?;
        let x: Vec<&[T]> = users.iter().map(|&(p, slot)| &parts[p].x[slot / k * d..(slot / k + 1) * d]).collect();
        let act = activation(ctx, &weights[0], &weights[1], &x);
        for (&(p, slot), act) in users.iter().zip(act.chunks_exact(inner)) {
            let wt = parts[p].wt[slot];
            for (out, &a) in acts[p][slot * inner..(slot + 1) * inner].iter_mut().zip(act) {
                *out = wt * a;
            }
        }
    }
    Ok(acts)
}

/// `[S,D]` sums over the routed experts of each part; `down(e)` gives w2 of an expert.
pub(crate) fn expert_sum<T: Real, E>(
    ctx: Ctx<'_>,
    parts: &[Routed<'_, T>],
    acts: &[Vec<T>],
    mut down: impl FnMut(usize) -> Result<std::sync::Arc<Packed<T>>, E>,
) -> Result<Vec<Vec<T>>, E> {
    let (d, k, inner) = (ctx.config.hidden_size, ctx.config.num_experts_per_tok, ctx.config.moe_intermediate_size);
    let mut sums: Vec<Vec<f64>> = parts.iter().map(|part| vec![0f64; part.idx.len() / k * d]).collect();
    for (e, users) in by_expert(ctx, parts).into_iter().enumerate().filter(|(_, users)| !users.is_empty()) {
        let w2 = down(e)?;
        let x: Vec<&[T]> = users.iter().map(|&(p, slot)| &acts[p][slot * inner..(slot + 1) * inner]).collect();
        let out = matmul(ctx.isa, &x, &w2);
        for (&(p, slot), out) in users.iter().zip(out.chunks_exact(d)) {
            for (sum, v) in sums[p][slot / k * d..(slot / k + 1) * d].iter_mut().zip(out) {
                *sum += v.wide();
            }
        }
    }
    Ok(sums.into_iter().map(|sums| sums.into_iter().map(T::of).collect()).collect())
}

/// `routed + shared`.
pub(crate) fn combine<T: Real>(routed: &[T], shared: &[T]) -> Vec<T> {
    routed.iter().zip(shared).map(|(&r, &s)| r + s).collect()
}
