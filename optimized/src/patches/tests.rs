use std::collections::BTreeSet;

use super::*;
use crate::History;
use crate::arith::bf16;
use crate::plan::{Exponential, Plan, SplitK, Stock, Store};

#[test]
fn descriptors_are_whole() {
    let names: BTreeSet<&str> = patches().iter().map(|p| p.name).collect();
    assert_eq!(names.len(), patches().len());
    for patch in patches() {
        assert!(!patch.phases.is_empty() && !patch.ops.is_empty() && !patch.claims.is_empty(), "{}", patch.name);
        assert!(!patch.env_aliases.is_empty() && !patch.about.is_empty(), "{}", patch.name);
        assert!(patch.claims.iter().all(|c| c.error >= 0.0 && !c.source.is_empty()));
        assert!(patch.conflicts.iter().all(|c| names.contains(c) && *c != patch.name), "{}", patch.name);
        assert!(Request::parse_all(&[patch.name.to_string()]).is_ok());
    }
}

/// Values in -1..1 that are bf16 numbers.
fn values(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            bf16((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
        })
        .collect()
}

/// Softmax attention with a sink in f64 (spec 2.9), and its log-sum-exp.
fn exact(q: &[f32], keys: &[f32], sink: f32, scale: f64) -> (Vec<f64>, f64) {
    let hd = q.len();
    let keys: Vec<&[f32]> = keys.chunks(hd).collect();
    let dot = |k: &[f32]| q.iter().zip(k).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let e: Vec<f64> = keys.iter().map(|k| (dot(k) * scale).exp()).collect();
    let den = e.iter().sum::<f64>() + f64::from(sink).exp();
    let out = (0..hd).map(|d| e.iter().zip(&keys).map(|(e, k)| e / den * f64::from(k[d])).sum()).collect();
    (out, den.ln())
}

fn rel_l2(got: &[f32], want: &[f64]) -> f64 {
    let d: f64 = got.iter().zip(want).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum();
    (d / want.iter().map(|b| b * b).sum::<f64>()).sqrt()
}

/// bf16 operands are exact here, so what is left is P in bf16 (and the options' own roundings): a part of 1.7e-3, never
/// nothing, whatever the splits.
#[test]
fn split_attention_costs_one_bf16_rounding_of_p() {
    let (heads, hd, scale) = (2, 64, 0.125f32);
    for n in [1, 5, 64, 65, 128, 300] {
        let (q, keys, sink) = (values(heads * hd, 1), values(n * hd, 2), [0.3f32, -20.0]);
        for splits in [1, 3, 4, 32] {
            for (exp, fold_scale, partials, most) in [
                (Exponential::Exp2, false, Store::F32, 2.2e-3),
                (Exponential::Exp, false, Store::F32, 2.2e-3),
                (Exponential::Cubic, false, Store::F32, 2.2e-3),
                (Exponential::Exp2, true, Store::F32, 4e-3),
                (Exponential::Exp2, false, Store::Bf16, 3.5e-3),
            ] {
                let rule = SplitK { splits, tile: 16, partials, fold_scale, p: Store::Bf16, exp };
                let (mut out, mut lse) = (vec![0.0; heads * hd], vec![0.0; heads]);
                attend_split(rule, &q, &mut keys.clone(), &sink, scale, &mut out, &mut lse);
                for h in 0..heads {
                    let (want, want_lse) = exact(&q[h * hd..(h + 1) * hd], &keys, sink[h], f64::from(scale));
                    let worst = rel_l2(&out[h * hd..(h + 1) * hd], &want);
                    assert!(worst < most, "{n} keys, {rule:?}: {worst:e}");
                    let rounds = n > 1 || partials == Store::Bf16 && rule.splits > 0 && sink[h] > -10.0;
                    assert!(!rounds || n == 1 || worst > 1e-5, "{n} keys, {rule:?}: {worst:e} rounds nothing");
                    let lse_error = (f64::from(lse[h]) - want_lse).abs();
                    let lse_most = match exp {
                        _ if fold_scale => 2e-2,
                        Exponential::Cubic => 2e-4,
                        _ => 2e-6,
                    };
                    assert!(lse_error < lse_most * want_lse.abs().max(1.0), "{n} keys: lse off by {lse_error:e}");
                }
            }
        }
    }
}

