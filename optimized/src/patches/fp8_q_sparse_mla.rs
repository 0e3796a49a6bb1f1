//! `fp8-q-sparse-mla`: decode attention with Q and P requantised to FP8.
//!
//! Contract (FlashInfer's sm_120 decode): the unrotated dims of q and of each key are E4M3 codes with power-of-two scales
//! for 64 dims, the rotated ones bf16. In a tile, for each chunk of 64 value dims, the exponentials times the keys' scales
//! of that chunk are requantised to E4M3 with one f32 scale and multiplied with the raw codes; for the rotated dims they
//! are rounded to bf16. Denominator, accumulators and log-sum-exp are f32, the partial output of a split bf16 (or f32).
//! Keys whose cache is FP8 lose nothing again.

use karat_model::{Config, Error, Result};
use karat_seam::{Op, Phase};

use super::{BASE, Claim, Patch, PatchOption, Risk};
use crate::arith::{bf16, e4m3, exp2, gemm, ln, round_rows, weighted_sums};
use crate::plan::{Attend, Store};
use crate::quant::{E4M3_MAX, q8_rows};

/// Dims that share a scale.
const CHUNK: usize = 64;

pub(super) static PATCH: Patch = Patch {
    name: "fp8-q-sparse-mla",
    about: "decode attention with FP8 queries and FP8 probabilities, split along the keys",
    phases: &[Phase::Decode],
    ops: &[Op::Attend],
    risk: Risk::High,
    claims: &[
        Claim {
            error: 9.5e-3,
            metric: "rel-L2 of the output",
            source: "simulated: P in FP8 and bf16 partials",
            given: &[],
        },
        Claim {
            error: 5e-2,
            metric: "test tolerance of the kernel's authors",
            source: "FlashInfer sm_120 decode",
            given: &[],
        },
    ],
    env_aliases: &["FlashInfer sm_120 sparse MLA decode"],
    conflicts: &["mma-sparse-mla"],
    options: &[
        PatchOption { name: "splits", values: "1 to 32", default: "10" },
        PatchOption { name: "tile", values: "1 to 256 keys", default: "64" },
        PatchOption { name: "partials", values: "bf16, f32", default: "bf16" },
    ],
    apply: |options, rules| {
        rules.attend = Attend::Fp8Q {
            splits: options.number("splits", 1..=32)?,
            tile: options.number("tile", 1..=256)?,
            partials: options.word("partials", &[("bf16", Store::Bf16), ("f32", Store::F32)])?,
        };
        Ok(())
    },
    check: whole_chunks,
    ..BASE
};

fn whole_chunks(config: &Config) -> Result<()> {
    if config.nope_head_dim().is_multiple_of(CHUNK) {
        return Ok(());
    }
    Err(Error::usage("patch `fp8-q-sparse-mla` cannot run this model: unrotated dims of a head")
        .expected(format!("a multiple of {CHUNK}"))
        .found(config.nope_head_dim()))
}

/// The rule with the model's rotated dims.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fp8Q {
    pub splits: usize,
    pub tile: usize,
    pub partials: Store,
    /// Dims of a head that are rotated, at its end.
    pub rotated: usize,
}

/// Rows `[n,hd]` as the kernel holds them: `values` are codes in the unrotated dims, `scales [n, chunks]`.
struct Coded {
    values: Vec<f32>,
    scales: Vec<f32>,
}

impl Fp8Q {
    fn code(self, rows: &[f32], hd: usize) -> Coded {
        let nope = hd - self.rotated;
        let mut out = Coded { values: rows.to_vec(), scales: Vec::new() };
        for row in out.values.chunks_exact_mut(hd) {
            let (codes, scales) = q8_rows(&row[..nope], CHUNK, 1e-4);
            row[..nope].copy_from_slice(&codes);
            round_rows(true, &mut row[nope..]);
            out.scales.extend(scales);
        }
        out
    }
}

/// Codes times scales: exact, the scales are powers of two.
fn values(coded: &Coded, hd: usize, chunks: usize) -> Vec<f32> {
    let mut out = coded.values.clone();
    for (row, scales) in out.chunks_exact_mut(hd).zip(coded.scales.chunks_exact(chunks)) {
        for (part, s) in row.chunks_mut(CHUNK).zip(scales) {
            part.iter_mut().for_each(|v| *v *= s);
        }
    }
    out
}

