//! Whole audits of the optimized path on a made model.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_audit::{Inputs, Job, Quiet, Subject};
use karat_bundle::{Bundle, Verdict};
use karat_model::{Checkpoint, Geometry, new_model};
use karat_optimized::{History, Stock};
use karat_seam::{Requests, Sequence, Span, SpanKind, Turn};

/// A conversation of two turns and a short one, in ids.
fn requests() -> Requests {
    let ids = |n: u32, step: u32| (0..n).map(|i| (i * step + i * i * 3 + 11) % 500).collect::<Vec<u32>>();
    let span = |kind, start, end| Span { kind, start, end };
    let mut long = Sequence::prompt("long", ids(60, 17));
    long.turns = vec![
        Turn { spans: vec![span(SpanKind::Prompt, 0, 31), span(SpanKind::Generated, 31, 40)], interrupted: true },
        Turn { spans: vec![span(SpanKind::Prompt, 40, 51), span(SpanKind::Generated, 51, 60)], interrupted: false },
    ];
    Requests { seqs: vec![long, Sequence::prompt("short", ids(5, 29))] }
}

fn run(stock: Stock, patches: &[&str], requests: Requests, threads: usize) -> Bundle {
    let checkpoint = Arc::new(Checkpoint::from_memory("mini", new_model(Geometry::Mini, 3)).unwrap());
    let scenarios = vec!["made".to_string(); requests.seqs.len()];
    let stop = AtomicBool::new(false);
    let job = Job {
        random_weights: true,
        threads,
        ..Job::new(checkpoint, Inputs { requests, scenarios, ..Inputs::default() }, &Quiet, &stop)
    };
    let patches = patches.iter().map(ToString::to_string).collect();
    karat_audit::audit(&job, &Subject { stock, patches, history: History::Cold }).unwrap()
}

const ALL: [&str; 3] = ["bf16-mhc", "fp8-indexer", "mma-sparse-mla"];

#[test]
fn the_f32_control_passes_against_golden() {
    let bundle = run(Stock::None, &[], requests(), 2);
    assert_eq!(bundle.verdict.verdict, Verdict::Pass, "{:#?}", bundle.verdict);
    // Looking an embedding up rounds nothing: there is no floor to measure.
    let without: Vec<_> =
        bundle.taps.iter().filter(|r| r.gate == "max_over_max" && r.floor.is_none() && r.layer != "embed").collect();
    assert!(without.is_empty(), "{without:?}");
    assert!(bundle.flips.is_empty(), "{:?}", bundle.flips);
}

#[test]
fn the_same_tables_for_every_thread_count() {
    let tables = |threads| {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("bundle");
        karat_bundle::write(&dir, &run(Stock::Official, &ALL, requests(), threads)).unwrap();
        ["taps", "tokens", "flips", "recall", "patches"].map(|t| std::fs::read(dir.join(format!("{t}.csv"))).unwrap())
    };
    let one = tables(1);
    assert!(one == tables(2) && one == tables(4));
}

#[test]
fn every_patch_is_exercised_and_measured() {
    let bundle = run(Stock::Official, &ALL, requests(), 2);
    let sets = ["stock", "stock+bf16-mhc", "stock+fp8-indexer", "stock+mma-sparse-mla", "stock+all"];
    assert_eq!(bundle.run.candidate.patch_sets, sets);
    assert_eq!(bundle.patches.len(), 3);
    for patch in &bundle.patches {
        assert_eq!(patch.state, "active", "{patch:?}");
        assert!(patch.calls_decode > 0 && patch.measured_error.unwrap() > 0.0 && patch.added_kl.is_some());
        assert_eq!(patch.calls_prefill > 0, patch.phases.contains("prefill"), "{patch:?}");
    }
    let added = |r: &&karat_bundle::TapRow| r.patch_set == "stock+all" && r.added_to_stock.is_some_and(|a| a != 0.0);
    assert!(bundle.taps.iter().any(|r| added(&r)));
    for row in bundle.taps.iter().filter(|r| r.cross.is_some()) {
        let (t, h, j) = (row.total.unwrap(), row.inherited.unwrap(), row.injected.unwrap());
        let sum = h * h + j * j + 2.0 * row.cross.unwrap();
        assert!((t * t - sum).abs() <= 1e-12 * (t * t).max(h * h).max(j * j), "{row:?}");
    }
}

#[test]
fn a_decode_patch_without_a_decode_step_is_unproven() {
    let mut requests = requests();
    requests.seqs.iter_mut().for_each(|s| s.turns.clear());
    let bundle = run(Stock::Official, &["mma-sparse-mla"], requests, 2);
    assert_eq!((bundle.verdict.verdict, bundle.verdict.exit_code), (Verdict::Unproven, 4), "{:?}", bundle.verdict);
    assert!(bundle.verdict.reasons[0].contains("mma-sparse-mla"), "{:?}", bundle.verdict.reasons);
}

#[test]
fn every_row_of_a_stock_path_errs_as_its_roundings_cost() {
    // Four plans on a model that none of them was made for: the derivation knows the formats alone.
    for stock in [Stock::Official, Stock::Sglang, Stock::SglangSm120, Stock::Vllm] {
        let bundle = run(stock, &[], requests(), 2);
        let derived: Vec<_> = bundle.taps.iter().filter(|r| r.derived.is_some_and(|d| d > 1e-4)).collect();
        assert!(derived.len() > 100, "{stock}: {}", derived.len());
        for row in &derived {
            let (value, derived, chance) = (row.value.unwrap(), row.derived.unwrap(), row.effective_rows.unwrap());
            let chance = (2.83 / chance.sqrt()).exp();
            let place = format!("{stock}: layer {} {} {} {}", row.layer, row.tap, row.phase, row.sequence);
            assert!(value <= 1.5 * derived * chance, "{place}: {value:e} against {derived:e}");
            assert!(value >= 0.3 * derived / chance, "{place}: {value:e} against {derived:e}");
            assert!(!bundle.derivations.iter().all(|t| (&t.layer, &t.tap) != (&row.layer, &row.tap)), "{place}");
        }
        assert!(bundle.taps.iter().any(|r| r.basis == "derived"), "{stock}");
        assert!(!bundle.verdict.reasons.iter().any(|r| r.contains("does not round")), "{:?}", bundle.verdict.reasons);
    }
}
