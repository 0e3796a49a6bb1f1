//! Baselines as text, and runs against them.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::gate::gate;
use crate::{Bundle, Date, Policy, TapRow, TokenRow, Verdict};

/// A run of one tap in two layers, with values that many times the first's.
fn run(factor: f64) -> Bundle {
    let row = |layer: &str, value: f64| TapRow {
        patch_set: "stock".into(),
        phase: "decode".into(),
        layer: layer.into(),
        tap: "attn.o".into(),
        gate: "rel_l2".into(),
        value: Some(value * factor),
        tolerance: Some(1e-2),
        rows: 200,
        ..TapRow::default()
    };
    let token = |position| TokenRow {
        patch_set: "stock".into(),
        position,
        kl: 1e-3 * (1.0 + (position % 3) as f64),
        ..TokenRow::default()
    };
    Bundle { taps: vec![row("0", 1e-3), row("1", 2e-3)], tokens: (0..64).map(token).collect(), ..Bundle::default() }
}

fn day() -> Date {
    "2026-12-01".parse().unwrap()
}

fn locked(factor: f64) -> Lock {
    let mut bundle = run(factor);
    gate(&mut bundle, &Policy::default(), None, day());
    measure(&bundle)
}

fn against(lock: &Lock, mut bundle: Bundle, policy: &Policy) -> (Verdict, Vec<String>) {
    gate(&mut bundle, policy, Some(lock), day());
    (bundle.verdict.verdict, bundle.verdict.reasons)
}

#[test]
fn a_baseline_is_sorted_text_with_a_line_a_metric() {
    let lock = locked(1.0);
    let text = lock.to_text();
    let line = text.lines().find(|l| l.starts_with("metric tap/stock/decode/attn.o/rel_l2 ")).unwrap();
    // The worst of two layers, 200 rows: relative error 1/sqrt(400) = 5 %, so 2e-3 ± 1.96e-4.
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!((words[2], words[4], words[10]), ("0.002", "200", "0.01"), "{line}");
    let (low, high): (f64, f64) = (words[6].parse().unwrap(), words[8].parse().unwrap());
    assert!((low - 1.804e-3).abs() < 1e-6 && (high - 2.196e-3).abs() < 1e-6, "{line}");
    assert!(
        text.contains("\nmetric logits/stock/kl ")
            && text.contains("\nhash scenarios ")
            && text.contains("\nhash kernels -\n"),
        "{text}"
    );
    assert_eq!(Lock::from_text(Path::new("karat.lock"), text.as_bytes()).unwrap(), lock);
    let mut lines: Vec<&str> = text.lines().skip(3).collect();
    let written = lines.clone();
    lines.sort_unstable();
    assert_eq!(lines, written);
}

#[test]
fn worse_beyond_noise_is_regressed_and_better_asks_for_a_new_baseline() {
    let lock = locked(1.0);
    let policy = Policy::default();
    assert_eq!(against(&lock, run(1.0), &policy).0, Verdict::Pass);
    assert_eq!(against(&lock, run(1.1), &policy).0, Verdict::Pass, "within noise");
    let (worse, reasons) = against(&lock, run(2.0), &policy);
    assert!(
        worse == Verdict::Regressed && reasons[0].contains("tap/stock/decode/attn.o/rel_l2 (4.000e-3 was 2.000e-3"),
        "{reasons:?}"
    );
    let (better, reasons) = against(&lock, run(0.3), &policy);
    assert!(better == Verdict::Improved && reasons[0].contains("asks for a new one"), "{reasons:?}");
    assert_eq!(against(&lock, run(50.0), &policy).0, Verdict::Fail, "over tolerance comes first");
    assert_eq!(against(&lock, run(f64::NAN), &policy).0, Verdict::Fail);
    let mut bundle = run(2.0);
    let gated = gate(&mut bundle, &policy, Some(&lock), day());
    assert_eq!((gated.table[0].value, gated.table[0].baseline), (Some(4e-3), Some(2e-3)));
}

