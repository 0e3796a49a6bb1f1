//! `karat bench` without a GPU: what was measured elsewhere, and what this build can't do.

use crate::support::{karat, karat_in};

/// The committed evidence.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels/evidence/nvidia-h200.json");

#[test]
fn committed_evidence_is_shown_with_its_origin() {
    let dir = tempfile::tempdir().unwrap();
    let shown = karat(dir.path(), &["bench", "--evidence", FILE, "--filter", "8192 x 16384"]).expect(0).stdout;
    insta::assert_snapshot!(shown);
    // Each patch that stands there is one that karat has.
    let all = karat(dir.path(), &["bench", "--evidence", FILE, "--json"]).expect(0).json();
    let list = karat(dir.path(), &["patches", "--json"]).expect(0).stdout;
    for row in all["rows"].as_array().unwrap() {
        let Some(patch) = row["patch"].as_str() else { continue };
        let name = patch.split(':').next().unwrap();
        assert!(list.contains(&format!("\"{name}\"")), "{patch}");
    }
}

#[test]
fn what_an_audit_found_of_a_patch_stands_beside_its_kernel() {
    let dir = crate::support::workplace();
    let args = ["audit", "--model", "mini", "--tokens", "ids.json", "--patches", "bf16-mhc", "--out", "b", "--quiet"];
    karat(dir.path(), &args);
    let base = ["bench", "--evidence", FILE, "--bundle", "b", "--filter", "mhc"];
    let shown = karat(dir.path(), &base).expect(0).stdout;
    let line = shown.lines().find(|l| l.trim_start().starts_with("bf16-mhc ")).unwrap();
    assert!(line.contains("in the audited model ") && line.contains("nats of KL added"), "{line}");
    let data = karat(dir.path(), &[&base[..], &["--json"]].concat()).expect(0).json();
    let rows = data["rows"].as_array().unwrap();
    let of = |patch: &str| rows.iter().find(|row| row["patch"] == patch).unwrap()["audit_error"].clone();
    assert!(of("bf16-mhc").as_f64().unwrap() > 1e-5 && of("exact-split-mhc:terms=3").is_null(), "{data}");
}

#[test]
fn what_cannot_be_shown_or_measured_is_one_message() {
    let dir = tempfile::tempdir().unwrap();
    let none = [("CUDA_VISIBLE_DEVICES", "-1"), ("KARAT_NO_CACHE", "1")];
    let ran = karat_in(dir.path(), &["bench"], &none).expect(2);
    assert!(ran.error().starts_with("karat bench: "), "{}", ran.stderr);
    std::fs::write(dir.path().join("bad.json"), "{}").unwrap();
    for (args, exit, words) in [
        (&["--evidence", "nowhere"][..], 3, "cannot be read"),
        (&["--evidence", "bad.json"], 3, "is no evidence"),
        (&["--evidence", FILE, "--filter", "no such word"], 2, "no row holds that"),
        (&["--evidence", FILE, "--bundle", "nowhere"], 3, "nowhere"),
    ] {
        let ran = karat(dir.path(), &[&["bench"], args].concat()).expect(exit);
        assert!(ran.error().contains(words), "{args:?}: {}", ran.stderr);
    }
}
