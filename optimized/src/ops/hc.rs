//! Hyper-connections (mHC): coefficients, collapse, combine (spec 2.2, 2.3).

use karat_model::Config;

use super::norm::inverse_rms;
use super::rows;
use crate::arith::{bf16, exp, sigmoid};
use crate::linear::Linear;
use crate::plan::Numerics;

/// Parameters of one mixing point: fn `[(2+hc)*hc, hc*D]`, base `[(2+hc)*hc]`, scale `[3]`.
pub(crate) struct HcWeights {
    pub mix: Linear,
    pub base: Vec<f32>,
    pub scale: Vec<f32>,
}

/// pre `[S,hc]`, post `[S,hc]`, comb `[S,hc,hc]` (row j = in, column k = out).
pub(crate) struct Coefficients {
    pub pre: Vec<f32>,
    pub post: Vec<f32>,
    pub comb: Vec<f32>,
}

/// Coefficients from the streams `h [S, hc*D]`: rms over all streams, mix after the product, Sinkhorn. All f32.
pub(crate) fn coefficients(rules: &Numerics, config: &Config, w: &HcWeights, h: &[f32]) -> Coefficients {
    let hc = config.hc_mult;
    let (width, mixes) = (hc * config.hidden_size, (2 + hc) * hc);
    let mut mixed = w.mix.apply(rules.hc, rules, h);
    let eps = config.hc_eps as f32;
    rows(&mut mixed, mixes, |s, m| {
        let r = inverse_rms(&h[s * width..(s + 1) * width], config.rms_norm_eps as f32);
        for (i, v) in m.iter_mut().enumerate() {
            *v = *v * r * w.scale[(i / hc).min(2)] + w.base[i];
        }
        let (pre, rest) = m.split_at_mut(hc);
        let (post, comb) = rest.split_at_mut(hc);
        for v in pre.iter_mut() {
            *v = sigmoid(*v) + eps;
        }
        for v in post.iter_mut() {
            *v = 2.0 * sigmoid(*v);
        }
        sinkhorn(comb, hc, config.hc_sinkhorn_iters, eps);
    });
    let part =
        |range: std::ops::Range<usize>| mixed.chunks_exact(mixes).flat_map(|m| m[range.clone()].to_vec()).collect();
    Coefficients { pre: part(0..hc), post: part(hc..2 * hc), comb: part(2 * hc..mixes) }
}

/// Softmax of each row plus eps, then columns, then (iterations - 1) times rows and columns (spec 2.3).
fn sinkhorn(c: &mut [f32], hc: usize, iterations: usize, eps: f32) {
    for row in c.chunks_exact_mut(hc) {
        let max = row.iter().fold(f32::NEG_INFINITY, |m, &v| m.max(v));
        for v in row.iter_mut() {
            *v = exp(*v - max);
        }
        let sum: f32 = row.iter().sum();
        for v in row.iter_mut() {
            *v = *v / sum + eps;
        }
    }
    columns(c, hc, eps);
    for _ in 1..iterations {
        for row in c.chunks_exact_mut(hc) {
            let sum = row.iter().sum::<f32>() + eps;
            for v in row.iter_mut() {
                *v /= sum;
            }
        }
        columns(c, hc, eps);
    }
}

fn columns(c: &mut [f32], hc: usize, eps: f32) {
    for k in 0..hc {
        let sum = (0..hc).map(|j| c[j * hc + k]).sum::<f32>() + eps;
        (0..hc).for_each(|j| c[j * hc + k] /= sum);
    }
}

/// x = B(sum_j pre[j] * h[j]): `[S,D]` from `h [S,hc,D]`.
pub(crate) fn collapse(rules: &Numerics, hc: usize, pre: &[f32], h: &[f32]) -> Vec<f32> {
    let width = h.len() / pre.len();
    let rounds = rules.store.rounds();
    let mut out = vec![0.0; h.len() / hc];
    rows(&mut out, width, |s, out| {
        let h = &h[s * hc * width..(s + 1) * hc * width];
        for (d, v) in out.iter_mut().enumerate() {
            let mut sum = 0.0f32;
            for j in 0..hc {
                sum = pre[s * hc + j].mul_add(h[j * width + d], sum);
            }
            *v = if rounds { bf16(sum) } else { sum };
        }
    });
    out
}

/// h'[k] = B(post[k] * y + sum_j comb[j,k] * h[j]): `[S,hc,D]`, one rounding at the end.
pub(crate) fn combine(rules: &Numerics, hc: usize, post: &[f32], comb: &[f32], y: &[f32], h: &[f32]) -> Vec<f32> {
    let width = h.len() / post.len();
    let rounds = rules.store.rounds();
    let mut out = vec![0.0; h.len()];
    rows(&mut out, hc * width, |s, out| {
        let (h, y) = (&h[s * hc * width..(s + 1) * hc * width], &y[s * width..(s + 1) * width]);
        for k in 0..hc {
            for d in 0..width {
                let mut sum = post[s * hc + k] * y[d];
                for j in 0..hc {
                    sum = comb[(s * hc + j) * hc + k].mul_add(h[j * width + d], sum);
                }
                out[k * width + d] = if rounds { bf16(sum) } else { sum };
            }
        }
    });
    out
}
