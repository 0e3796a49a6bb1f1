//! Limits on tables made by hand.

use super::*;
use crate::policy::{Allowance, Select};
use crate::{Bundle, RecallRow, TapRow, TokenRow, judge};

/// Positions of one conversation under stock and a patch, with the KL of each.
fn tokens(n: u64, stock: impl Fn(u64) -> f64, patched: impl Fn(u64) -> f64) -> Vec<TokenRow> {
    let row = |set: &str, position, kl| TokenRow {
        scenario: "s".into(),
        sequence: "a".into(),
        patch_set: set.into(),
        phase: if position < n / 2 { "prefill" } else { "decode" }.into(),
        stratum: "prompt".into(),
        position,
        kl,
        expected_flip_probability: (set != "stock").then_some(0.1),
        ..TokenRow::default()
    };
    let all = (0..n).map(|p| row("stock", p, stock(p)));
    all.chain((0..n).map(|p| row("stock+fast", p, patched(p)))).collect()
}

/// Pseudo-random, between -0.5 and 0.5, alike in every run.
fn noise(i: u64) -> f64 {
    (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
}

fn limit(metric: Metric, max: f64) -> Limit {
    Limit { name: "l".into(), metric, max: Some(max), ..Limit::default() }
}

fn only(tokens: &[TokenRow], limit: Limit) -> Judged {
    let policy = Policy { limit: vec![limit], ..Policy::default() };
    let mut all = limits(&Evidence { tokens, ..Evidence::default() }, &policy).judged;
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn a_mean_is_tested_by_the_spread_between_blocks() {
    // Nine blocks of 32 and a known mean; by hand: ratio estimator over the blocks.
    let rows = tokens(288, |_| 0.01, |p| 0.01 + 0.02 + 0.01 * noise(p));
    let j = only(&rows, limit(Metric::AddedKl, 0.01));
    let d: Vec<f64> = (0..288).map(|p| 0.02 + 0.01 * noise(p)).collect();
    let mean = d.iter().sum::<f64>() / 288.0;
    let blocks: Vec<f64> = d.chunks(32).map(|b| b.iter().sum::<f64>() / 32.0).collect();
    let error = (blocks.iter().map(|b| (b - mean).powi(2)).sum::<f64>() / 8.0 / 9.0).sqrt();
    assert!((j.value - mean).abs() < 1e-12 && (j.error.unwrap() / error - 1.0).abs() < 1e-9, "{j:?}");
    assert!(j.verdict == Verdict::Fail && j.p.unwrap() < 1e-6, "{j:?}");
    // t of 8 degrees: 1.8595 at 5 %.
    assert!((j.upper.unwrap() - (mean + 1.8595 * error)).abs() < 1e-5 * error.max(1e-3), "{j:?}");
    assert!(only(&rows, limit(Metric::AddedKl, 0.05)).verdict == Verdict::Pass);
}

#[test]
fn over_a_limit_by_chance_is_no_failure_but_is_not_proved_either() {
    let rows = tokens(288, |_| 0.01, |p| 0.011 + 0.3 * noise(p));
    let value = only(&rows, limit(Metric::AddedKl, 1.0)).value;
    let at = value - 1e-4;
    let j = only(&rows, limit(Metric::AddedKl, at));
    assert!(j.value > at && j.verdict == Verdict::Pass && j.p.unwrap() > 0.1, "{j:?}");
    let j = only(&rows, Limit { prove: true, ..limit(Metric::AddedKl, at) });
    assert_eq!(j.verdict, Verdict::Unproven, "{j:?}");
    let j = only(&rows, Limit { prove: true, ..limit(Metric::AddedKl, 0.5) });
    assert_eq!(j.verdict, Verdict::Pass);
    assert!(j.detectable.unwrap() > j.error.unwrap() * 3.0);
}

#[test]
fn many_tests_share_one_chance() {
    // One limit on each of twenty strata would fail at 5 % once in a run; with Holm a p of 0.01 is not enough.
    let rows = tokens(288, |_| 0.01, |p| 0.02 + 0.2 * noise(p));
    let alone = Policy { delta: 0.05, limit: vec![limit(Metric::AddedKl, 0.0)], ..Policy::default() };
    let judged = |policy: &Policy| limits(&Evidence { tokens: &rows, ..Evidence::default() }, policy);
    let p = judged(&alone).judged[0].p.unwrap();
    assert!(p < 0.5, "{p}");
    let just = Policy { delta: p * 1.01, ..alone.clone() };
    assert_eq!(judged(&just).judged[0].verdict, Verdict::Fail);
    let many =
        (0..20).map(|i| Limit { name: format!("l{i}"), ..limit(Metric::AddedKl, if i == 0 { 0.0 } else { 1.0 }) });
    let many = judged(&Policy { limit: many.collect(), ..just });
    assert_eq!((many.tests, many.judged[0].verdict), (20, Verdict::Pass));
}

#[test]
fn phase_stratum_and_patch_select() {
    let rows = tokens(64, |_| 0.0, |p| if p < 32 { 0.0 } else { 1.0 });
    let on = |phase: &str| Select { phase: Some(phase.into()), ..Select::default() };
    assert_eq!(only(&rows, Limit { on: on("decode"), ..limit(Metric::AddedKl, 0.5) }).value, 1.0);
    assert_eq!(only(&rows, Limit { on: on("prefill"), ..limit(Metric::AddedKl, 0.5) }).value, 0.0);
    let j = only(
        &rows,
        Limit { on: Select { patch: Some("fast".into()), ..Select::default() }, ..limit(Metric::KlMax, 0.5) },
    );
    assert!(j.verdict == Verdict::Fail && j.place == "a, position 63", "{j:?}");
    // 64 positions, half of them 1: the 99th percentile is 1.
    let j = only(
        &rows,
        Limit { on: Select { patch: Some("fast".into()), ..Select::default() }, ..limit(Metric::KlP99, 0.5) },
    );
    assert_eq!((j.value, j.verdict), (1.0, Verdict::Fail));
}

#[test]
fn flips_are_counted_beyond_what_noise_changes() {
    let mut rows = tokens(200, |_| 0.0, |_| 0.0);
    for row in rows.iter_mut().filter(|r| r.patch_set != "stock" && r.position % 4 == 0) {
        row.top1_candidate = 7;
    }
    let j = only(&rows, limit(Metric::FlipsBeyondExpected, 0.02));
    assert!((j.value - 0.15).abs() < 1e-12 && j.verdict == Verdict::Fail, "a quarter less the expected tenth: {j:?}");
    assert_eq!(only(&rows, limit(Metric::FlipsBeyondExpected, 0.2)).verdict, Verdict::Pass);
    assert!((only(&rows, limit(Metric::AddedFlips, 0.5)).value - 0.25).abs() < 1e-12);
}

#[test]
fn a_number_that_is_none_fails_every_limit() {
    let rows = tokens(100, |_| 0.0, |p| if p == 50 { f64::NAN } else { 0.0 });
    for metric in [Metric::AddedKl, Metric::KlMax, Metric::KlP99] {
        let patch = Select { patch: Some("fast".into()), ..Select::default() };
        assert_eq!(only(&rows, Limit { on: patch, ..limit(metric, 1e9) }).verdict, Verdict::Fail, "{metric:?}");
    }
}

#[test]
fn a_limit_that_meets_no_row_is_unproven() {
    let rows = tokens(40, |_| 0.0, |_| 0.0);
    let evidence = Evidence {
        tokens: &rows,
        taps: &[TapRow { value: Some(0.0), tolerance: Some(1.0), ..TapRow::default() }],
        ..Evidence::default()
    };
    let none = Limit { on: Select { patch: Some("typo".into()), ..Select::default() }, ..limit(Metric::Kl, 1.0) };
    let policy = Policy { limit: vec![none.clone()], ..Policy::default() };
    let report = judge(&evidence, &policy);
    assert_eq!(report.verdict, Verdict::Unproven);
    assert!(report.reasons[0].contains("limit l judged nothing") && report.reasons[0].contains("typo"), "{report:?}");
    let absent = Policy { limit: vec![Limit { if_present: true, ..none }], ..Policy::default() };
    assert_eq!(judge(&evidence, &absent).verdict, Verdict::Pass);
    // Of a part the rest may have them.
    assert_eq!(judge(&Evidence { is_part: true, ..evidence }, &policy).verdict, Verdict::Pass);
    // A speed-up that is asked for and was not measured.
    let fast = Limit { max: None, min: Some(1.2), ..limit(Metric::Speedup, 0.0) };
    assert_eq!(judge(&evidence, &Policy { limit: vec![fast], ..Policy::default() }).verdict, Verdict::Unproven);
    // A margin without answers.
    let margin = Policy { recall_margin: Some(0.01), ..Policy::default() };
    assert_eq!(judge(&evidence, &margin).verdict, Verdict::Unproven);
}

#[test]
fn tap_metrics_take_the_worst_row_and_name_it() {
    let row = |layer: &str, ratio, set: &str| TapRow {
        patch_set: set.into(),
        layer: layer.into(),
        tap: "attn.o".into(),
        phase: "decode".into(),
        ratio_to_predicted: ratio,
        ..TapRow::default()
    };
    let taps = [row("1", Some(1.2), "stock"), row("2", Some(1.7), "stock"), row("3", None, "stock")];
    let policy = Policy { limit: vec![limit(Metric::RatioToPredicted, 1.5)], ..Policy::default() };
    let j = limits(&Evidence { taps: &taps, ..Evidence::default() }, &policy).judged.remove(0);
    assert_eq!((j.value, j.n, j.verdict, j.place.as_str()), (1.7, 2, Verdict::Fail, "layers.2.attn.o, decode"));
}

fn answer(set: &str, i: usize, right: bool) -> RecallRow {
    RecallRow {
        conversation: format!("c{}", i / 4),
        question: i as u64 % 4,
        patch_set: set.into(),
        symptom: "fine".into(),
        answer_tokens: 1,
        matched_golden: 1,
        matched_candidate: u64::from(right),
        ..RecallRow::default()
    }
}

#[test]
fn recall_is_lost_against_stock() {
    let all = |lost: usize| -> Vec<RecallRow> {
        let stock = (0..200).map(|i| answer("stock", i, i % 10 > 0));
        stock.chain((0..200).map(|i| answer("stock+fast", i, i % 10 > 0 && i >= 10 * lost))).collect()
    };
    let judged = |rows: &[RecallRow]| {
        let policy = Policy { limit: vec![limit(Metric::RecallLost, 0.01)], ..Policy::default() };
        limits(&Evidence { recall: rows, ..Evidence::default() }, &policy).judged.remove(0)
    };
    let same = judged(&all(0));
    assert_eq!(
        (same.value, same.verdict, same.n),
        (0.0, Verdict::Pass, 200),
        "what stock loses too is not the patch's"
    );
    let lost = judged(&all(8));
    assert!(lost.verdict == Verdict::Fail && lost.value == 72.0 / 200.0, "{lost:?}");
}

#[test]
fn an_allowance_covers_a_limit_until_its_day() {
    let rows = tokens(288, |_| 0.0, |_| 1.0);
    let allow = Allowance {
        limit: "l".into(),
        on: Select { patch: Some("fast".into()), ..Select::default() },
        owner: "ann".into(),
        reason: "known".into(),
        expires: "2027-01-01".parse().unwrap(),
    };
    let policy =
        |allow: Vec<Allowance>| Policy { limit: vec![limit(Metric::AddedKl, 0.5)], allow, ..Policy::default() };
    let bundle = Bundle {
        tokens: rows,
        taps: vec![TapRow { value: Some(0.0), tolerance: Some(1.0), ..TapRow::default() }],
        ..Bundle::default()
    };
    let on = |day: &str, policy: &Policy| {
        let mut evidence = bundle.evidence();
        evidence.today = Some(day.parse().unwrap());
        judge(&evidence, policy)
    };
    assert_eq!(on("2026-12-01", &policy(vec![])).verdict, Verdict::Fail);
    assert_eq!(on("2027-01-01", &policy(vec![allow.clone()])).verdict, Verdict::Pass);
    let expired = on("2027-01-02", &policy(vec![allow.clone()]));
    assert!(expired.verdict == Verdict::Fail && expired.reasons[0].contains("expired on 2027-01-01"), "{expired:?}");
    let other = Allowance { on: Select { patch: Some("slow".into()), ..Select::default() }, ..allow.clone() };
    let unused = on("2026-12-01", &policy(vec![allow.clone(), other]));
    assert!(unused.verdict == Verdict::Fail && unused.reasons[0].contains("allows nothing that fails"), "{unused:?}");
    assert_eq!(judge(&bundle.evidence(), &policy(vec![allow])).verdict, Verdict::Unproven, "no day was given");
}
