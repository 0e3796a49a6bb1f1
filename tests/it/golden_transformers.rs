//! The golden model is the architecture: transformers' DeepseekV4ForCausalLM, an implementation by other people on other
//! matrix products, gives `reference/`'s logits on its dequantised weights.
//!
//! Fixture: `xtask/oracle/transformers_golden.py` (torch 2.15, transformers 5.24, CPU, float32, eager, no cache) over an
//! 892-token conversation with tools, so the indexer has to choose (223 entries, top 32), HCA has six whole windows and
//! a part, and the window slides. transformers computes this model only where it is told so: schedule and hash layers
//! spelled out (spec 8, D16), both rope bases with attention factor 1, float32 (D1, D2, D5, D6, D8, D11, D13 are its
//! bf16 roundings). It neither quantises keys nor rotates the indexer's operands (D3, D4, D7, D14), as golden mode.

use std::sync::Arc;

use karat_model::Checkpoint;
use karat_reference::{Golden, Mode};
use karat_seam::{NoTaps, Requests, Sequence};
use karat_tests::{cold_run, read_safetensors, rel_max, unpack};

/// Largest difference over the largest logit (spec 7).
const TOLERANCE: f64 = 2e-5;

#[test]
fn golden_gives_the_logits_of_transformers() {
    let want = read_safetensors(&unpack("golden/transformers.safetensors"));
    let ints = |name: &str| want[name].as_i64(name).unwrap();
    let floats = |name: &str| want[name].as_f32(name).unwrap();
    let ids: Vec<u32> = ints("ids").iter().map(|&v| v as u32).collect();
    let checkpoint = Arc::new(Checkpoint::from_memory("golden", karat_golden::files()).unwrap());
    let requests = Requests { seqs: vec![Sequence::prompt("a", ids.clone())] };
    let golden = Golden::new(checkpoint, requests, Mode::F32, 2).unwrap();
    let (_, logits) = cold_run(&golden, &mut NoTaps).unwrap();
    let width = logits.width();
    let all = logits.as_f32("logits").unwrap();
    let row = |r: usize| &all[r * width..(r + 1) * width];

    let rows: Vec<usize> = ints("rows").iter().map(|&v| v as usize).collect();
    assert!(rows.len() >= 64 && rows.last() == Some(&(ids.len() - 1)));
    let got: Vec<f32> = rows.iter().flat_map(|&r| row(r).iter().copied()).collect();
    let found = rel_max(&got, floats("logits"));
    println!("logits: {found:.2e} over {} rows", rows.len());
    assert!(found <= TOLERANCE, "logits: {found:e}");

    // Of the rows that the fixture doesn't keep whole: the normaliser, the best token and its lead over the next.
    let largest = floats("logits").iter().fold(0f32, |m, v| m.max(v.abs()));
    let limit = TOLERANCE * f64::from(largest);
    let mut worst = 0f64;
    for r in 0..ids.len() {
        let max = row(r).iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row(r).iter().map(|&v| (f64::from(v) - f64::from(max)).exp()).sum();
        worst = worst.max((f64::from(max) + sum.ln() - f64::from(floats("logsumexp")[r])).abs());
        let mut order: Vec<usize> = (0..width).collect();
        order.sort_by(|&a, &b| row(r)[b].total_cmp(&row(r)[a]));
        assert_eq!(order[0] as i64, ints("best")[r], "row {r}");
        let lead = f64::from(row(r)[order[0]]) - f64::from(row(r)[order[1]]);
        assert!((lead - f64::from(floats("margin")[r])).abs() <= 2.0 * limit, "row {r}: lead {lead}");
    }
    println!("logsumexp: off by {worst:.2e} at most, of {limit:.2e}");
    assert!(worst <= limit);
}
