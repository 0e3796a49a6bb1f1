//! Experts (spec 2.11): clamped SwiGLU, routed and shared.

use karat_model::Config;

use super::rows;
use crate::arith::{bf16, round_rows, silu, vectorised};
use crate::linear::{Adder, Linear};
use crate::plan::Numerics;

/// a = B(wt * silu(min(g, L)) * clamp(u, -L, L)) from the products g and u `[m,I]`, `n` = I: in place of g. The gate has no lower
/// clamp. `wt [m]` is the routing weight, applied before the down projection and its activation quantisation; `None` for the
/// shared expert.
pub(crate) fn gated(
    rules: &Numerics,
    limit: Option<f32>,
    n: usize,
    mut g: Vec<f32>,
    mut u: Vec<f32>,
    wt: Option<&[f32]>,
) -> Vec<f32> {
    let rounds = rules.store.rounds();
    // The fused epilogue sees the accumulators.
    round_rows(rounds && !rules.swiglu.fused, &mut g);
    round_rows(rounds && !rules.swiglu.fused, &mut u);
    rows(&mut g, n, |m, row| {
        swiglu(row, &u[m * n..(m + 1) * n], limit, wt.map(|wt| wt[m]), rounds);
    });
    g
}

vectorised! {
    /// silu of the gate times up, both clamped, times the routing weight, stored: in place of the gate.
    fn swiglu(g: &mut [f32], u: &[f32], limit: Option<f32>, weight: Option<f32>, rounds: bool) {
        let most = limit.unwrap_or(f32::INFINITY);
        for (g, u) in g.iter_mut().zip(u) {
            // Not `min`: it would turn a NaN gate into the limit.
            let gate = if *g > most { most } else { *g };
            let a = silu(gate) * u.clamp(-most, most);
            let a = if let Some(w) = weight { a * w } else { a };
            *g = if rounds { bf16(a) } else { a };
        }
    }
}

/// Shared expert: `[S,D]`, no routing weight.
pub(crate) fn shared(rules: &Numerics, adder: &Adder, config: &Config, w: &[Linear; 3], x: &[f32]) -> Vec<f32> {
    let limit = rules.swiglu.shared.then_some(config.swiglu_limit as f32);
    let (g, u) = (w[0].apply(rules.dense, rules, x), w[2].apply(rules.dense, rules, x));
    let a = gated(rules, limit, w[0].rows, g, u, None);
    let mut out = w[1].apply_ranks(rules.dense, rules, adder, &a);
    round_rows(rules.store.rounds(), &mut out);
    out
}

/// y = B(routed + shared).
pub(crate) fn combine(rules: &Numerics, routed: &[f32], shared: &[f32]) -> Vec<f32> {
    let mut y: Vec<f32> = routed.iter().zip(shared).map(|(r, s)| r + s).collect();
    round_rows(rules.store.rounds(), &mut y);
    y
}
