//! Stock profiles and their quantisers against the oracle: op vectors bit for bit, logits of both modes.

use std::sync::Arc;

use karat_model::Checkpoint;
use karat_model::config::LayerKind;
use karat_optimized::{History, Optimized, Plan, Rope, Stock, Store, quant};
use karat_seam::{Op, Path, Recorder, Requests, RowId, Sequence, Site, Tap, Tensor};
use karat_tests::{long_rows, oracle, rel_max, tiny_v4_files};

use crate::optimized_drive::{optimized, prompt_of, run, tiny};

fn bits(v: &[f32]) -> Vec<u32> {
    // A zero's sign is not part of a quantised value: Q4's code 8 is written as +0 by the official table.
    v.iter().map(|x| (x + 0.0).to_bits()).collect()
}

#[test]
fn quantisers_equal_the_op_vectors_bit_for_bit() {
    let ops = oracle("ops");
    let get = |name: &str| ops[name].as_f32(name).unwrap().to_vec();
    for (name, quantise) in [
        ("q8_128.out", (|x: &mut [f32]| quant::q8(x, 128, 1e-4)) as fn(&mut [f32])),
        ("q8_64.out", |x| quant::q8(x, 64, 1e-4)),
        ("q4.out", |x| quant::q4(x, 32)),
    ] {
        let mut x = get("q8.in");
        quantise(&mut x);
        assert_eq!(bits(&x), bits(&get(name)), "{name}");
    }
    let (mut x, want) = (get("hadamard.in"), get("hadamard.out"));
    x.chunks_exact_mut(128).for_each(quant::hadamard);
    let worst = rel_max(&x, &want);
    assert!(worst < 3e-7, "hadamard {worst:e}");
}

#[test]
fn rope_equals_the_op_vectors() {
    let ops = oracle("ops");
    let config = tiny();
    let kinds = [("0", LayerKind::Sliding), ("1", LayerKind::Csa { ratio: 4 })];
    for (base, kind) in kinds {
        let get = |name: &str| ops[&format!("rope.{name}{base}")].as_f32(name).unwrap();
        let rope = Rope::of(config.config(), kind);
        assert_eq!(rope.inv_freq(), get("inv_freq"), "inverse frequencies, base {base}");
        let input = ops["rope.in"].as_f32("rope.in").unwrap();
        for (name, inverse) in [("out", false), ("inv", true)] {
            let mut x = input.to_vec();
            for (row, position) in x.chunks_exact_mut(2 * 96).zip(ops["rope.pos"].as_i64("rope.pos").unwrap()) {
                let turn = rope.at(*position as u32);
                row.chunks_exact_mut(96).for_each(|head| turn.apply(Store::F32, head, inverse));
            }
            let worst = rel_max(&x, get(name));
            assert!(worst < 1e-6, "rope.{name}{base}: {worst:e}");
        }
    }
}

#[test]
fn hyper_connection_coefficients_equal_the_op_vectors() {
    let ops = oracle("ops");
    let rows: Vec<RowId> = (0..5).map(|p| RowId::new(0, p)).collect();
    for (iterations, comb) in [("20", "hc.comb"), ("1", "hc.comb_iters1")] {
        let mut files = tiny_v4_files();
        let config = String::from_utf8(files["config.json"].to_vec()).unwrap();
        let config = config.replace("\"hc_sinkhorn_iters\": 20", &format!("\"hc_sinkhorn_iters\": {iterations}"));
        files.insert("config.json".into(), config.into_bytes().into());
        let checkpoint = Arc::new(Checkpoint::from_memory("tiny", files).unwrap());
        let requests = Requests { seqs: vec![Sequence::prompt("a", vec![1; 5])] };
        let plan = Plan { stock: Stock::None, patches: vec![], history: History::Cold };
        let path = Optimized::new(checkpoint, requests, plan, 1).unwrap();
        let layer = path.layer(0).unwrap();
        let out = layer.op(Op::HcAttnPre, &[(Tap::Out, ops["hc.in"].clone())], &rows).unwrap();
        for (tap, want) in [(Tap::HcAttnPre, "hc.pre"), (Tap::HcAttnPost, "hc.post"), (Tap::HcAttnComb, comb)] {
            let got = out.iter().find(|(t, _)| *t == tap).unwrap().1.as_f32(want).unwrap();
            let worst = rel_max(got, ops[want].as_f32(want).unwrap());
            assert!(worst < 1e-6, "{want}: {worst:e}");
        }
    }
}

