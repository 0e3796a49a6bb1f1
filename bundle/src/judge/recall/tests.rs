//! Bounds against textbook values, and what they lead to.

use super::*;
use crate::{Evidence, Policy, Stopped, judge};

fn conversations(n: u64, answers: u64, lost: &[u64]) -> Vec<Counts> {
    (0..n).map(|i| Counts { answers, lost: lost.get(i as usize).copied().unwrap_or(0), gained: 0 }).collect()
}

#[test]
fn without_a_loss_the_rule_of_three_holds() {
    // 1 - 0.05^(1/n), a little under 3/n.
    let b = bounds(&conversations(30, 10, &[]));
    assert!((b.upper - (1.0 - 0.05_f64.powf(1.0 / 300.0))).abs() < 1e-9, "{b:?}");
    assert!(b.upper < 0.01 && b.lower == 0.0 && b.mean == 0.0);
    assert!(bounds(&conversations(29, 10, &[])).upper > 0.01, "290 answers can't rule out 1 %");
}

#[test]
fn losses_have_the_exact_bounds_when_they_are_spread() {
    // Clopper-Pearson, one-sided 95 %, 5 of 100: at most 0.1023 (tables). Below, the spread is wider: 0.05 - 1.660 · 0.0219.
    let b = bounds(&conversations(100, 1, &[1, 1, 1, 1, 1]));
    assert!((b.upper - 0.1023).abs() < 2e-4 && (b.lower - 0.0136).abs() < 2e-4, "{b:?}");
}

#[test]
fn losses_in_one_conversation_widen_the_bounds() {
    let spread = bounds(&conversations(20, 10, &[1; 10]));
    let heaped = bounds(&conversations(20, 10, &[10]));
    assert_eq!((spread.mean, heaped.mean), (0.05, 0.05));
    assert!(heaped.upper > spread.upper + 0.03, "{heaped:?} {spread:?}");
    // By hand: residuals 9.5 once and -0.5 nineteen times, squares 95; t of 19 degrees 1.729.
    let by_hand = 0.05 + 1.729 * (95.0_f64 * 20.0 / 19.0).sqrt() / 200.0;
    assert!((heaped.upper - by_hand).abs() < 1e-4, "{heaped:?} {by_hand}");
}

fn row(conversation: usize, right: bool) -> RecallRow {
    RecallRow {
        scenario: "s".into(),
        conversation: format!("c{conversation}"),
        patch_set: "stock".into(),
        answer_tokens: 4,
        matched_golden: 4,
        matched_candidate: if right { 4 } else { 2 },
        worst_margin_golden: 3.0,
        symptom: "fine".into(),
        ..RecallRow::default()
    }
}

fn verdict(rows: &[RecallRow], margin: Option<f64>) -> (Verdict, String) {
    let policy = Policy { recall_margin: margin, ..Policy::default() };
    let report = judge(&Evidence { recall: rows, ..Evidence::default() }, &policy);
    (report.verdict, report.reasons.join("; "))
}

#[test]
fn a_margin_needs_enough_answers() {
    let rows: Vec<RecallRow> = (0..400).map(|i| row(i / 8, true)).collect();
    assert_eq!(verdict(&rows, Some(0.01)).0, Verdict::Pass);
    let (few, reason) = verdict(&rows[..40], Some(0.01));
    assert!(few == Verdict::Unproven && reason.contains("can't be ruled out"), "{reason}");
    assert_eq!(verdict(&rows[..40], None).0, Verdict::Pass);
    let many: Vec<RecallRow> = (0..400).map(|i| row(i / 8, i % 8 > 0)).collect();
    let (lost, reason) = verdict(&many, Some(0.01));
    assert!(lost == Verdict::Fail && reason.contains("50 lost"), "{reason}");
}

#[test]
fn a_truncated_answer_is_skipped_and_a_lost_conversation_fails() {
    let mut rows: Vec<RecallRow> = (0..400).map(|i| row(i / 8, true)).collect();
    rows[7] =
        RecallRow { symptom: "truncated".into(), matched_candidate: 0, worst_margin_golden: 9.0, ..row(0, false) };
    assert_eq!(verdict(&rows, Some(0.01)).0, Verdict::Pass);
    assert_eq!(paired(&rows).iter().map(|c| c.answers).sum::<u64>(), 399);
    rows[8] = RecallRow { symptom: "amnesia".into(), ..row(1, false) };
    let (forgot, reason) = verdict(&rows, None);
    assert!(forgot == Verdict::Fail && reason.contains("amnesia") && reason.contains("c1"), "{reason}");
    rows[8] = RecallRow { worst_margin_golden: 9.0, lost_at_layer: Some(3), ..row(1, false) };
    let (lost, reason) = verdict(&rows, None);
    assert!(lost == Verdict::Fail && reason.contains("lost at layer 3"), "{reason}");
    // What golden does not say either, running freely, is not lost, by whatever margin it holds it when it is given.
    rows[8].matched_golden = 0;
    assert_eq!(verdict(&rows, None).0, Verdict::Pass);
}

#[test]
fn a_sequential_margin_is_proved_or_broken_as_soon_as_it_is_and_a_run_that_stopped_has_no_other_test() {
    let policy = Policy { recall_margin: Some(0.01), recall_sequential: true, ..Policy::default() };
    let of = |rows: &[RecallRow], stopped: Option<Stopped>, policy: &Policy| {
        judge(&Evidence { recall: rows, stopped, ..Evidence::default() }, policy)
    };
    let clean: Vec<RecallRow> = (0..400).map(|i| row(i, true)).collect();
    assert_eq!(of(&clean, None, &policy).verdict, Verdict::Pass);
    // Decided before the last conversations, which no longer count.
    let mut late = clean.clone();
    late[395..].iter_mut().for_each(|r| r.matched_candidate = 0);
    assert_eq!(of(&late, None, &policy).verdict, Verdict::Pass);
    let few = of(&clean[..100], None, &policy);
    assert_eq!(few.verdict, Verdict::Unproven);
    assert!(few.reasons[0].contains("can't be ruled out"), "{:?}", few.reasons);
    let lost: Vec<RecallRow> = (0..40).map(|i| row(i, false)).collect();
    assert_eq!(of(&lost, None, &policy).verdict, Verdict::Fail);
    let stopped = Some(Stopped { after: 400, of: 900 });
    assert_eq!(of(&clean, stopped, &policy).verdict, Verdict::Pass);
    let rows: Vec<&RecallRow> = clean.iter().collect();
    assert!(upper(&rows, &policy) > upper(&rows, &Policy::default()), "looking often costs something");
    let other = of(&clean, stopped, &Policy { recall_sequential: false, ..policy });
    assert_eq!(other.verdict, Verdict::Unproven);
    assert!(other.reasons[0].contains("after 400 of 900 conversations"), "{:?}", other.reasons);
}
