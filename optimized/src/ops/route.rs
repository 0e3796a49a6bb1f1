//! Router (spec 2.11): logits, experts, weights.

use karat_model::Config;

use crate::arith::{round_rows, softplus};
use crate::linear::Linear;
use crate::plan::{Numerics, Scaling};

/// How a layer chooses its experts.
pub(crate) enum Chooser {
    /// By token id: `tid2eid [V,K]`.
    Hash(Vec<u32>),
    /// The K best of score plus bias `[E]`; the bias serves selection only.
    Scored(Vec<f32>),
}

/// Router logits `[S,E]`, f32.
pub(crate) fn logits(rules: &Numerics, gate: &Linear, x: &[f32]) -> Vec<f32> {
    let mut logits = gate.apply(rules.router, rules, x);
    round_rows(rules.router_store.rounds(), &mut logits);
    logits
}

/// Experts `[K]` and weights `[K]` of one token from its logits; the weights carry the routed scaling factor where the
/// top-k multiplies it in. `forced` replaces the choice, not the weights.
pub(crate) fn choose(
    scaling: Scaling,
    config: &Config,
    chooser: &Chooser,
    logits: &[f32],
    id: u32,
    forced: Option<&[u32]>,
) -> (Vec<u32>, Vec<f32>) {
    let k = config.num_experts_per_tok;
    let scores: Vec<f32> = logits.iter().map(|&l| softplus(l).sqrt()).collect();
    let idx = match (forced, chooser) {
        (Some(idx), _) => idx.to_vec(),
        (None, Chooser::Hash(table)) => table[id as usize * k..(id as usize + 1) * k].to_vec(),
        (None, Chooser::Scored(bias)) => best(&scores, bias, k),
    };
    let chosen: Vec<f32> = idx.iter().map(|&e| scores[e as usize]).collect();
    let sum: f32 = chosen.iter().sum();
    let here = if matches!(chooser, Chooser::Hash(_)) { scaling.hash_topk } else { scaling.topk };
    let factor = if here { config.routed_scaling_factor as f32 } else { 1.0 };
    let wt = chosen.iter().map(|s| s / sum * factor).collect();
    (idx, wt)
}

/// The k best of score plus bias, best first; ties go to the lower index.
fn best(scores: &[f32], bias: &[f32], k: usize) -> Vec<u32> {
    let ranked: Vec<f32> = scores.iter().zip(bias).map(|(s, b)| s + b + 0.0).collect();
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    order.sort_by(|&a, &b| ranked[b as usize].total_cmp(&ranked[a as usize]).then(a.cmp(&b)));
    order.truncate(k);
    order
}
