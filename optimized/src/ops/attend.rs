//! Sink attention of one query over window and entries (spec 2.9).

use karat_model::Config;

use crate::arith::{bf16, exp, gemm, ln, round_rows, vectorised, weighted_sums};
use crate::patches::{Fp8Q, attend_fp8, attend_split};
use crate::plan::{Attend, Numerics, Store};

/// One query: `q [H,hd]`, `keys [n,hd]` (the first `window` by position, then entries by index; scratch, may be rounded),
/// sink `[H]`. Fills `out [H,hd]`, stored, and `lse [H]`: natural log of the denominator plus max, sink included.
pub(crate) fn attend(
    rules: &Numerics,
    config: &Config,
    q: &[f32],
    keys: &mut [f32],
    window: usize,
    sink: &[f32],
    out: &mut [f32],
    lse: &mut [f32],
) {
    let hd = q.len() / sink.len();
    let scale = (hd as f64).powf(-0.5) as f32;
    match rules.attend {
        Attend::Fused { p } => fused(p, q, keys, sink, scale, out, lse),
        Attend::Parted { p, partials } => {
            let parts = keys.split_at(window * hd);
            parted(p, partials, q, &[parts.0, parts.1], sink, scale, out, lse);
        }
        Attend::SplitK(split) => attend_split(split, q, keys, sink, scale, out, lse),
        Attend::Fp8Q { splits, tile, partials } => {
            let rule = Fp8Q { splits, tile, partials, rotated: config.qk_rope_head_dim };
            attend_fp8(rule, q, keys, sink, scale, out, lse);
        }
    }
    round_rows(rules.store.rounds(), out);
}

fn fused(p: Store, q: &[f32], keys: &[f32], sink: &[f32], scale: f32, out: &mut [f32], lse: &mut [f32]) {
    let hd = q.len() / sink.len();
    let n = keys.len() / hd;
    let mut scores = vec![0.0; sink.len() * n];
    gemm(q, keys, hd, &mut scores);
    let mut dens = Vec::with_capacity(sink.len());
    for ((lse, sink), scores) in lse.iter_mut().zip(sink).zip(scores.chunks_exact_mut(n)) {
        let (den, log) = softmax(scores, scale, *sink, p.rounds());
        *lse = log;
        dens.push(den);
    }
    out.fill(0.0);
    weighted_sums(&scores, keys, hd, out);
    for (out, den) in out.chunks_exact_mut(hd).zip(dens) {
        divide(out, den);
    }
}

/// Every part of the keys as an attention of its own, its output stored; the parts are merged by their log-sum-exp, and
/// the sink is a third step: o = sum_i w_i o_i / sum_i w_i times 1 / (1 + e^(sink - lse)), w_i = e^(lse_i - max lse).
fn parted(
    p: Store,
    partials: Store,
    q: &[f32],
    parts: &[&[f32]],
    sink: &[f32],
    scale: f32,
    out: &mut [f32],
    lse: &mut [f32],
) {
    let hd = q.len() / sink.len();
    // A sink of -inf adds nothing.
    let none = vec![f32::NEG_INFINITY; sink.len()];
    let alone = |keys: &&&[f32]| {
        let (mut out, mut lse) = (vec![0.0; q.len()], vec![0.0; sink.len()]);
        fused(p, q, keys, &none, scale, &mut out, &mut lse);
        round_rows(partials.rounds(), &mut out);
        (out, lse)
    };
    let parts: Vec<(Vec<f32>, Vec<f32>)> = parts.iter().filter(|keys| !keys.is_empty()).map(|k| alone(&k)).collect();
    out.fill(0.0);
    for (h, (out, lse)) in out.chunks_exact_mut(hd).zip(lse).enumerate() {
        let top = parts.iter().fold(f32::NEG_INFINITY, |m, (_, lse)| m.max(lse[h]));
        let mut sum = 0.0;
        for (partial, lse) in &parts {
            let w = exp(lse[h] - top);
            sum += w;
            weighted_sums(&[w], &partial[h * hd..(h + 1) * hd], hd, out);
        }
        divide(out, sum);
        let merged = top + ln(sum);
        divide(out, 1.0 + exp(sink[h] - merged));
        let most = merged.max(sink[h]);
        *lse = most + ln(exp(merged - most) + exp(sink[h] - most));
    }
}

vectorised! {
    /// Scores to unnormalised probabilities, in place; the denominator (of unrounded ones) and its log with the maximum.
    fn softmax(scores: &mut [f32], scale: f32, sink: f32, rounds: bool) -> (f32, f32) {
        // The sink is not in the max.
        let mut max = f32::NEG_INFINITY;
        for s in scores.iter_mut() {
            *s *= scale;
            max = max.max(*s);
        }
        for s in scores.iter_mut() {
            *s = exp(*s - max);
        }
        let mut den = 0.0f32;
        for e in scores.iter() {
            den += e;
        }
        den += exp(sink - max);
        if rounds {
            for s in scores.iter_mut() {
                *s = bf16(*s);
            }
        }
        (den, max + ln(den))
    }
}

vectorised! {
    fn divide(x: &mut [f32], by: f32) {
        for v in x {
            *v /= by;
        }
    }
}
