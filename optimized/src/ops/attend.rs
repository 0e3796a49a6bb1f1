//! Sink attention of one query over window and entries (spec 2.9).

use crate::arith::{bf16, exp, gemm, ln, round_rows, weighted_sums};
use crate::patches::attend_split;
use crate::plan::{Attend, Numerics, Store};

/// One query: `q [H,hd]`, `keys [n,hd]` (window by position, then entries by index; scratch, may be rounded), sink `[H]`.
/// Fills `out [H,hd]`, stored, and `lse [H]`: natural log of the denominator plus max, sink included.
pub(crate) fn attend(rules: &Numerics, q: &[f32], keys: &mut [f32], sink: &[f32], out: &mut [f32], lse: &mut [f32]) {
    let hd = q.len() / sink.len();
    let scale = (hd as f64).powf(-0.5) as f32;
    match rules.attend {
        Attend::Fused { p } => fused(p, q, keys, sink, scale, out, lse),
        Attend::SplitK(split) => attend_split(split, q, keys, sink, scale, out, lse),
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
        for s in scores.iter_mut() {
            *s *= scale;
        }
        // The sink is not in the max.
        let max = scores.iter().fold(f32::NEG_INFINITY, |m, &s| m.max(s));
        let mut den = 0.0f32;
        for s in scores.iter_mut() {
            let e = exp(*s - max);
            den += e;
            *s = if p.rounds() { bf16(e) } else { e };
        }
        den += exp(sink - max);
        *lse = max + ln(den);
        dens.push(den);
    }
    out.fill(0.0);
    weighted_sums(&scores, keys, hd, out);
    for (out, den) in out.chunks_exact_mut(hd).zip(dens) {
        for v in out.iter_mut() {
            *v /= den;
        }
    }
}
