//! The gate on tables made by hand.

use super::*;
use crate::policy::{Allowance, Limit, Metric, Scale, Select, find};
use crate::{PatchRow, TapRow, TokenRow, Verdict};

fn day() -> Date {
    "2026-12-01".parse().unwrap()
}

fn tap(set: &str, tap: &str, value: f64, tolerance: f64) -> TapRow {
    TapRow {
        patch_set: set.into(),
        tap: tap.into(),
        layer: "3".into(),
        phase: "decode".into(),
        gate: "rel_l2".into(),
        value: Some(value),
        tolerance: Some(tolerance),
        rows: 40,
        order: 4000,
        ..TapRow::default()
    }
}

/// Stock, and a patch that ran in decode.
fn run() -> Bundle {
    let token = |set: &str, position| TokenRow {
        patch_set: set.into(),
        position,
        kl: 1e-3 * (1 + position % 5) as f64,
        expected_flip_probability: (set != "stock").then_some(0.05),
        ..TokenRow::default()
    };
    Bundle {
        taps: vec![
            tap("stock", "attn.o", 2e-3, 1e-2),
            tap("stock+fast", "attn.o", 3e-3, 1e-2),
            tap("stock+fast", "logits", 1e-3, 8e-3),
        ],
        tokens: (0..90).map(|p| token("stock", p)).chain((0..90).map(|p| token("stock+fast", p))).collect(),
        patches: vec![PatchRow {
            patch: "fast".into(),
            phases: "decode".into(),
            calls_decode: 9,
            state: "active".into(),
            claimed_error: 1e-3,
            measured_error: Some(2e-3),
            ..PatchRow::default()
        }],
        ..Bundle::default()
    }
}

fn gated(policy: &Policy) -> (Bundle, Gated) {
    let mut bundle = run();
    let gated = gate(&mut bundle, policy, None, day());
    (bundle, gated)
}

#[test]
fn judging_again_under_another_policy_leaves_no_trace_of_the_first() {
    let tight = Policy { tolerance_scale: 0.25, ..Policy::default() };
    let (fresh, first) = gated(&tight);
    let (mut stored, _) = gated(&Policy::default());
    assert_eq!((stored.verdict.verdict, fresh.verdict.verdict), (Verdict::Pass, Verdict::Fail));
    let again = gate(&mut stored, &tight, None, day());
    assert_eq!((stored, again), (fresh, first));
}

#[test]
fn a_patch_fails_by_what_it_adds_and_the_table_says_what_limits_it() {
    let (bundle, gated) = gated(&Policy { tolerance_scale: 0.25, ..Policy::default() });
    let lines: Vec<_> = gated.table.iter().map(|l| (l.patch_set.as_str(), l.verdict, l.limiting.as_str())).collect();
    let at = "layers.3.attn.o, decode";
    assert_eq!(lines, [("stock", Verdict::Pass, at), ("stock+fast", Verdict::Fail, at)]);
    assert_eq!((gated.table[1].value, gated.table[1].limit), (Some(3e-3), Some(2.5e-3)));
    assert_eq!(bundle.patches[0].verdict, Some(Verdict::Fail));
    assert_eq!(bundle.patches[0].added_kl, Some(0.0));
    // Over the tolerance in stock too: not the patch's.
    let (bundle, _) = self::gated(&Policy { tolerance_scale: 0.15, ..Policy::default() });
    assert_eq!(bundle.verdict.verdict, Verdict::Fail);
    assert_eq!(bundle.patches[0].verdict, Some(Verdict::Pass));
}

#[test]
fn limits_hold_for_patches_phases_and_classes() {
    let on = |class: &str| Select { class: Some(class.into()), ..Select::default() };
    let half = |class: &str, scale| Scale { on: on(class), scale, reason: String::new() };
    let (bundle, _) = gated(&Policy { tolerance: vec![half("head", 0.1)], ..Policy::default() });
    let bad = bundle.verdict.first_bad.unwrap();
    assert_eq!((bad.tap.as_str(), bad.tolerance), ("logits", 8e-4));
    let (bundle, _) = gated(&Policy { tolerance: vec![half("experts", 0.1)], ..Policy::default() });
    assert_eq!(bundle.verdict.verdict, Verdict::Pass);
    let claim = Limit { name: "claim".into(), metric: Metric::MeasuredOverClaimed, max: Some(1.5), ..Limit::default() };
    let (bundle, gated) = gated(&Policy { limit: vec![claim], ..Policy::default() });
    assert_eq!((bundle.verdict.verdict, bundle.patches[0].verdict), (Verdict::Fail, Some(Verdict::Fail)));
    assert_eq!((gated.table[1].limiting.as_str(), gated.table[1].value), ("claim", Some(2.0)));
}

