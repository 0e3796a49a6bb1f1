use super::*;

#[test]
fn every_line_of_the_tables_is_whole() {
    let all = reports();
    assert_eq!(all.len(), 130);
    assert_eq!(all.iter().filter(|r| r.core).count(), 57);
    for report in &all {
        assert!(report.id.starts_with(report.family) && report.url.starts_with("https://"), "{}", report.id);
        assert!((1..=5).contains(&report.severity), "{}", report.id);
        assert!(["op", "load", "state", "sched", "encoding", "control"].contains(&report.kind), "{}", report.id);
    }
    for line in rows(TAPS) {
        let known = |tap: &str| tap == "ids" || Tap::from_name(tap).is_some();
        assert!(line[1].split('|').all(known) && line[2].len() > 4, "{line:?}");
        assert!(all.iter().any(|r| r.tap == line[0] || r.id == line[0]), "no report names {}", line[0]);
    }
}
