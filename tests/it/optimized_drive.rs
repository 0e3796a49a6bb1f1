//! Drives the optimized path on the oracle's tiny checkpoint for the tests beside it.

use std::sync::{Arc, OnceLock};

use karat_model::Checkpoint;
use karat_optimized::{History, Optimized, Plan, Stock};
use karat_seam::{Lane, NoTaps, Path, Phase, Recorder, Requests, Sequence, Span, SpanKind, Tensor, Turn, Visitor};
use karat_tests::tiny_v4_files;

/// The oracle's tiny checkpoint.
pub(crate) fn tiny() -> Arc<Checkpoint> {
    static TINY: OnceLock<Arc<Checkpoint>> = OnceLock::new();
    let open = || Arc::new(Checkpoint::from_memory("tiny-v4", tiny_v4_files()).unwrap());
    Arc::clone(TINY.get_or_init(open))
}

/// One prompt with the ids of an oracle tensor.
pub(crate) fn prompt_of(ids: &Tensor) -> Requests {
    let ids: Vec<u32> = ids.as_i64("input_ids").unwrap().iter().map(|&i| i as u32).collect();
    Requests { seqs: vec![Sequence::prompt("a", ids)] }
}

/// A path on the tiny checkpoint with two threads.
pub(crate) fn optimized(stock: Stock, patches: &[&str], history: History, requests: Requests) -> Optimized {
    let patches = patches.iter().map(ToString::to_string).collect();
    Optimized::new(tiny(), requests, Plan { stock, patches, history }, 2).unwrap()
}

/// Pseudo-random ids under 512 that no two lengths share beyond their common start.
pub(crate) fn ids(n: usize, seed: u64) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u32 % 512
    };
    (0..n).map(|_| next()).collect()
}

/// A sequence of alternating prompt and generated spans; `cuts` are the spans' lengths, the first a prompt.
pub(crate) fn turns(id: &str, ids: Vec<u32>, cuts: &[usize]) -> Sequence {
    let (mut spans, mut at) = (Vec::new(), 0);
    for (i, len) in cuts.iter().enumerate() {
        let kind = if i % 2 == 0 { SpanKind::Prompt } else { SpanKind::Generated };
        spans.push(Span { kind, start: at, end: at + *len as u32 });
        at += *len as u32;
    }
    assert_eq!(at as usize, ids.len());
    let turns = spans.chunks(2).map(|s| Turn { spans: s.to_vec(), interrupted: false }).collect();
    Sequence { id: id.into(), ids: ids.into(), turns }
}

/// All layers and the head; logits.
pub(crate) fn run(path: &Optimized, see: &mut dyn Visitor) -> Tensor {
    let mut x = path.embed(&mut NoTaps).unwrap();
    for l in 0..path.blocks().layers {
        let mut lanes = [Lane::new(&x, &mut *see)];
        path.layer(l).unwrap().run(&mut lanes).unwrap();
        x = lanes[0].out.take().unwrap().streams;
    }
    path.head(&mut [Lane::new(&x, see)]).unwrap().remove(0)
}

/// Everything that a run shows: all taps, all state, logits.
pub(crate) fn record(path: &Optimized) -> Recorder {
    let mut recorder = Recorder::all();
    run(path, &mut recorder);
    recorder
}

/// How many rows of the recorder's logits are in a phase.
pub(crate) fn rows_in(path: &Optimized, phase: Phase) -> usize {
    path.requests().rows().into_iter().filter(|r| path.phase_of(*r) == phase).count()
}

/// Panics with the first tap that differs between two recordings.
pub(crate) fn assert_same(what: &str, a: &Recorder, b: &Recorder) {
    assert_eq!(a.taps.keys().collect::<Vec<_>>(), b.taps.keys().collect::<Vec<_>>(), "{what}");
    for ((site, seq), x) in &a.taps {
        let y = &b.taps[&(*site, *seq)];
        assert_eq!(x.rows, y.rows, "{what}: rows of {site}, sequence {seq}");
        if x.tensor != y.tensor {
            let row = (0..x.tensor.rows()).find(|r| row_of(&x.tensor, *r) != row_of(&y.tensor, *r));
            panic!("{what}: {site}, sequence {seq} differs first at row {row:?}");
        }
    }
}

/// One row of a tensor as bits.
pub(crate) fn row_of(t: &Tensor, row: usize) -> Vec<u64> {
    let w = t.width();
    let range = row * w..(row + 1) * w;
    match &t.data {
        karat_seam::Data::F32(v) => v[range].iter().map(|x| u64::from(x.to_bits())).collect(),
        karat_seam::Data::F64(v) => v[range].iter().map(|x| x.to_bits()).collect(),
        karat_seam::Data::I64(v) => v[range].iter().map(|x| *x as u64).collect(),
        karat_seam::Data::U8(v) => v[range].iter().map(|x| u64::from(*x)).collect(),
    }
}
