//! `mma-sparse-mla`: decode attention by tensor-core tiles, split along the keys.
//!
//! Contract: the keys of a query (window by position, then entries by index) are cut into splits of whole tiles. In a
//! split the running maximum moves once a tile; exponentials are rounded to bf16 for the product with the values while
//! the denominator sums them unrounded; q, keys and values are bf16 operands, everything else is f32. A split leaves its
//! normalised partial output (f32 or bf16) and its log-sum-exp (f32); the merge is a log-sum-exp merge in f32 with the
//! sink as one more logit (spec 2.9 and section 6).

use karat_seam::{Op, Phase};

use super::{BASE, Claim, Patch, PatchOption, Risk};
use crate::arith::{bf16, exp, exp2, exp2_cubic, gemm, ln, round_rows, weighted_sums};
use crate::plan::{Attend, Exponential, SplitK, Store};

pub(super) static PATCH: Patch = Patch {
    name: "mma-sparse-mla",
    about: "decode attention by MMA tiles, split along the keys and merged by log-sum-exp",
    phases: &[Phase::Decode],
    ops: &[Op::Attend],
    risk: Risk::Low,
    claims: &[
        Claim { error: 6.7e-3, metric: "largest relative error of the output", source: "deployment notes", given: &[] },
        Claim {
            error: 2.1e-3,
            metric: "rel-L2 of the output, P in bf16",
            source: "spec section 6, measured",
            given: &[],
        },
    ],
    env_aliases: &["MMA_FLASHMLA"],
    conflicts: &["fp8-q-sparse-mla"],
    options: &[
        PatchOption { name: "splits", values: "1 to 32", default: "4" },
        PatchOption { name: "tile", values: "1 to 256 keys", default: "64" },
        PatchOption { name: "partials", values: "f32, bf16", default: "f32" },
        PatchOption { name: "scale", values: "after, folded", default: "after" },
        PatchOption { name: "p", values: "bf16, f32", default: "bf16" },
        PatchOption { name: "exp", values: "exp2, exp, cubic", default: "exp2" },
    ],
    apply: |options, rules| {
        rules.attend = Attend::SplitK(SplitK {
            splits: options.number("splits", 1..=32)?,
            tile: options.number("tile", 1..=256)?,
            partials: options.word("partials", &[("f32", Store::F32), ("bf16", Store::Bf16)])?,
            fold_scale: options.word("scale", &[("after", false), ("folded", true)])?,
            p: options.word("p", &[("bf16", Store::Bf16), ("f32", Store::F32)])?,
            exp: options.word("exp", &EXPONENTIALS)?,
        });
        Ok(())
    },
    ..BASE
};

const EXPONENTIALS: [(&str, Exponential); 3] =
    [("exp2", Exponential::Exp2), ("exp", Exponential::Exp), ("cubic", Exponential::Cubic)];

/// Scores in the exponent's own base: natural, or base 2 with log2(e) in the scale.
#[derive(Clone, Copy)]
struct Base {
    /// Applied to q.k after the product.
    after: f32,
    exp: fn(f32) -> f32,
    /// Natural units in one unit of a score.
    unit: f32,
}

impl SplitK {
    fn base(self, scale: f32) -> Base {
        let (exp, unit): (fn(f32) -> f32, f32) = match self.exp {
            Exponential::Exp => (exp, 1.0),
            Exponential::Exp2 => (exp2, std::f32::consts::LN_2),
            Exponential::Cubic => (exp2_cubic, std::f32::consts::LN_2),
        };
        Base { after: if self.fold_scale { 1.0 } else { self.in_base(scale) }, exp, unit }
    }

    /// A factor of the scores in the exponential's base.
    fn in_base(self, scale: f32) -> f32 {
        if self.exp == Exponential::Exp { scale } else { scale * std::f32::consts::LOG2_E }
    }

    /// q as the kernel's operand: bf16, with the scale folded in where the rule says so.
    fn operand(self, q: f32, scale: f32) -> f32 {
        bf16(if self.fold_scale { q * self.in_base(scale) } else { q })
    }
}

/// All heads of one query: `q [H,hd]`, `keys [n,hd]`, `sink [H]`. Fills `out [H,hd]` unrounded and `lse [H]`, the
/// natural log of the denominator with the sink.
pub(crate) fn attend_split(
    rule: SplitK,
    q: &[f32],
    keys: &mut [f32],
    sink: &[f32],
    scale: f32,
    out: &mut [f32],
    lse: &mut [f32],
) {
    let hd = q.len() / sink.len();
    let n = keys.len() / hd;
    let q: Vec<f32> = q.iter().map(|&v| rule.operand(v, scale)).collect();
    round_rows(true, keys);
    let mut products = vec![0.0; sink.len() * n];
    gemm(&q, keys, hd, &mut products);
    let base = rule.base(scale);
    let split_len = n.div_ceil(rule.tile).div_ceil(rule.splits).max(1) * rule.tile;
    for (h, ((out, lse), products)) in out.chunks_exact_mut(hd).zip(lse).zip(products.chunks_exact_mut(n)).enumerate() {
        for s in products.iter_mut() {
            *s *= base.after;
        }
        let partials: Vec<(Vec<f32>, f32)> = products
            .chunks(split_len)
            .zip(keys.chunks(split_len * hd))
            .map(|(scores, keys)| split(scores, keys, rule, base))
            .collect();
        let top = partials.iter().fold(f32::NEG_INFINITY, |m, (_, lse)| m.max(*lse));
        let mut den = exp(sink[h] - top * base.unit);
        out.fill(0.0);
        for (partial, lse) in &partials {
            let w = (base.exp)(lse - top);
            den += w;
            weighted_sums(&[w], partial, hd, out);
        }
        for v in out.iter_mut() {
            *v /= den;
        }
        *lse = top * base.unit + ln(den);
    }
}

/// Online softmax over the tiles of one split: the normalised output and the log-sum-exp in units of a score.
fn split(scores: &[f32], keys: &[f32], rule: SplitK, base: Base) -> (Vec<f32>, f32) {
    let hd = keys.len() / scores.len();
    let mut acc = vec![0.0f32; hd];
    let (mut top, mut den) = (f32::NEG_INFINITY, 0.0f32);
    for (scores, keys) in scores.chunks(rule.tile).zip(keys.chunks(rule.tile * hd)) {
        let new = scores.iter().fold(top, |m, &s| m.max(s));
        let keep = if top == f32::NEG_INFINITY { 0.0 } else { (base.exp)(top - new) };
        for v in &mut acc {
            *v *= keep;
        }
        den *= keep;
        let p: Vec<f32> = scores.iter().map(|s| (base.exp)(s - new)).collect();
        den += p.iter().sum::<f32>();
        let p: Vec<f32> = if rule.p.rounds() { p.into_iter().map(bf16).collect() } else { p };
        weighted_sums(&p, keys, hd, &mut acc);
        top = new;
    }
    for v in &mut acc {
        *v /= den;
    }
    round_rows(rule.partials.rounds(), &mut acc);
    (acc, top + ln(den) / base.unit)
}
