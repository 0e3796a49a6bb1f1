use std::collections::BTreeSet;

use super::faults;
use crate::catalogue::{Expected, expected, report, reports, unseeded};

#[test]
fn every_fault_is_after_a_report_and_knows_where_it_must_show() {
    let mut ids = BTreeSet::new();
    for fault in faults() {
        let report = report(fault.id).unwrap_or_else(|| panic!("{} is in no report", fault.id));
        assert!(ids.insert(fault.id), "{} twice", fault.id);
        if report.kind == "control" {
            continue;
        }
        let expected = expected(&report).unwrap_or_else(|| panic!("{}: no place for `{}`", fault.id, report.tap));
        assert_eq!(expected == Expected::Ids, fault.ids.is_some(), "{}", fault.id);
        let changes = fault.files.is_some() || fault.edit.is_some() || fault.ids.is_some();
        assert!(changes || !fault.without.is_empty(), "{} does nothing", fault.id);
        assert_eq!(fault.edit.is_some(), !fault.taps.is_empty(), "{}", fault.id);
        assert!(fault.taps.is_sorted(), "{}: taps in op order", fault.id);
    }
}

#[test]
fn every_report_is_seeded_or_is_said_why_not() {
    let seeded: BTreeSet<&str> = faults().iter().map(|f| f.id).collect();
    let not: BTreeSet<&str> = unseeded().into_iter().map(|(id, _)| id).collect();
    assert_eq!(seeded.intersection(&not).next(), None);
    let all: BTreeSet<&str> = reports().iter().map(|r| r.id).collect();
    assert_eq!(seeded.union(&not).copied().collect::<BTreeSet<_>>(), all);
}