/// All heads of one query: `q [H,hd]`, `keys [n,hd]`, `sink [H]`. Fills `out [H,hd]` unrounded and `lse [H]`, the natural
/// log of the denominator with the sink.
pub(crate) fn attend_fp8(
    rule: Fp8Q,
    q: &[f32],
    keys: &[f32],
    sink: &[f32],
    scale: f32,
    out: &mut [f32],
    lse: &mut [f32],
) {
    let hd = q.len() / sink.len();
    let (n, chunks) = (keys.len() / hd, (hd - rule.rotated) / CHUNK);
    let keys = rule.code(keys, hd);
    // Powers of two scale exactly, so the products of codes with their scales are those of the values.
    let (q, k) = (values(&rule.code(q, hd), hd, chunks), values(&keys, hd, chunks));
    let mut scores = vec![0.0; sink.len() * n];
    gemm(&q, &k, hd, &mut scores);
    let after = scale * std::f32::consts::LOG2_E;
    scores.iter_mut().for_each(|s| *s *= after);
    let length = n.div_ceil(rule.tile).div_ceil(rule.splits).max(1) * rule.tile;
    for (h, ((out, lse), scores)) in out.chunks_exact_mut(hd).zip(lse).zip(scores.chunks_exact(n)).enumerate() {
        let partials: Vec<(Vec<f32>, f32)> = (0..n)
            .step_by(length)
            .map(|start| split(rule, &keys, hd, chunks, &scores[start..n.min(start + length)], start))
            .collect();
        let top = partials.iter().fold(f32::NEG_INFINITY, |m, (_, lse)| m.max(*lse));
        let mut den = exp2(sink[h] * std::f32::consts::LOG2_E - top);
        out.fill(0.0);
        for (partial, lse) in &partials {
            let w = exp2(lse - top);
            den += w;
            weighted_sums(&[w], partial, hd, out);
        }
        out.iter_mut().for_each(|v| *v /= den);
        *lse = top * std::f32::consts::LN_2 + ln(den);
    }
}

/// Online softmax over the tiles of the keys from `first` on: the normalised output and the log-sum-exp in base 2.
fn split(rule: Fp8Q, keys: &Coded, hd: usize, chunks: usize, scores: &[f32], first: usize) -> (Vec<f32>, f32) {
    let mut acc = vec![0.0f32; hd];
    let (mut top, mut den) = (f32::NEG_INFINITY, 0.0f32);
    for (i, scores) in scores.chunks(rule.tile).enumerate() {
        let new = scores.iter().fold(top, |m, &s| m.max(s));
        let keep = if top == f32::NEG_INFINITY { 0.0 } else { exp2(top - new) };
        acc.iter_mut().for_each(|v| *v *= keep);
        den *= keep;
        let p: Vec<f32> = scores.iter().map(|s| exp2(s - new)).collect();
        den += p.iter().sum::<f32>();
        let key = |j: usize| first + i * rule.tile + j;
        for (c, acc) in acc.chunks_mut(CHUNK).enumerate().take(chunks) {
            let scaled: Vec<f32> = p.iter().enumerate().map(|(j, p)| p * keys.scales[key(j) * chunks + c]).collect();
            let s = scaled.iter().fold(f32::MIN_POSITIVE, |m, v| m.max(*v)) / E4M3_MAX;
            let mut sum = vec![0.0f32; CHUNK];
            for (j, v) in scaled.iter().enumerate() {
                let at = key(j) * hd + c * CHUNK;
                weighted_sums(&[e4m3((v / s).min(E4M3_MAX))], &keys.values[at..at + CHUNK], CHUNK, &mut sum);
            }
            acc.iter_mut().zip(&sum).for_each(|(a, t)| *a = t.mul_add(s, *a));
        }
        let rotated = &mut acc[chunks * CHUNK..];
        for (j, p) in p.iter().enumerate() {
            let at = key(j) * hd + chunks * CHUNK;
            weighted_sums(&[bf16(*p)], &keys.values[at..at + rotated.len()], rotated.len(), rotated);
        }
        top = new;
    }
    acc.iter_mut().for_each(|v| *v /= den);
    round_rows(rule.partials.rounds(), &mut acc);
    (acc, top + ln(den) * std::f32::consts::LOG2_E)
}