#[test]
fn folded_scores_are_the_dequantised_ones() {
    let (heads, di, n) = (16, 64, 9);
    let codes = |n, seed| values(n, seed).iter().map(|v| crate::arith::e4m3(v * 448.0)).collect::<Vec<f32>>();
    let (q, keys) = (codes(heads * di, 3), codes(n * di, 4));
    let (qs, ks, w) = (values(heads, 5), values(n, 6), values(heads, 7));
    let (qs, ks): (Vec<f32>, Vec<f32>) =
        (qs.iter().map(|s| s.abs() + 0.1).collect(), ks.iter().map(|s| s.abs() + 0.1).collect());
    let mut scores = [vec![0.0; n], vec![0.0; n]];
    let mut products = vec![0.0; heads * n];
    crate::arith::gemm(&q, &keys, di, &mut products);
    folded_scores(&products, &w, &qs, &ks, false, &mut scores[0]);
    folded_scores(&products, &w, &qs, &ks, true, &mut scores[1]);
    for t in 0..n {
        let (mut want, mut size) = (0f64, 0f64);
        for h in 0..heads {
            let dot: f64 = (0..di).map(|d| f64::from(q[h * di + d]) * f64::from(keys[t * di + d])).sum();
            let term = dot.max(0.0) * f64::from(w[h]) * f64::from(qs[h]) * f64::from(ks[t]);
            want += term;
            size += term.abs();
        }
        assert!((f64::from(scores[0][t]) - want).abs() < size * 1e-6);
        let rounded = (f64::from(scores[1][t]) - want).abs();
        assert!(rounded < size * 2f64.powi(-8) && rounded > size * 1e-6, "{rounded:e} of {size:e}");
    }
}

/// FP8 queries, keys and probabilities: an error of a few per cent, the unquantised denominator's log within that.
#[test]
fn fp8_attention_costs_fp8_roundings() {
    let (heads, hd, rotated, scale) = (2, 96, 32, 0.1f32);
    for n in [1, 63, 64, 200] {
        let (q, keys, sink) = (values(heads * hd, 1), values(n * hd, 2), [0.3f32, -20.0]);
        let mut alone = Vec::new();
        for partials in [Store::F32, Store::Bf16] {
            let rule = Fp8Q { splits: 10, tile: 16, partials, rotated };
            let (mut out, mut lse) = (vec![0.0; heads * hd], vec![0.0; heads]);
            attend_fp8(rule, &q, &keys, &sink, scale, &mut out, &mut lse);
            for h in 0..heads {
                let (want, want_lse) = exact(&q[h * hd..(h + 1) * hd], &keys, sink[h], f64::from(scale));
                let worst = rel_l2(&out[h * hd..(h + 1) * hd], &want);
                assert!((5e-3..6e-2).contains(&worst), "{n} keys, {partials:?}: {worst:e}");
                assert!((f64::from(lse[h]) - want_lse).abs() < 5e-2, "{n} keys");
            }
            alone.push(out);
        }
        assert_ne!(alone[0], alone[1]);
    }
}

#[test]
fn pages_change_no_bit() {
    let (heads, di, n) = (3, 32, 200);
    let (q, keys) = (values(heads * di, 8), crate::arith::Panels::pack(&values(n * di, 9), di));
    for visible in [1, 64, 65, 200] {
        let (mut whole, mut paged) = (vec![0.0; heads * visible], vec![0.0; heads * visible]);
        crate::arith::product_here(&q, &keys, 0..visible, &mut whole);
        paged_products(64, &q, &keys, visible, &mut paged);
        assert_eq!(whole, paged);
    }
}

#[test]
fn a_claim_about_an_option_counts_where_the_option_is_in_force() {
    let claimed = |request: &str| {
        let name = request.split(':').next().unwrap();
        patches().iter().find(|p| p.name == name).unwrap().claimed_error(request)
    };
    assert_eq!(claimed("nvfp4-moe"), 2.4e-3, "bf16 activations are the default");
    assert_eq!(claimed("nvfp4-moe:act=fp4"), 1.3e-1);
    assert_eq!(claimed("mxfp4-moe"), 2.4e-3);
    assert_eq!(claimed("mxfp4-moe:act=mxfp8"), 3.6e-2);
    assert_eq!(claimed("mxfp4-moe:act=fp8"), 3.6e-2);
    assert_eq!(
        (claimed("bf16-gemm"), claimed("bf16-gemm:out=f32")),
        (1.7e-3, 0.0),
        "f32 rows of bf16 values lose nothing"
    );
    assert_eq!(claimed("mma-sparse-mla:splits=2"), 6.7e-3, "no claim of this patch is about an option");
    assert_eq!(claimed("exact-split-mhc"), 1e-6);
    assert_eq!(claimed("exact-split-mhc:terms=1"), 1.7e-3, "one term is bf16-mhc");
    assert_eq!(claimed("tp-allreduce:ranks=8"), 4e-3);
    assert_eq!(claimed("tp-allreduce:ranks=8:sum=f32"), 1e-6, "both options count");
    // Every option that a claim is about is one of its patch's, with values that the patch takes; no claim is idle.
    for patch in patches() {
        for claim in patch.claims {
            let mut request = patch.name.to_string();
            for (name, values) in claim.given {
                assert!(patch.options.iter().any(|o| o.name == *name), "{}: {name}", patch.name);
                assert!(!values.is_empty() && !claim.metric.contains('='), "{}: {}", patch.name, claim.metric);
                request.push_str(&format!(":{name}={}", values[0]));
                for value in *values {
                    let asked = vec![format!("{}:{name}={value}", patch.name)];
                    let plan = Plan { stock: Stock::None, patches: asked, history: History::Cold };
                    assert!(plan.check().is_ok(), "{}: {name}={value}", patch.name);
                }
            }
            assert!(patch.claimed_error(&request) >= claim.error, "{}", patch.name);
        }
    }
}
