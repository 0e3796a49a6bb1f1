//! Invariants I1 and I2 of spec section 3 inside golden, bit for bit: logits at every position and the carried state
//! do not depend on chunking, threads, or on what else is in the batch.

use std::sync::Arc;

use karat_model::Checkpoint;
use karat_reference::{Golden, Mode, Session};
use karat_seam::{NoTaps, Recorder, Requests, Sequence, Site, Tensor};
use karat_tests::{bits, cold_run, tiny_v4_files};
use proptest::prelude::*;

fn tiny() -> Arc<Checkpoint> {
    Arc::new(Checkpoint::from_memory("tiny-v4", tiny_v4_files()).unwrap())
}

/// Ids that differ from prompt to prompt and hit every hash row sooner or later.
fn ids(n: usize, seed: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * 167 + seed * 59 + i * i) % 512) as u32).collect()
}

fn golden(ids: &[u32], threads: usize) -> Golden {
    let requests = Requests { seqs: vec![Sequence::prompt("a", ids)] };
    Golden::new(tiny(), requests, Mode::F32, threads).unwrap()
}

/// Logits bits of all positions and the state, by chunks of these sizes.
fn chunked(golden: &Golden, ids: &[u32], chunks: impl IntoIterator<Item = usize>) -> (Vec<u32>, Vec<(Site, Tensor)>) {
    let mut session = Session::new(golden).unwrap();
    let mut logits = Vec::new();
    for chunk in chunks {
        let at = session.len();
        logits.extend(bits(&session.extend(&ids[at..at + chunk], &mut NoTaps).unwrap()));
    }
    assert_eq!(session.len(), ids.len());
    (logits, session.state().unwrap())
}

/// Cold run through the seam: logits bits and the state.
fn cold(golden: &Golden) -> (Vec<u32>, Vec<(Site, Tensor)>) {
    let mut seen = Recorder::new(|site| site.tap.is_state());
    let (_, logits) = cold_run(golden, &mut seen).unwrap();
    (bits(&logits), seen.taps.into_iter().map(|((site, _), recorded)| (site, recorded.tensor)).collect())
}

fn split(n: usize, size: usize) -> Vec<usize> {
    (0..n).step_by(size).map(|at| size.min(n - at)).collect()
}

#[test]
fn chunking_changes_no_bit() {
    // 4 * topk +- 1 = 63, 65: where selection begins to leave entries out.
    for n in [1, 3, 4, 5, 63, 64, 65, 127, 128, 129] {
        let ids = ids(n, n);
        let golden = golden(&ids, 2);
        let want = cold(&golden);
        // One chunk, and chunk ends inside and at the end of a group of 4; token by token where that is cheap.
        for size in [n, 2, 3, 4, 50, 127, 128] {
            assert_eq!(chunked(&golden, &ids, split(n, size)), want, "{n} ids in chunks of {size}");
        }
        assert_eq!(chunked(&golden, &ids, split(n, 1)), want, "{n} ids one by one");
    }
}

/// A cold run takes a long sequence through attention in pieces of 2048 rows.
#[test]
fn long_sequences_keep_the_bits() {
    let ids = ids(2100, 9);
    let golden = golden(&ids, 2);
    assert_eq!(chunked(&golden, &ids, split(2100, 701)), cold(&golden));
}

#[test]
fn threads_change_no_bit() {
    let ids = ids(333, 3);
    let want = cold(&golden(&ids, 1));
    for threads in [2, 4] {
        assert_eq!(cold(&golden(&ids, threads)), want, "{threads} threads");
    }
}

#[test]
fn other_sequences_change_no_bit() {
    let model = tiny();
    let all: Vec<Vec<u32>> = [5, 140, 1, 77].into_iter().enumerate().map(|(i, n)| ids(n, i)).collect();
    let seqs = all.iter().enumerate().map(|(i, ids)| Sequence::prompt(format!("{i}"), ids.as_slice())).collect();
    let batch = Golden::new(model, Requests { seqs }, Mode::F32, 2).unwrap();
    let together = bits(&cold_run(&batch, &mut NoTaps).unwrap().1);
    let alone: Vec<u32> = all.iter().flat_map(|ids| cold(&golden(ids, 2)).0).collect();
    assert_eq!(together, alone);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_chunking_gives_the_same_bits(sizes in prop::collection::vec(1usize..40, 1..12), seed in 0usize..1000) {
        let n = sizes.iter().sum();
        let ids = ids(n, seed);
        let golden = golden(&ids, 1 + seed % 2);
        prop_assert_eq!(chunked(&golden, &ids, sizes), cold(&golden));
    }
}