#[test]
fn what_can_not_be_compared_is_unproven() {
    let lock = locked(1.0);
    let policy = Policy::default();
    let mut other = run(1.0);
    other.run.model.weights_sha256 = "x".into();
    let (verdict, reasons) = against(&lock, other, &policy);
    assert!(verdict == Verdict::Unproven && reasons[0].contains("of another model"), "{reasons:?}");
    let mut other = run(1.0);
    other.run.scenarios.push(crate::Scenario { name: "n".into(), ..crate::Scenario::default() });
    assert!(against(&lock, other, &policy).1[0].contains("of another scenarios"));
    let tight = Policy { tolerance_scale: 0.9, ..Policy::default() };
    let (verdict, reasons) = against(&lock, run(1.0), &tight);
    assert!(verdict == Verdict::Unproven && reasons[0].contains("another policy"), "{reasons:?}");
    let mut fewer = run(1.0);
    fewer.tokens.clear();
    let (verdict, reasons) = against(&lock, fewer, &policy);
    assert!(verdict == Verdict::Unproven && reasons[0].contains("logits/stock/kl"), "{reasons:?}");
    let mut kernels = run(1.0);
    kernels.run.kernels = [("mla".to_string(), "hash".to_string())].into();
    assert_eq!(against(&lock, kernels, &policy).0, Verdict::Pass, "kernels are what is tested");
    assert_eq!(against(&Lock::default(), run(1.0), &policy).0, Verdict::Unproven);
}

#[test]
fn a_worse_or_wider_baseline_needs_a_reason_which_is_written_down() {
    let old = locked(1.0);
    let asks = locked(2.0).replacing(Some(&old), None).unwrap_err();
    assert!(asks.len() == 1 && asks[0].contains("worse beyond noise"), "{asks:?}");
    assert!(locked(2.0).replacing(Some(&old), Some(" \n ")).is_err(), "white space is no reason");
    let new = locked(2.0).replacing(Some(&old), Some("a new\nkernel")).unwrap();
    let text = new.to_text();
    assert!(text.ends_with("\nreason tap/stock/decode/attn.o/rel_l2: a new kernel\n"), "{text}");
    assert_eq!(Lock::from_text(Path::new("l"), text.as_bytes()).unwrap(), new);
    let mut wide = run(1.0);
    wide.run.policy.tolerance_scale = 3.0;
    let asks = measure(&wide).replacing(Some(&old), None).unwrap_err();
    assert!(asks[0].contains("limit 1.000e-2 becomes 3.000e-2"), "{asks:?}");
    let mut tight = run(1.0);
    tight.run.policy.tolerance_scale = 0.5;
    measure(&tight).replacing(Some(&old), None).unwrap();
    locked(0.3).replacing(Some(&old), None).unwrap();
    locked(9.0).replacing(None, None).unwrap();
}

#[test]
fn a_broken_baseline_is_told_with_its_line() {
    let text = locked(1.0).to_text();
    let read = |text: &str| Lock::from_text(Path::new("karat.lock"), text.as_bytes()).unwrap_err().to_string();
    assert_eq!(read(""), "karat.lock, line 1: expected `karat-lock/1`, found `nothing`");
    assert!(read("# a\nkarat-lock/9").contains("line 2: expected `karat-lock/1`, found `karat-lock/9`"));
    assert!(read(&text.replace("hash model", "<<<<<<< mine\nhash model")).contains("found `<<<<<<< mine`"));
    let model = text.lines().find(|l| l.starts_with("hash model")).unwrap();
    assert!(read(&format!("{text}{model}\n")).contains("expected sorted lines"));
    assert!(read(&text.replace(" n 200 ", " n many ")).contains("expected `hash NAME HASH`"));
    assert!(read(&text[..text.len() - 9]).contains("karat.lock, line"));
}

proptest! {
    #[test]
    fn a_baseline_reader_takes_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..120), at in 0usize..2000) {
        let mut mixed = locked(1.0).to_text().into_bytes();
        let at = at.min(mixed.len());
        mixed.splice(at..at, bytes.iter().copied());
        for text in [&bytes, &mixed] {
            if let Err(error) = Lock::from_text(Path::new("l"), text) {
                prop_assert!(error.to_string().starts_with("l, line "), "{error}");
            }
        }
    }

    #[test]
    fn any_metric_reads_back(value: f64, low: f64, high: f64, limit: Option<f64>, name in "[ -9;-~]{1,20}") {
        prop_assume!(!value.is_nan() && !low.is_nan() && !high.is_nan() && limit.is_none_or(|l| !l.is_nan()));
        let entry = Entry { value, n: 3, interval: (low, high), limit };
        let lock = Lock { metrics: [(name, entry)].into(), ..Lock::default() };
        prop_assert_eq!(Lock::from_text(Path::new("l"), lock.to_text().as_bytes()).unwrap(), lock);
    }
}
