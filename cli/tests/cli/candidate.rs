use crate::support::{karat, workplace};

/// A golden trace in `t`.
fn trace(dir: &std::path::Path) {
    let args = ["trace", "--path", "golden", "--model", "mini", "--tokens", "ids.json", "--out", "t", "--quiet"];
    let ran = karat(dir, &args).expect(0);
    assert!(ran.stdout.contains("1 sequences, 40 rows"), "{}", ran.stdout);
}

#[test]
fn goldens_own_trace_passes_and_other_ids_are_unproven() {
    let dir = workplace();
    trace(dir.path());
    let base = ["audit", "--model", "mini", "--candidate", "t", "--claims", "f32", "--json", "--quiet"];
    let data = karat(dir.path(), &base).expect(0).json();
    assert_eq!(data["verdict"], "pass");
    karat(dir.path(), &[&base[..], &["--tokens", "ids.json"]].concat()).expect(0);
    let other = karat(dir.path(), &[&base[..], &["--tokens", "other.json"]].concat()).expect(4).json();
    assert!(other["reasons"][0].as_str().unwrap().contains("ids differ"), "{other}");
    karat(dir.path(), &["model", "new", "--geometry", "mini", "--seed", "6", "--out", "second"]).expect(0);
    let args = ["audit", "--model", "second", "--candidate", "t", "--claims", "f32", "--json", "--quiet"];
    let other = karat(dir.path(), &args).expect(4).json();
    assert!(other["reasons"][0].as_str().unwrap().contains("other weights"), "{other}");
}

#[test]
fn a_low_precision_trace_that_claims_f32_fails() {
    let dir = workplace();
    let base = ["trace", "--model", "mini", "--tokens", "ids.json", "--quiet"];
    karat(dir.path(), &[&base[..], &["--path", "stock", "--out", "t"]].concat()).expect(0);
    let args = ["audit", "--model", "mini", "--candidate", "t", "--claims", "f32", "--quiet"];
    let ran = karat(dir.path(), &args).expect(1);
    assert!(ran.stdout.starts_with("fail: layer 0, tap hc_attn.collapsed"), "{}", ran.stdout);
    assert!(ran.stdout.contains("tolerance"), "{}", ran.stdout);
}

#[test]
fn two_traces_are_compared_without_a_model() {
    let dir = workplace();
    trace(dir.path());
    let base = ["trace", "--model", "mini", "--tokens", "ids.json", "--quiet"];
    karat(dir.path(), &[&base[..], &["--path", "stock", "--taps", "layers.?.out", "--out", "s"]].concat()).expect(0);
    let same = karat(dir.path(), &["diff", "t", "t"]).expect(0);
    assert!(same.stdout.starts_with("0 of "), "{}", same.stdout);
    let ran = karat(dir.path(), &["diff", "t", "s", "--json"]).expect(1).json();
    assert_eq!((ran["compared"].as_u64(), ran["differing"].as_u64()), (Some(4), Some(4)), "{ran}");
    let first = &ran["tensors"][0];
    assert!(first["rel_l2"].as_f64().unwrap() > 1e-3 && first["ulp_p99"].as_f64().unwrap() > 1.0, "{first}");
    let worst = &first["worst"][0];
    assert_eq!((&worst["row"], &worst["column"]), (&first["max_abs_row"], &first["max_abs_column"]), "{first}");
    let distance = worst["b"].as_f64().unwrap() - worst["a"].as_f64().unwrap();
    assert_eq!(Some(distance.abs()), first["max_abs"].as_f64(), "{first}");
    let file = dir.path().join("t").join("head.safetensors");
    karat(dir.path(), &["diff", file.to_str().unwrap(), "s"]).expect(4);
}
