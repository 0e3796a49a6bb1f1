use super::*;
use crate::{Evidence, Report, judge};

fn row(history: &str, against: &str, value: f64, tolerance: f64) -> HistoryRow {
    HistoryRow {
        sequence: "a".into(),
        history: history.into(),
        against: against.into(),
        what: if against == "golden" { "logits" } else { "pages" }.into(),
        compared: 100,
        gate: if against == "golden" { "max_over_max" } else { "rows" }.into(),
        value: Some(value),
        tolerance: Some(tolerance),
        ..HistoryRow::default()
    }
}

fn of(rows: &[HistoryRow]) -> Report {
    judge(&Evidence { histories: rows, ..Evidence::default() }, &Policy::default())
}

#[test]
fn a_history_like_its_cold_run_and_near_golden_passes() {
    let rows = [row("warm", "cold run", 0.0, 0.0), row("warm", "golden", 9e-6, 1e-5)];
    let report = of(&rows);
    assert_eq!((report.verdict, report.reasons.len()), (Verdict::Pass, 0), "{report:?}");
}

#[test]
fn one_row_that_differs_fails_and_is_placed() {
    let differs = HistoryRow {
        differs: 2,
        layer: "3".into(),
        tensor: "index keys".into(),
        pool: "index".into(),
        page: Some(7),
        position: Some(31),
        ..row("after-abort", "cold run", 2.0, 0.0)
    };
    let report = of(&[row("warm", "cold run", 0.0, 0.0), differs.clone(), differs]);
    assert_eq!(report.verdict, Verdict::Fail);
    let [reason] = report.reasons.as_slice() else { panic!("told once: {:?}", report.reasons) };
    assert!(reason.contains("after-abort") && reason.contains("2 of 100 pages"), "{reason}");
    assert!(reason.contains("layer 3, index keys, position 31, index page 7"), "{reason}");
}

#[test]
fn a_foreign_row_and_a_far_logit_fail() {
    let owners = HistoryRow {
        owner_found: "sequence 9, position 2, layer 1".into(),
        owner_expected: "sequence 0, position 4".into(),
        ..row("warm", "owners", 1.0, 0.0)
    };
    let report = of(&[owners]);
    assert!(report.verdict == Verdict::Fail && report.reasons[0].contains("sequence 9"), "{report:?}");
    for value in [1.1e-5, f64::NAN, f64::INFINITY] {
        let report = of(&[row("warm", "golden", value, 1e-5)]);
        assert!(report.verdict == Verdict::Fail && report.reasons[0].contains("from golden"), "{report:?}");
    }
}

#[test]
fn what_never_happened_proves_nothing() {
    let lacks = HistoryRow { missing: "no prefix was found".into(), ..row("warm", "cold run", 0.0, 0.0) };
    let report = of(&[lacks.clone(), lacks]);
    assert_eq!((report.verdict, report.reasons), (Verdict::Unproven, vec!["history warm: no prefix was found".into()]));
    let nothing = HistoryRow { compared: 0, ..row("cold", "cold run", 0.0, 0.0) };
    assert_eq!(of(&[nothing]).verdict, Verdict::Unproven);
    // Reported rows alone judge nothing.
    let reported = HistoryRow { tolerance: None, ..row("cold", "golden", 0.3, 0.0) };
    assert_eq!(of(&[reported]).verdict, Verdict::Unproven);
    assert_eq!(of(&[]).verdict, Verdict::Unproven);
}
