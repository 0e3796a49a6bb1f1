//! The compressor's pooling in f64 (spec 2.7, ratio 4), with exact rows and with rows that were carried in bf16.

use karat_seam::{Op, Tap};

use super::control::{Control, DECODED, plain};
use super::rounding::{bf16, exact, rel_l2};

const RATIO: usize = 4;
const HD: usize = 96;

/// rel-L2 that the patch adds to the entries that decode steps complete.
pub(super) fn measured(c: &Control, asked: &str) -> f64 {
    let [a, b] = [&[][..], &[asked][..]].map(|patches| {
        let entries = c.op_with(patches, 1, Op::CompressPool, Tap::AttnCkv);
        exact(&entries.as_f32("ckv").unwrap()[first() * HD..])
    });
    rel_l2(&a, &b)
}

/// The first entry whose rows were all decoded, the overlap rows too.
fn first() -> usize {
    DECODED.div_ceil(RATIO) + 1
}

/// The same from rows as the state holds them: all but the newest row of a window were carried, the overlap rows too.
pub(super) fn predicted(c: &Control) -> f64 {
    let ape = exact(&plain("layers.1.attn.compressor.ape"));
    let (rows, scores) = (exact(&c.values(1, Tap::AttnKvp)), exact(&c.values(1, Tap::AttnGateScore)));
    let width = 2 * HD;
    let entries = |carried: bool| -> Vec<f64> {
        let store = |v: f64| if carried { bf16(v) } else { v };
        let mut out = Vec::new();
        for w in first()..rows.len() / width / RATIO {
            let pooled: Vec<f64> = (0..HD).map(|d| pool(&rows, &scores, &ape, w, d, &store)).collect();
            let rms = (pooled.iter().map(|v| v * v).sum::<f64>() / HD as f64).sqrt();
            out.extend(pooled.iter().map(|v| v / rms));
        }
        out
    };
    rel_l2(&entries(false), &entries(true))
}

/// Channel `d` of entry `w`: Ca rows of window w - 1, Cb rows of window w, weighted by the softmax of their scores.
fn pool(rows: &[f64], scores: &[f64], ape: &[f64], w: usize, d: usize, store: &dyn Fn(f64) -> f64) -> f64 {
    let width = 2 * HD;
    let slots = (0..2 * RATIO).map(|i| {
        let (overlap, slot) = (i < RATIO, i % RATIO);
        let column = if overlap { d } else { HD + d };
        let row = if overlap { (w - 1) * RATIO + slot } else { w * RATIO + slot };
        let (kvp, score) = (rows[row * width + column], scores[row * width + column]);
        let ape = ape[slot * width + column];
        // A score waits without the position term; the overlap rows keep it with the term.
        let newest = slot == RATIO - 1;
        let (kvp, waited) = if newest { (kvp, score) } else { (store(kvp), store(score)) };
        if overlap { (store(kvp), store(waited + ape)) } else { (kvp, waited + ape) }
    });
    let slots: Vec<(f64, f64)> = slots.collect();
    let max = slots.iter().fold(f64::MIN, |m, s| m.max(s.1));
    let den: f64 = slots.iter().map(|s| (s.1 - max).exp()).sum();
    slots.iter().map(|s| (s.1 - max).exp() * s.0).sum::<f64>() / den
}
