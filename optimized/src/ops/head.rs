//! Final head (spec 2.13): hyper-connection collapse, norm, logits.

use karat_model::Config;

use super::hc::{HcWeights, collapse};
use super::norm::{inverse_rms, rms_norm};
use super::rows;
use crate::arith::{round_rows, sigmoid};
use crate::linear::Linear;
use crate::plan::Numerics;

/// x = B(sum_j pre_j h_j) with pre = sigmoid(mix * rms * scale + base) + eps: `[S,D]` from `h [S, hc*D]`.
pub(crate) fn head_collapse(rules: &Numerics, config: &Config, w: &HcWeights, h: &[f32]) -> Vec<f32> {
    let (hc, width) = (config.hc_mult, config.hc_mult * config.hidden_size);
    let mut pre = w.mix.apply(crate::plan::Product::F32, rules, h);
    rows(&mut pre, hc, |s, row| {
        let r = inverse_rms(&h[s * width..(s + 1) * width], config.rms_norm_eps as f32);
        for (v, base) in row.iter_mut().zip(&w.base) {
            *v = sigmoid(*v * r * w.scale[0] + base) + config.hc_eps as f32;
        }
    });
    collapse(rules, hc, &pre, h)
}

/// logits = RMSNorm(x; norm) @ head^T: `[S,V]`, f32.
pub(crate) fn logits(rules: &Numerics, config: &Config, norm: &[f32], head: &Linear, x: &[f32]) -> Vec<f32> {
    let mut x = x.to_vec();
    rms_norm(rules, &mut x, norm, config.rms_norm_eps as f32);
    let mut logits = head.apply(rules.lm_head, rules, &x);
    round_rows(rules.logits_store.rounds(), &mut logits);
    logits
}
