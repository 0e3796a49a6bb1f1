use super::*;

#[test]
fn dates() {
    for (seconds, day) in [(0, "1970-01-01"), (951_782_400, "2000-02-29"), (1_796_000_000, "2026-11-30")] {
        assert_eq!(date(seconds), day);
    }
}

#[test]
fn goals_are_judged_in_their_direction() {
    let mut report = Report::new(Path::new("."), 2, None).unwrap();
    report.goal("P1", "speed", 7.0, 6.0, true);
    report.goal("P1", "memory", 0.7, 0.6, false);
    report.goal("P1", "unexplained", 0.0, 0.0, false);
    let text = report.markdown();
    assert!(text.contains("| P1 | speed | 7.00 | at least 6.00 | met |"), "{text}");
    assert!(text.contains("| P1 | memory | 0.70 | at most 0.60 | **short** |"), "{text}");
    assert!(text.contains("- P1 memory: 0.70 of 0.60. Cause: "), "{text}");
    assert!(!text.contains("- P1 speed"), "{text}");
    assert!(text.contains("| P1 | unexplained | 0 | at most 0 | met |"), "{text}");
}
