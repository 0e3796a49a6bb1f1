//! An audit whose patches run as somebody's kernels: plain loops in f64, which round where the contracts say.

mod naive;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_model::Checkpoint;
use karat_model::new::{Geometry, new_model};
use karat_optimized::{Accumulation, History, Stock};
use karat_seam::{Phase, Requests, Sequence, Span, SpanKind, Tap, Turn};

use crate::by_kernel::Sizes;
use crate::{Inputs, Job, Quiet, Subject, audit};
use naive::{Fault, Naive};

const ALL: [&str; 5] = ["exact-split-mhc", "bf16-gemm", "fp8-indexer", "mma-sparse-mla:tile=8", "mxfp4-moe"];

fn bundle(patches: &[&str], fault: Fault, layers: u16) -> crate::Result<karat_bundle::Bundle> {
    run(patches, Naive { fault, accumulation: Accumulation::default() }, layers)
}

fn run(patches: &[&str], kernels: Naive, layers: u16) -> crate::Result<karat_bundle::Bundle> {
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
        kernels: Some(Arc::new(kernels)),
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

/// What the rule says of the first `rows` rows of a stored tap whose values are bf16 and of random sign, and the rel-L2 of
/// results that differ from them by so many codes at so many places.
fn of_codes(rows: usize, width: usize, codes: u32, places: usize) -> (f64, f64) {
    let checkpoint = Arc::new(Checkpoint::from_memory("tiny", new_model(Geometry::Mini, 3)).unwrap());
    let ids: Vec<u32> = vec![1, 2];
    let plan = karat_optimized::Plan {
        stock: Stock::Official,
        patches: vec!["bf16-gemm".to_string()],
        history: History::Cold,
    };
    let requests = Requests { seqs: vec![Sequence::prompt("a", ids.as_slice())] };
    let path = karat_optimized::Optimized::new(checkpoint.clone(), requests, plan, 1).unwrap();
    let rules = [Phase::Prefill, Phase::Decode].map(|phase| path.numerics(phase));
    let sizes = Sizes::new(checkpoint.config(), rules, 100, &Accumulation::default());
    let mut state = 7_u32;
    let mut value = || {
        let mut sum = -6.0_f32;
        for _ in 0..12 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            sum += (state >> 8) as f32 / (1_u32 << 24) as f32;
        }
        f32::from_bits(sum.to_bits() & 0xffff_0000)
    };
    let right: Vec<f32> = (0..rows * width).map(|_| value()).collect();
    let mut theirs = right.clone();
    let by_size = |a: &usize, b: &usize| right[*a].abs().total_cmp(&right[*b].abs());
    let mut order: Vec<usize> = (0..right.len()).collect();
    order.sort_by(by_size);
    // Values of ordinary size.
    for i in order.into_iter().skip(rows * width / 2).take(places) {
        theirs[i] = f32::from_bits(theirs[i].to_bits() + (codes << 16));
    }
    let mut budget = super::rule::Budget::default();
    let rule = sizes.rule(Tap::AttnKvp, Phase::Prefill);
    right.chunks_exact(width).enumerate().for_each(|(i, row)| budget.row(&rule, i as u32, row));
    let (error, size) = right.iter().zip(&theirs).fold((0.0, 0.0), |(error, size), (r, t)| {
        (error + (f64::from(*t) - f64::from(*r)).powi(2), size + f64::from(*r).powi(2))
    });
    (sizes.tolerance(Tap::AttnKvp, Phase::Prefill, &budget), f64::sqrt(error / size))
}

/// One token's row of a compressor: another order of sums of 64 products (the model's width) moves a result by 4 * 2^-24 * 8 of its
/// size, a boundary lies in between once in some 2,000 values, and one in a run's many rows is nobody's fault. What reordering
/// does not do is over: many of them, or one that is many codes away.
#[test]
fn one_value_on_the_neighbouring_code_is_allowed_in_a_short_row_and_a_fault_is_not() {
    let (tolerance, error) = of_codes(1, 32, 1, 1);
    assert!(error > 5e-4 && error <= tolerance, "{error:e} of {tolerance:e}");
    for (codes, places) in [(1, 16), (16, 1)] {
        let (tolerance, error) = of_codes(1, 32, codes, places);
        assert!(error > tolerance, "{codes} codes, {places} places: {error:e} of {tolerance:e}");
    }
    // In long rows flips come to their mean: one in 50 values is far over it.
    let (tolerance, error) = of_codes(200, 128, 1, 512);
    assert!(error > 1.5 * tolerance, "{error:e} of {tolerance:e}");
    let (tolerance, error) = of_codes(200, 128, 1, 8);
    assert!(error < tolerance, "{error:e} of {tolerance:e}");
}

/// By hand from the rule's words: (4 + 1) / 2 + 17 / 2 * 1/2 * 4 / 16 on sm_90; 16 steps of 4 with 23 bits, (16 + 1) / 2 + 5 / 2 * 2 * 4
/// / 4; and 13 bits, which no tolerance of bf16 would cover.
#[test]
fn what_a_sum_may_be_off_follows_from_how_the_device_accumulates() {
    let of = |bits, products, truncates| {
        super::rule::units(&Accumulation { bits, products, truncates, ..Accumulation::default() })
    };
    assert_eq!(super::rule::units(&Accumulation::default()), 3.5625);
    assert_eq!(of(23, 4, true), 13.5);
    assert_eq!(of(13, 16, true), 2.5 + 8.5 * 2048.0 * 0.25);
    assert!(of(25, 16, false) < 3.0);
}

#[test]
fn how_the_device_accumulates_is_told_and_what_contradicts_it_makes_the_run_unproven() {
    let with = |unproven: &str| {
        let note = "accumulation of sm_90: as declared (probed in this run)".to_string();
        let accumulation = Accumulation { note, unproven: unproven.to_string(), ..Accumulation::default() };
        run(&["mma-sparse-mla:tile=8"], Naive { fault: Fault::None, accumulation }, 1).unwrap()
    };
    let good = with("");
    assert!(good.run.notes.iter().any(|note| note.starts_with("accumulation of sm_90: as declared")));
    assert!(!good.verdict.reasons.iter().any(|reason| reason.contains("part kernel")), "{:?}", good.verdict);
    let odd = with("the probe of this run found that sm_90 accumulates bf16 otherwise than is declared");
    assert_eq!(odd.verdict.exit_code, 4, "{:?}", odd.verdict);
    assert!(odd.verdict.reasons.iter().any(|reason| reason.contains("rows of part kernel prove nothing: the probe")));
    // Judged all the same: the rows are there.
    assert_eq!(kernel_rows(&odd).len(), kernel_rows(&good).len());
}

/// A device that keeps more is judged more strictly.
#[test]
fn the_tolerance_is_that_of_the_device() {
    let of = |bits| {
        let accumulation = Accumulation { bits, ..Accumulation::default() };
        let bundle = run(&["exact-split-mhc"], Naive { fault: Fault::None, accumulation }, 1).unwrap();
        let row = kernel_rows(&bundle).into_iter().find(|row| row.tap == "hc_attn.pre").unwrap().clone();
        row.tolerance.unwrap()
    };
    let ratio = of(13) / of(25);
    assert!((ratio - (2.5 + 4352.0) / 3.5625).abs() < 1e-6 * ratio, "{ratio}");
}
