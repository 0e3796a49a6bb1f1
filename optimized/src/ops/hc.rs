//! Hyper-connections (mHC): coefficients, collapse, combine (spec 2.2, 2.3).
#![expect(clippy::inline_always, reason = "hot loops must be compiled with the features of their caller")]

use karat_model::Config;

use super::norm::inverse_rms;
use super::{groups, rows};
use crate::arith::{bf16, exp, sigmoid, vectorised};
use crate::linear::Linear;
use crate::plan::Numerics;

/// Parameters of one mixing point: fn `[(2+hc)*hc, hc*D]`, base `[(2+hc)*hc]`, scale `[3]`.
pub(crate) struct HcWeights {
    /// fn as stored, for kernels; empty where none takes it.
    pub values: Vec<f32>,
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
    groups(&mut mixed, mixes * LANES, |group, part| {
        let rows = part.len() / mixes;
        let mut comb = vec![[0.0f32; LANES]; hc * hc];
        for (i, m) in part.chunks_exact_mut(mixes).enumerate() {
            let s = group * LANES + i;
            let r = inverse_rms(&h[s * width..(s + 1) * width], config.rms_norm_eps as f32);
            for (i, v) in m.iter_mut().enumerate() {
                *v = *v * r * w.scale[(i / hc).min(2)] + w.base[i];
            }
            gates(&mut m[..2 * hc], hc, eps);
            comb.iter_mut().zip(&m[2 * hc..]).for_each(|(c, m)| c[i] = *m);
        }
        sinkhorn(&mut comb, hc, config.hc_sinkhorn_iters, eps);
        for (i, m) in part.chunks_exact_mut(mixes).enumerate().take(rows) {
            m[2 * hc..].iter_mut().zip(&comb).for_each(|(m, c)| *m = c[i]);
        }
    });
    let part = |range: std::ops::Range<usize>| {
        let mut out = Vec::with_capacity(mixed.len() / mixes * range.len());
        mixed.chunks_exact(mixes).for_each(|m| out.extend_from_slice(&m[range.clone()]));
        out
    };
    Coefficients { pre: part(0..hc), post: part(hc..2 * hc), comb: part(2 * hc..mixes) }
}

/// Rows of the streams that go through Sinkhorn side by side.
const LANES: usize = 8;

vectorised! {
    /// pre = sigmoid + eps, post = 2 * sigmoid, from mixes `[2*hc]` in place.
    fn gates(m: &mut [f32], hc: usize, eps: f32) {
        for (i, v) in m.iter_mut().enumerate() {
            let s = sigmoid(*v);
            *v = if i < hc { s + eps } else { 2.0 * s };
        }
    }
}

vectorised! {
    /// Softmax of each row plus eps, then columns, then (iterations - 1) times rows and columns (spec 2.3). `c[j*hc + k]`
    /// is element (j,k) of eight tokens; each lane is one token's chain of sums in ascending order.
    fn sinkhorn(c: &mut [[f32; LANES]], hc: usize, iterations: usize, eps: f32) {
        for row in c.chunks_exact_mut(hc) {
            let mut max = [f32::NEG_INFINITY; LANES];
            for v in row.iter() {
                for l in 0..LANES {
                    max[l] = max[l].max(v[l]);
                }
            }
            for v in row.iter_mut() {
                for l in 0..LANES {
                    v[l] = exp(v[l] - max[l]);
                }
            }
            normalise(row, 1, 0.0, eps);
        }
        for k in 0..hc {
            normalise(&mut c[k..], hc, eps, 0.0);
        }
        for _ in 1..iterations {
            for row in c.chunks_exact_mut(hc) {
                normalise(row, 1, eps, 0.0);
            }
            for k in 0..hc {
                normalise(&mut c[k..], hc, eps, 0.0);
            }
        }
    }
}

/// Divides every `step`-th element by their sum plus `below`, and adds `after`, lane by lane.
#[inline(always)]
fn normalise(c: &mut [[f32; LANES]], step: usize, below: f32, after: f32) {
    let mut sum = [0.0f32; LANES];
    for v in c.iter().step_by(step) {
        for l in 0..LANES {
            sum[l] += v[l];
        }
    }
    for v in c.iter_mut().step_by(step) {
        for l in 0..LANES {
            v[l] = v[l] / (sum[l] + below) + after;
        }
    }
}

/// x = B(sum_j pre[j] * h[j]): `[S,D]` from `h [S,hc,D]`.
pub(crate) fn collapse(rules: &Numerics, hc: usize, pre: &[f32], h: &[f32]) -> Vec<f32> {
    let width = h.len() / pre.len();
    let rounds = rules.store.rounds();
    let mut out = vec![0.0; h.len() / hc];
    rows(&mut out, width, |s, out| {
        collapse_row(&pre[s * hc..(s + 1) * hc], &h[s * hc * width..(s + 1) * hc * width], out, rounds);
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
        combine_row(&post[s * hc..(s + 1) * hc], &comb[s * hc * hc..(s + 1) * hc * hc], y, h, out, rounds);
    });
    out
}

vectorised! {
    /// `out [D]`, zero on entry, of one token.
    fn collapse_row(pre: &[f32], h: &[f32], out: &mut [f32], rounds: bool) {
        for (p, h) in pre.iter().zip(h.chunks_exact(out.len())) {
            for (v, h) in out.iter_mut().zip(h) {
                *v = p.mul_add(*h, *v);
            }
        }
        store(out, rounds);
    }
}

vectorised! {
    /// `out [hc,D]` of one token.
    fn combine_row(post: &[f32], comb: &[f32], y: &[f32], h: &[f32], out: &mut [f32], rounds: bool) {
        let (hc, width) = (post.len(), y.len());
        for (k, out) in out.chunks_exact_mut(width).enumerate() {
            for (v, y) in out.iter_mut().zip(y) {
                *v = post[k] * y;
            }
            for (j, h) in h.chunks_exact(width).enumerate() {
                let c = comb[j * hc + k];
                for (v, h) in out.iter_mut().zip(h) {
                    *v = c.mul_add(*h, *v);
                }
            }
            store(out, rounds);
        }
    }
}

#[inline(always)]
fn store(x: &mut [f32], rounds: bool) {
    if rounds {
        for v in x {
            *v = bf16(*v);
        }
    }
}
