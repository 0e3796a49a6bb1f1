//! An audit whose patches run as somebody's kernels: plain loops in f64, which round where the contracts say.

mod naive;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_model::Checkpoint;
use karat_model::new::{Geometry, new_model};
use karat_optimized::{History, Stock};
use karat_seam::{Requests, Sequence, Span, SpanKind, Turn};

use crate::{Inputs, Job, Quiet, Subject, audit};
use naive::{Fault, Naive};

const ALL: [&str; 5] = ["exact-split-mhc", "bf16-gemm", "fp8-indexer", "mma-sparse-mla:tile=8", "mxfp4-moe"];

fn bundle(patches: &[&str], fault: Fault, layers: u16) -> crate::Result<karat_bundle::Bundle> {
    let checkpoint = Arc::new(Checkpoint::from_memory("tiny", new_model(Geometry::Mini, 3)).unwrap());
    let vocab = checkpoint.config().vocab_size as u32;
    let sequence = |id: &str, n: u32, from: u32| {
        let ids: Vec<u32> = (0..n).map(|i| (i * 167 + i * i * 31) % vocab).collect();
        let span = |kind, start, end| Span { kind, start, end };
        let spans = vec![span(SpanKind::Prompt, 0, from), span(SpanKind::Generated, from, n)];
        Sequence { id: id.to_string(), ids: ids.into(), turns: vec![Turn { spans, interrupted: false }] }
    };
    let requests = Requests { seqs: vec![sequence("a", 33, 27), sequence("b", 9, 8)] };
    let inputs = Inputs { requests, scenarios: vec!["s".into(), "s".into()], ..Inputs::default() };
    let stop = AtomicBool::new(false);
    let job = Job {
        kernels: Some(Arc::new(Naive { fault })),
        taps: None,
        layers: Some(layers),
        second_look: false,
        threads: 2,
        ..Job::new(checkpoint, inputs, &Quiet, &stop)
    };
    let patches = patches.iter().map(ToString::to_string).collect();
    audit(&job, &Subject { stock: Stock::Official, patches, history: History::Cold })
}

fn kernel_rows(bundle: &karat_bundle::Bundle) -> Vec<&karat_bundle::TapRow> {
    bundle.taps.iter().filter(|r| r.part == "kernel").collect()
}

#[test]
fn kernels_that_round_as_their_contracts_pass_and_what_has_none_is_named() {
    let bundle = bundle(&[&ALL[..], &["fp8-kv"]].concat(), Fault::None, 3).unwrap();
    let rows = kernel_rows(&bundle);
    let bad: Vec<_> = rows
        .iter()
        .filter(|r| r.value > r.tolerance)
        .map(|r| (&r.patch_set, &r.layer, &r.tap, &r.phase, r.value, r.tolerance))
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    for tap in [
        "hc_attn.pre",
        "hc_ffn.comb",
        "attn.kvp",
        "attn.index_gate_score",
        "attn.index_score",
        "attn.selected",
        "attn.o",
        "attn.lse",
        "ffn.expert_act",
        "ffn.routed",
    ] {
        let of: Vec<_> = rows.iter().filter(|r| r.tap == tap && r.patch_set == "stock+all").collect();
        assert!(
            !of.is_empty() && of.iter().all(|r| r.backend == "cuda"),
            "{tap}: {:?}",
            rows.iter().map(|r| &r.tap).collect::<std::collections::BTreeSet<_>>()
        );
    }
    // Other orders of the sums are other bits somewhere: nothing was compared with itself.
    assert!(rows.iter().any(|r| r.value > Some(0.0)));
    assert!(rows.iter().all(|r| r.patch_set != "stock"));
    let notes = bundle.run.notes.join("\n");
    for words in [
        "ran as its contract, not as a kernel: fp8-kv: no kernel stands for it",
        "patches that ran as kernels: exact-split-mhc (mHC coefficients, fn in 3 bf16 terms)",
        "ops without a kernel: 0 of",
        "kernel against contract: attn.attend",
    ] {
        assert!(notes.contains(words), "{words}\n{notes}");
    }
    assert!(!notes.contains("no kernel ran"), "{notes}");
}

#[test]
fn a_kernel_that_is_a_little_wrong_fails_at_its_op() {
    for (fault, patch, tap, layers) in [
        (Fault::LostKey, "mma-sparse-mla:tile=8", "attn.o", 1),
        (Fault::ScaleOnce, "fp8-indexer", "attn.index_score", 3),
        (Fault::NoClamp, "mxfp4-moe", "ffn.expert_act", 1),
    ] {
        let bundle = bundle(&[patch], fault, layers).unwrap();
        let bad: Vec<_> = kernel_rows(&bundle).into_iter().filter(|r| r.value > r.tolerance).collect();
        assert!(!bad.is_empty() && bad.iter().all(|r| r.tap == tap || r.tap == "attn.lse"), "{tap}: {bad:#?}");
        assert_eq!(bundle.verdict.exit_code, 1, "{:?}", bundle.verdict);
    }
}

#[test]
fn a_run_in_which_nothing_is_a_kernel_is_refused() {
    let error = bundle(&["fp8-kv"], Fault::None, 1).unwrap_err().to_string();
    assert!(error.contains("no patch of this run has a kernel") && error.contains("fp8-kv"), "{error}");
}
