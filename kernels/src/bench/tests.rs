use super::*;
use crate::evidence::{CorrectnessRow, NaiveSpeed, Place};

fn correct(image: &str, quantity: &str, worst: f64) -> CorrectnessRow {
    CorrectnessRow {
        image: image.into(),
        quantity: quantity.into(),
        cases: 20,
        cpu_cases: 5,
        worst,
        naive: 1e-7,
        bound: 1.0,
        bad: 0,
        worst_case: String::new(),
    }
}

fn speed(image: &str, shape: &str, us: [f64; 2], tb_s: f64, peers: &[(&str, f64)]) -> SpeedRow {
    SpeedRow {
        image: image.into(),
        operation: "mhc".into(),
        shape: shape.into(),
        us: us[0],
        us_again: us[1],
        tb_s,
        tflop_s: 10.0,
        peers: peers.iter().map(|(name, us)| ((*name).to_string(), *us)).collect(),
        naive: None,
    }
}

/// One operation at two shapes, numbers that are easy to divide.
fn evidence() -> Evidence {
    let peers = [("f32 compile", 80.0), ("bf16 compile", 30.0)];
    Evidence {
        format: 1,
        date: "2026-01-02".into(),
        device: Place { name: "a device".into(), arch: "sm_90a".into(), driver: 13_000, processors: 132 },
        peers: BTreeMap::new(),
        ceilings: [("copy_tb_s".to_string(), 4.0), ("mma_tflop_s".to_string(), 500.0)].into(),
        images: Vec::new(),
        correctness: vec![
            correct("mhc-1-mid", "sumsq", 1e-9),
            correct("mhc-1-mid", "mixes", 2e-3),
            correct("mhc-3-mid", "mixes", 2e-7),
        ],
        speed: vec![
            speed("mhc-1-mid", "64 x 8, 6 splits", [9.0, 11.0], 2.0, &peers),
            speed("mhc-3-mid", "64 x 8, 4 splits", [15.0, 15.0], 1.0, &peers),
            speed("mhc-1-mid", "1 x 8, 2 splits", [5.0, f64::NAN], 0.5, &[]),
        ],
    }
}

#[test]
fn speed_error_and_what_the_error_bought_stand_beside_each_other() {
    let rows = table(&evidence());
    let [one, three, alone] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((one.patch, one.shape.as_str(), one.us), (Some("bf16-mhc"), "64 x 8", 10.0));
    assert!((one.drift - 0.2).abs() < 1e-12 && one.error == Some(2e-3), "{one:?}");
    // 18 bytes/us moved in 9 us is 1.8 TB/s over 10: of 4.
    assert!((one.of_copy.unwrap() - 0.45).abs() < 1e-12, "{one:?}");
    assert_eq!(one.quickest().map(|p| (p.0.as_str(), p.2)), Some(("bf16 compile", 3.0)));
    // 3 times as fast for two thousandths.
    assert!((one.bought().unwrap() - 1.5).abs() < 1e-12);
    // The exact variant takes 15: 1.5 times as fast for 2e-3 in the place of 2e-7.
    assert_eq!(one.exact, Some(("mhc-3-mid".into(), 1.5, 2e-7)));
    assert_eq!((three.exact.clone(), three.quickest().unwrap().2), (None, 2.0));
    assert!(alone.peers.is_empty() && alone.bought().is_none() && alone.drift == 0.0 && alone.us == 5.0, "{alone:?}");
}

#[test]
fn the_naive_counterpart_stands_beside_or_says_why_not() {
    let mut evidence = evidence();
    let of = || NaiveSpeed::of("naive-mhc-f32");
    evidence.speed[0].naive = Some(NaiveSpeed { us: Some(390.0), us_again: Some(410.0), executions: 5, ..of() });
    evidence.speed[1].naive = Some(NaiveSpeed { skipped: Some("one launch took 500 ms".into()), ..of() });
    let rows = table(&evidence);
    // 400 us over the mean of 9 and 11.
    assert_eq!((rows[0].naive(), rows[1].naive(), rows[2].naive()), (Some((400.0, 40.0)), None, None));
    assert_eq!(rows[1].naive.as_ref().unwrap().timed, Err("one launch took 500 ms".to_string()));
    assert_eq!(rows[0].naive.as_ref().unwrap().image, "naive-mhc-f32");
    // Read back as written; a file from before has no such field.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("e.json");
    evidence.speed[2].us_again = 5.0;
    evidence.write(&file).unwrap();
    let again = Evidence::read(&file).unwrap();
    assert!(again.speed.iter().zip(&evidence.speed).all(|(a, b)| a.naive == b.naive));
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches("\"naive\": {").count(), 2, "{text}");
}

#[test]
fn every_measured_image_of_the_committed_evidence_has_its_error_and_patch() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("evidence/nvidia-h200.json");
    let evidence = Evidence::read(&file).unwrap();
    let rows = table(&evidence);
    assert_eq!(rows.len(), evidence.speed.len());
    for row in &rows {
        assert_eq!(row.patch.is_none(), row.operation == "gemm", "{row:?}");
        assert_eq!(row.error.is_none(), row.image == "select", "{row:?}");
        assert!(row.of_copy.unwrap() < 1.2 && row.of_mma.unwrap() < 1.0, "above a ceiling: {row:?}");
    }
}