#[test]
fn an_allowance_lets_a_tolerance_be_broken_for_a_while() {
    let allow = Allowance {
        limit: "tolerance".into(),
        on: Select { patch: Some("fast".into()), tap: Some("attn.*".into()), ..Select::default() },
        owner: "ann".into(),
        reason: "known".into(),
        expires: "2026-12-01".parse().unwrap(),
    };
    let policy = Policy { tolerance_scale: 0.25, allow: vec![allow], ..Policy::default() };
    let (bundle, gated) = gated(&policy);
    assert_eq!((bundle.verdict.verdict, bundle.patches[0].verdict), (Verdict::Pass, Some(Verdict::Pass)));
    assert_eq!(bundle.taps[1].verdict, Some(Verdict::Fail), "the table still says so");
    assert_eq!(gated.table[1].limiting, "layers.3.logits, decode");
    let mut late = run();
    gate(&mut late, &policy, None, "2026-12-02".parse().unwrap());
    assert_eq!(late.verdict.verdict, Verdict::Fail);
    let mut clean = run();
    gate(&mut clean, &Policy { tolerance_scale: 1.0, ..policy }, None, day());
    assert!(clean.verdict.reasons[0].contains("allows nothing that fails: remove it"), "{:?}", clean.verdict.reasons);
}

#[test]
fn the_smallest_effects_follow_from_samples_and_floors() {
    let mut bundle = run();
    bundle.taps[0].floor = Some(5e-4);
    let gated = gate(&mut bundle, &Policy::default(), None, day());
    let t = &gated.detectable.tensors[0];
    assert_eq!((t.rows, t.tolerance, t.floors), (3, (8e-3, 1e-2), Some(20.0)));
    assert!(gated.detectable.recall.is_none());
    let mut asked = run();
    let answer = |i: u64| crate::RecallRow {
        question: i,
        symptom: "fine".into(),
        patch_set: "stock".into(),
        ..crate::RecallRow::default()
    };
    asked.recall = (0..30).map(answer).collect();
    let (n, loss) = gate(&mut asked, &Policy::default(), None, day()).detectable.recall.unwrap();
    // 1 - 0.05^(1/30).
    assert!(n == 30 && (loss - 0.09503).abs() < 1e-4, "{loss}");
}

#[test]
fn the_found_policy_passes_its_bundle_and_nothing_much_worse() {
    let found = find(&run(), 10.0, 1.25);
    assert!(found.beyond.is_empty());
    let (bundle, _) = gated(&found.policy);
    assert_eq!(bundle.verdict.verdict, Verdict::Pass, "{:?}", bundle.verdict.reasons);
    for (row, factor, verdict) in
        [(1, 1.2, Verdict::Pass), (1, 1.3, Verdict::Fail), (2, 1.2, Verdict::Pass), (2, 1.3, Verdict::Fail)]
    {
        let mut worse = run();
        worse.taps[row].value = worse.taps[row].value.map(|v| v * factor);
        gate(&mut worse, &found.policy, None, day());
        assert_eq!(worse.verdict.verdict, verdict, "{row} {factor}: {:?}", worse.verdict.reasons);
    }
    let kl = found.policy.limit.iter().find(|l| l.name == "largest-kl").unwrap();
    assert_eq!(kl.max, Some(6.25e-3), "1.25 times 5e-3");
    // Over its tolerance: the scale widens and says so. What no factor mends is named.
    let mut over = run();
    over.taps[0].value = Some(0.02);
    let found = find(&over, 10.0, 1.25);
    let scale = found.policy.tolerance.iter().find(|t| t.on.class.as_deref() == Some("attention")).unwrap();
    assert!(scale.scale == 2.5 && !scale.reason.is_empty(), "{scale:?}");
    over.taps[1].tolerance = Some(0.0);
    assert_eq!(find(&over, 10.0, 1.25).beyond.len(), 1);
    // A tolerance is not found under ten floors.
    let mut floored = run();
    floored.taps[2].floor = Some(9e-4);
    let head = find(&floored, 10.0, 1.25).policy;
    let head = head.tolerance.iter().find(|t| t.on.class.as_deref() == Some("head")).unwrap();
    assert!((head.scale - 1.13).abs() < 1e-9, "9e-3 of 8e-3, rounded up: {head:?}");
}

#[test]
fn nothing_compared_is_unproven_whatever_the_policy() {
    let empty = || Bundle { patches: run().patches, ..Bundle::default() };
    let mut bundle = empty();
    let gated = gate(&mut bundle, &Policy::default(), None, day());
    assert_eq!((bundle.verdict.verdict, bundle.verdict.exit_code), (Verdict::Unproven, 4));
    assert_eq!(gated.table[0].patch_set, "stock+fast");
    let mut idle = run();
    idle.patches[0].calls_decode = 0;
    gate(&mut idle, &Policy::default(), None, day());
    assert!(idle.verdict.verdict == Verdict::Unproven && idle.verdict.reasons[0].contains("not exercised"));
    let mut blind = run();
    blind.taps[0].floor = Some(1.5e-3);
    gate(&mut blind, &Policy::default(), None, day());
    assert!(blind.verdict.verdict == Verdict::Unproven && blind.verdict.reasons[0].contains("under 10 floors"));
    let mut other = run();
    other.run.findings.push(Finding::new(Verdict::Unproven, "ids differ"));
    gate(&mut other, &Policy::default(), None, day());
    assert_eq!((other.verdict.verdict, other.verdict.reasons[0].as_str()), (Verdict::Unproven, "ids differ"));
    let few = Policy { recall_margin: Some(0.01), ..Policy::default() };
    let mut asked = run();
    asked.recall =
        vec![crate::RecallRow { symptom: "fine".into(), patch_set: "stock".into(), ..crate::RecallRow::default() }];
    gate(&mut asked, &few, None, day());
    assert!(asked.verdict.verdict == Verdict::Unproven && asked.verdict.reasons[0].contains("can't be ruled out"));
}