#[test]
fn the_control_equals_the_oracle() {
    for name in ["short", "long"] {
        let oracle = oracle(name);
        let mut recorder = Recorder::all();
        let logits = run(&optimized(Stock::None, &[], History::Cold, prompt_of(&oracle["input_ids"])), &mut recorder);
        let worst = rel_max(logits.as_f32("logits").unwrap(), oracle["logits"].as_f32("logits").unwrap());
        println!("{name}: stock none, logits rel_max {worst:e}");
        assert!(worst < 2e-5, "{name}: {worst:e}");
        let kept = long_rows();
        for (key, want) in &oracle {
            let Some(site) = key.strip_prefix("port.").map(|k| k.trim_end_matches("@rows")) else { continue };
            let Ok(site) = site.parse::<Site>() else { continue };
            let Some(got) = recorder.get(site, 0) else {
                assert!(want.rows() == 0, "{key} was not seen");
                continue;
            };
            if site.tap == Tap::FfnIdx {
                assert_same_experts(key, &got.tensor, want);
                continue;
            }
            if site.tap == Tap::AttnSelected {
                assert_eq!(got.tensor.as_u8(key).unwrap(), want.as_u8(key).unwrap(), "{key}");
                continue;
            }
            if site.tap == Tap::FfnWt {
                // Slots are an unordered set: weights are compared expert by expert.
                let idx = &recorder.get(Site { tap: Tap::FfnIdx, ..site }, 0).unwrap().tensor;
                let want_idx = &oracle[&key.replace("ffn.wt", "ffn.idx")];
                let (got, want) = (by_expert(key, idx, &got.tensor), by_expert(key, want_idx, want));
                let worst = rel_max(&got, &want);
                assert!(worst < 1e-5, "{name} {key}: {worst:e}");
                continue;
            }
            let (mut values, width) = (got.tensor.as_f32(key).unwrap().to_vec(), got.tensor.width());
            if key.ends_with("@rows") {
                let rows = kept.iter().filter(|r| **r < got.tensor.rows());
                values = rows.flat_map(|r| values[r * width..(r + 1) * width].to_vec()).collect();
            }
            let worst = rel_max(&values, want.as_f32(key).unwrap());
            assert!(worst < 1e-5, "{name} {key}: {worst:e}");
        }
    }
}

/// Routing weights of each row in ascending order of expert.
fn by_expert(key: &str, idx: &Tensor, wt: &Tensor) -> Vec<f32> {
    let (idx, k) = (idx.as_i64(key).unwrap(), wt.width());
    let rows = idx.chunks_exact(k).zip(wt.as_f32(key).unwrap().chunks_exact(k));
    rows.flat_map(|(idx, wt)| {
        let mut pairs: Vec<(i64, f32)> = idx.iter().copied().zip(wt.iter().copied()).collect();
        pairs.sort_by_key(|(e, _)| *e);
        pairs.into_iter().map(|(_, w)| w)
    })
    .collect()
}

fn assert_same_experts(key: &str, got: &Tensor, want: &Tensor) {
    let sorted = |t: &Tensor| -> Vec<Vec<i64>> {
        let rows = t.as_i64(key).unwrap().chunks_exact(t.width());
        rows.map(|r| {
            let mut r = r.to_vec();
            r.sort_unstable();
            r
        })
        .collect()
    };
    assert_eq!(sorted(got), sorted(want), "{key}");
}

#[test]
fn official_reaches_the_oracles_quantised_logits() {
    for name in ["short", "long"] {
        let oracle = oracle(name);
        let logits = run(
            &optimized(Stock::Official, &[], History::Cold, prompt_of(&oracle["input_ids"])),
            &mut Recorder::new(|_| false),
        );
        let (got, want) = (logits.as_f32("logits").unwrap(), oracle["qat.logits"].as_f32("qat").unwrap());
        let worst = rel_max(got, want);
        let square = |v: f64| v * v;
        let d: f64 = got.iter().zip(want).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
        let l2 = (d / want.iter().map(|b| square(f64::from(*b))).sum::<f64>()).sqrt();
        let argmax = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]));
        let rows = logits.rows();
        let agree = got.chunks(512).zip(want.chunks(512)).filter(|(a, b)| argmax(a) == argmax(b)).count();
        println!("{name}: official against qat.logits: rel_max {worst:.2e}, rel-L2 {l2:.2e}, argmax {agree}/{rows}");
        if name == "short" {
            assert!(worst < 5e-3, "{worst:e}");
        }
    }
}
