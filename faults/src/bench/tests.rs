use std::path::Path as File;

use super::*;
use crate::{faults, matrix, rows, rows_of};

/// Set by `cargo xtask faults`: write the page, don't compare with it.
const WRITE: &str = "KARAT_FAULTS_WRITE";
/// Set by `cargo xtask faults --only`: ids of faults whose rows are shown, and nothing is written.
const ONLY: &str = "KARAT_FAULTS_ONLY";

fn page() -> std::path::PathBuf {
    File::new(env!("CARGO_MANIFEST_DIR")).join("../docs/faults.md")
}

/// The page's rows of some faults must be what a run finds.
fn compare(faults: &[&'static Fault]) -> Vec<Found> {
    let committed = rows_of(&std::fs::read_to_string(page()).unwrap());
    let found = Bench::new(2).unwrap().audit(faults).unwrap();
    for (row, found) in rows(&found).into_iter().zip(&found) {
        let before = committed.iter().find(|c| c[0] == row[0]);
        assert_eq!(before, Some(&row), "`cargo xtask faults` writes the page anew; {:?}", found.report.reasons);
    }
    assert_eq!(found[0].id, CONTROL);
    assert_eq!(found[0].report.verdict, Verdict::Pass, "{:?}", found[0].report.reasons);
    found
}

#[test]
fn some_faults_are_named_at_their_layer_and_tap_and_the_control_is_silent() {
    let ids = [
        "ROUTE-01", "ROUTE-15", "ACT-01", "QUANT-05", "QUANT-11", "ROPE-05", "INDEX-06", "COMP-01", "ATTN-08",
        "STATE-01", "ROUTE-07", "MHC-01", "ATTN-02",
    ];
    let some: Vec<&'static Fault> = faults().into_iter().filter(|f| ids.contains(&f.id)).collect();
    let found = compare(&some);
    assert_eq!(found.len(), ids.len() + 1);
    for found in &found[1..] {
        assert_eq!((found.outcome, found.is_in_rows), (Outcomes::Named, Some(true)), "{}", found.id);
    }
}

/// Every second fault, and all controls: what continuous integration has time for. `cargo xtask faults` runs them all.
fn stratified() -> Vec<&'static Fault> {
    let is_control = |f: &Fault| crate::catalogue::report(f.id).is_some_and(|r| r.kind == "control");
    (0..).zip(faults()).filter(|(i, f)| i % 2 == 0 || is_control(f)).map(|(_, f)| f).collect()
}

#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn every_second_fault_is_found_as_the_committed_page_says() {
    if let Ok(only) = std::env::var(ONLY) {
        let ids: Vec<&str> = only.split(',').collect();
        let some: Vec<&'static Fault> = faults().into_iter().filter(|f| ids.contains(&f.id)).collect();
        assert_eq!(some.len(), ids.len(), "{ids:?} are not all ids of faults");
        let shown = matrix(&Bench::new(2).unwrap().audit(&some).unwrap());
        std::io::Write::write_all(&mut std::io::stderr(), shown.as_bytes()).unwrap();
        return;
    }
    if std::env::var_os(WRITE).is_some() {
        let found = Bench::new(2).unwrap().audit(&faults()).unwrap();
        really_differ(&found);
        std::fs::write(page(), matrix(&found)).unwrap();
        return;
    }
    let found = compare(&stratified());
    really_differ(&found);
    assert!(found.iter().all(|f| f.outcome != Outcomes::FalseAlarm), "a control is no fault");
    let numeric = found.iter().filter(|f| f.outcome == Outcomes::Named && f.row.is_some()).count();
    assert!(numeric >= 30, "{numeric} of the op, load and state faults are named at layer and tap");
    let committed = rows_of(&std::fs::read_to_string(page()).unwrap());
    assert_eq!(committed.len(), faults().len() + 2, "the page has a row that no fault has, or lacks one");
}

/// A fault that leaves its own place as it was would be a fault in name only.
fn really_differ(found: &[Found]) {
    for f in found.iter().filter(|f| f.row.is_some()) {
        assert!(f.at_place.is_some(), "{} leaves its own place as it was", f.id);
    }
    let numbers = |f: &Found| f.taps.iter().map(|r| (r.rel_l2, r.total, r.value)).collect::<Vec<_>>();
    let mut control = &found[0];
    for f in found[1..].iter().filter(|f| !f.taps.is_empty()) {
        // Each batch begins with its own.
        if f.id == CONTROL_OF_TWO {
            control = f;
            continue;
        }
        assert_ne!(numbers(f), numbers(control), "{} changes nothing", f.id);
    }
}
