//! Indexer (spec 2.8): queries, keys, head weights, scores, selection.

use std::cmp::Ordering;

use karat_model::Config;

use super::rope::Rope;
use super::rows;
use crate::arith::{bf16, round_rows, vectorised};
use crate::linear::Linear;
use crate::patches::folded_scores;
use crate::plan::{IndexFormat, IndexRule, IndexScore, Numerics, Store};
use crate::quant::{fp8_rows, hadamard, q4, q8_rows};

/// Index vectors as they are scored: values, or codes with one scale a vector.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Vectors {
    /// `[n,di]` values (codes where there are scales).
    pub values: Vec<f32>,
    /// `[n]`; empty when the values are scored as they are.
    pub scales: Vec<f32>,
}

impl Vectors {
    /// The values that a tap shows: codes times scales.
    pub(crate) fn dequantised(&self, di: usize) -> Vec<f32> {
        if self.scales.is_empty() {
            return self.values.clone();
        }
        self.values.chunks_exact(di).zip(&self.scales).flat_map(|(v, s)| v.iter().map(move |c| c * s)).collect()
    }

    /// Vectors `start..` only.
    pub(crate) fn from(&self, start: usize, di: usize) -> Self {
        let scales = self.scales.get(start..).unwrap_or_default().to_vec();
        Self { values: self.values[start * di..].to_vec(), scales }
    }

    /// Appends other vectors of the same format.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.values.extend_from_slice(&other.values);
        self.scales.extend_from_slice(&other.scales);
    }
}

/// Rotates (where the rule says so), stores and quantises vectors `[n,di]` that are already roped.
pub(crate) fn prepare(rule: &IndexRule, store: Store, di: usize, mut values: Vec<f32>) -> Vectors {
    if rule.hadamard {
        rows(&mut values, di, |_, v| {
            hadamard(v);
            round_rows(store.rounds(), v);
        });
    }
    quantise(rule, di, values)
}

/// Quantises vectors `[n,di]` that are already rotated: also how values taken from a tap come back to codes.
pub(crate) fn quantise(rule: &IndexRule, di: usize, mut values: Vec<f32>) -> Vectors {
    match rule.format {
        IndexFormat::Stored => Vectors { values, scales: Vec::new() },
        IndexFormat::Q4 { block } => {
            rows(&mut values, di, |_, v| q4(v, block));
            Vectors { values, scales: Vec::new() }
        }
        IndexFormat::Bf16 => {
            round_rows(true, &mut values);
            Vectors { values, scales: Vec::new() }
        }
        // One scale a vector: heads wider than the block are refused.
        IndexFormat::Fp8 { pow2, .. } => {
            let (values, scales) = if pow2 { q8_rows(&values, di, 1e-4) } else { fp8_rows(&values, di, 1e-4) };
            Vectors { values, scales }
        }
    }
}

/// Index queries `[S,Hi,di]` as scored.
pub(crate) fn query(
    rules: &Numerics,
    config: &Config,
    wq_b: &Linear,
    rope: &Rope,
    qr: &[f32],
    position: impl Fn(usize) -> u32 + Sync,
) -> Vectors {
    let mut q = wq_b.apply(rules.dense, rules, qr);
    round_rows(rules.store.rounds(), &mut q);
    rows(&mut q, wq_b.rows, |s, row| {
        let turn = rope.at(position(s));
        row.chunks_exact_mut(config.index_head_dim).for_each(|head| turn.apply(rules.store, head, false));
    });
    prepare(&rules.index, rules.store, config.index_head_dim, q)
}

/// iw = B((x @ weights_proj^T) * di^-0.5 * Hi^-0.5): `[S,Hi]`.
pub(crate) fn weights(rules: &Numerics, config: &Config, weights_proj: &Linear, x: &[f32]) -> Vec<f32> {
    let factor = (config.index_head_dim as f64).powf(-0.5) * (config.index_n_heads as f64).powf(-0.5);
    let mut w = weights_proj.apply(rules.index_weights, rules, x);
    for v in &mut w {
        *v *= factor as f32;
    }
    round_rows(rules.store.rounds(), &mut w);
    w
}

/// Scores of one query against the first `scores.len()` keys, from its products `[Hi,n]` (q.k of values or codes), head
/// weights `w [Hi]`, and the scales of query `[Hi]` and keys where they are codes. The sum runs over heads in order.
pub(crate) fn score(
    rule: &IndexRule,
    products: &[f32],
    w: &[f32],
    q_scales: &[f32],
    key_scales: &[f32],
    scores: &mut [f32],
) {
    let n = scores.len();
    if n == 0 {
        return;
    }
    scores.fill(0.0);
    if let IndexScore::Folded { bf16_product, .. } = rule.score {
        folded_scores(products, w, q_scales, key_scales, bf16_product, scores);
        return;
    }
    match rule.score {
        IndexScore::Bf16Chain => bf16_chain(products, w, scores),
        _ => f32_chain(products, w, scores),
    }
}

vectorised! {
    /// `scores += B(relu(B(product)) * w)`, head by head, then rounded.
    fn bf16_chain(products: &[f32], w: &[f32], scores: &mut [f32]) {
        for (products, w) in products.chunks_exact(scores.len()).zip(w) {
            for (sum, p) in scores.iter_mut().zip(products) {
                *sum += bf16(relu(bf16(*p)) * w);
            }
        }
        for s in scores {
            *s = bf16(*s);
        }
    }
}

vectorised! {
    /// `scores += relu(product) * w`, head by head.
    fn f32_chain(products: &[f32], w: &[f32], scores: &mut [f32]) {
        for (products, w) in products.chunks_exact(scores.len()).zip(w) {
            for (sum, p) in scores.iter_mut().zip(products) {
                *sum = relu(*p).mul_add(*w, *sum);
            }
        }
    }
}

/// max(x, 0) that keeps a NaN.
#[inline(always)]
#[expect(clippy::inline_always, reason = "hot loops must be compiled with the features of their caller")]
pub(crate) fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// The `topk` best of the visible scores, ascending by index: larger score first, then the lower index.
pub(crate) fn select(scores: &[f32], topk: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    if scores.len() > topk {
        // -0 and +0 are one score.
        let key = |i: u32| scores[i as usize] + 0.0;
        let better = |a: &u32, b: &u32| match key(*b).total_cmp(&key(*a)) {
            Ordering::Equal => a.cmp(b),
            other => other,
        };
        order.select_nth_unstable_by(topk, better);
        order.truncate(topk);
        order.sort_unstable();
    }
    order
}
