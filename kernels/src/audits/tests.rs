use super::*;

/// A file as `peers/audit_suite.py` writes it, of the images as they are now.
fn text(exit: i32) -> String {
    let images = serde_json::to_string(&images().unwrap()).unwrap();
    format!(
        r#"{{"format": 1, "part": "audit", "date": "2026-11-30", "device": {{"name": "NVIDIA H200"}}, "images": {images},
        "profile": "release", "cores": 16, "seconds": 9.5, "runs": [
        {{"name": "one", "command": "karat audit", "exit": {exit}, "seconds": 1.5, "memory_mib": 70, "random_weights": true,
          "verdict": "pass", "reasons": [], "judged_rows": 4, "judged_values": 99, "failing": [], "failing_rows": 0,
          "taps": {{"attn.o": {{"rows": 4, "of_tolerance": 0.25, "worst": 1e-4, "tolerance": 4e-4, "from_golden": 2e-3}}}},
          "stock": {{"attn.o": {{"rows": 2, "values": 8, "total": 3e-3, "inherited": 1e-3, "injected": 2e-3, "of_tolerance": 0.5,
            "worst": 2e-3, "tolerance": 4e-3}}}},
          "patches": [{{"patch": "bf16-gemm", "state": "active"}}], "notes": ["n"], "wall": null}},
        {{"name": "two", "exit": null, "skipped": "no time was left"}}]}}"#
    )
}

#[test]
fn what_ran_is_told_from_what_passed() {
    let good = AuditEvidence::parse(&text(0)).unwrap();
    assert!(good.stale().unwrap().is_empty());
    assert_eq!(good.passed(), (1, vec!["two"]));
    assert_eq!(AuditEvidence::parse(&text(1)).unwrap().passed(), (0, vec!["one", "two"]));
    assert!((good.runs[0].stock["attn.o"]["injected"] - 2e-3).abs() < 1e-12);
    assert!(AuditEvidence::parse(&text(0).replace("\"stock\"", "\"stok\"")).is_err());
}

#[test]
fn another_source_or_nothing_judged_is_no_evidence() {
    let mut old = AuditEvidence::parse(&text(0)).unwrap();
    let name = old.images.keys().next().unwrap().clone();
    old.images.insert(name.clone(), "0".to_string());
    assert_eq!(old.stale().unwrap(), [format!("{name}: its source, options or compiler changed since the run")]);
    // A kernel of a patch that the run had not; what came to golden since is none of its.
    let mut less = AuditEvidence::parse(&text(0)).unwrap();
    assert!(less.images.remove("golden-decode").is_some() && less.stale().unwrap().is_empty());
    assert!(less.images.remove("select").is_some());
    assert_eq!(less.stale().unwrap(), ["select: its source, options or compiler changed since the run"]);
    let mut idle = AuditEvidence::parse(&text(0)).unwrap();
    idle.runs.iter_mut().for_each(|run| run.judged_rows = 0);
    assert_eq!(idle.stale().unwrap(), ["no kernel was judged"]);
    for (from, to) in [("\"audit\"", "\"other\""), ("\"format\": 1", "\"format\": 2"), ("\"cores\"", "\"kores\"")] {
        assert!(AuditEvidence::parse(&text(0).replacen(from, to, 1)).is_err(), "{from}");
    }
}
