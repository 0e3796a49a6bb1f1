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
    // The draft block is in it and judged as the layers are, row by row and to the last bit.
    karat(dir.path(), &[&base[..], &["--out", "b"]].concat()).expect(0);
    let taps = std::fs::read_to_string(dir.path().join("b").join("taps.csv")).unwrap();
    let drafts: Vec<&str> = taps.lines().filter(|line| line.contains(",mtp.0,")).collect();
    for tap in [",in,", ",attn.o,", ",out,", ",logits,"] {
        assert!(drafts.iter().any(|line| line.contains(tap)), "no {tap} of mtp.0 in\n{}", drafts.join("\n"));
    }
    assert!(!drafts.iter().any(|line| line.contains("fail")), "{}", drafts.join("\n"));
    let other = karat(dir.path(), &[&base[..], &["--tokens", "other.json"]].concat()).expect(4).json();
    assert!(other["reasons"][0].as_str().unwrap().contains("ids differ"), "{other}");
    karat(dir.path(), &["model", "new", "--geometry", "mini", "--seed", "6", "--out", "second"]).expect(0);
    let args = ["audit", "--model", "second", "--candidate", "t", "--claims", "f32", "--json", "--quiet"];
    let other = karat(dir.path(), &args).expect(4).json();
    assert!(other["reasons"][0].as_str().unwrap().contains("other weights"), "{other}");
}

#[test]
fn a_sampled_trace_with_its_pages_is_judged() {
    let dir = workplace();
    let base = ["trace", "--path", "stock", "--model", "mini", "--tokens", "ids.json", "--quiet", "--out", "t"];
    karat(dir.path(), &[&base[..], &["--sample", "0"]].concat()).expect(2);
    karat(dir.path(), &[&base[..], &["--sample", "4"]].concat()).expect(0);
    let args = ["audit", "--model", "mini", "--candidate", "t", "--claims", "official", "--quiet"];
    let ran = karat(dir.path(), &args).expect(0);
    assert!(ran.stdout.contains("4 of 40 positions were sampled"), "{}", ran.stdout);
    // Without pages a sampled row can't be judged, and nothing passes.
    karat(dir.path(), &[&base[..9], &["bare", "--sample", "4", "--taps", "layers.*,logits"]].concat()).expect(0);
    let args = ["audit", "--model", "mini", "--candidate", "bare", "--claims", "official", "--quiet"];
    let ran = karat(dir.path(), &args);
    assert!(ran.exit == 4 || ran.stdout.contains("not judged"), "{} {}", ran.exit, ran.stdout);
}

/// The header of a safetensors file.
fn header(file: &std::path::Path) -> serde_json::Value {
    let bytes = std::fs::read(file).unwrap();
    let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    serde_json::from_slice(&bytes[8..8 + n]).unwrap()
}

#[test]
fn a_low_precision_trace_that_claims_f32_fails_and_leaves_the_op_at_fault() {
    let dir = workplace();
    let base = ["trace", "--model", "mini", "--tokens", "ids.json", "--quiet"];
    karat(dir.path(), &[&base[..], &["--path", "stock", "--out", "t"]].concat()).expect(0);
    let args = ["audit", "--model", "mini", "--candidate", "t", "--claims", "f32", "--quiet", "--repro", "op"];
    let ran = karat(dir.path(), &[&args[..], &["--out", "stored"]].concat()).expect(1);
    let said = "fail: op hc_attn.pre of layer 0 (tap hc_attn.collapsed) under trace, in prefill of a";
    assert!(ran.stdout.starts_with(said) && ran.stdout.contains("a coarser grid"), "{}", ran.stdout);
    // A whole cold trace is looked at again as a path is, but for what it can't be asked: to run.
    let verdict = std::fs::read_to_string(dir.path().join("stored").join("verdict.json")).unwrap();
    let found = serde_json::from_str::<serde_json::Value>(&verdict).unwrap()["examination"].clone();
    assert_eq!((found["op"].as_str(), found["kl"].as_f64()), (Some("hc_attn.pre"), Some(0.0)), "{found}");
    assert!(found["signatures"].as_array().unwrap().len() > 10, "{found}");
    let error = found["op_error"].as_f64().unwrap();
    assert!((1e-4..1e-2).contains(&error), "bf16 storage: {error}");
    // The op: what it was given, its weights, what golden and the trace made of it.
    let tensors = header(&dir.path().join("op").join("op.safetensors"));
    let shape = |name: &str| serde_json::from_value::<Vec<u64>>(tensors[name]["shape"].clone()).unwrap();
    let rows = shape("positions")[0];
    assert_eq!((rows, shape("operand.out")[0], shape("expected.hc_attn.collapsed")[0]), (32, 32, 32), "{tensors}");
    assert_eq!(shape("candidate.hc_attn.collapsed"), shape("expected.hc_attn.collapsed"));
    assert_eq!(shape("weight.fn").len(), 2);
    let script = std::fs::read_to_string(dir.path().join("op").join("repro.py")).unwrap();
    assert!(script.contains("def reference():  # hc_attn.pre") && script.contains("32 of 40 rows"), "{script}");
    // An older repro is replaced, anything else is left alone; a run that passes leaves none.
    karat(dir.path(), &args).expect(1);
    std::fs::write(dir.path().join("op").join("notes"), "mine").unwrap();
    assert!(karat(dir.path(), &args).expect(2).error().contains("the folder holds something else"));
    let fine = ["audit", "--model", "mini", "--candidate", "t", "--claims", "official", "--repro", "none"];
    let ran = karat(dir.path(), &fine).expect(0);
    assert!(ran.stderr.contains("nothing was written") && !dir.path().join("none").exists(), "{}", ran.stderr);
    // Judged again by another policy it is what a fresh run under that policy is, the second look too.
    std::fs::write(dir.path().join("tight.toml"), "format = \"karat-policy/1\"\ntolerance_scale = 0.5\n").unwrap();
    let policy = ["--policy", "tight.toml", "--quiet", "--out"];
    let run = ["gate", "--model", "mini", "--candidate", "t", "--claims", "f32"];
    karat(dir.path(), &[&run[..], &policy, &["fresh"]].concat()).expect(1);
    karat(dir.path(), &[&["gate", "--from", "stored"], &policy[..], &["again"]].concat()).expect(1);
    for name in ["taps.csv", "tokens.csv", "flips.csv", "verdict.json"] {
        let read = |dir_of: &str| std::fs::read_to_string(dir.path().join(dir_of).join(name)).unwrap();
        assert_eq!(read("fresh"), read("again"), "{name}");
        assert!(name != "verdict.json" || read("fresh").contains("\"op\": \"hc_attn.pre\""), "{}", read("fresh"));
    }
}

#[test]
fn an_engine_whose_runs_differ_proves_nothing_under_its_own_noise() {
    let dir = workplace();
    trace(dir.path());
    let base = ["trace", "--model", "mini", "--tokens", "ids.json", "--quiet"];
    karat(dir.path(), &[&base[..], &["--path", "stock", "--out", "s"]].concat()).expect(0);
    let args = ["audit", "--model", "mini", "--candidate", "s", "--claims", "official", "--quiet", "--rerun-trace"];
    let same = karat(dir.path(), &[&args[..], &["s"]].concat()).expect(0);
    assert!(same.stdout.contains("run twice: the same bits in all "), "{}", same.stdout);
    // Golden stands for a second run that is as far off as stock's formats are.
    let noisy = karat(dir.path(), &[&args[..], &["t"]].concat()).expect(4);
    assert!(noisy.stdout.contains("under 10 distances between two runs"), "{}", noisy.stdout);
    assert!(noisy.stdout.contains("compared rows differ"), "{}", noisy.stdout);
    karat(dir.path(), &["trace", "--model", "mini", "--tokens", "other.json", "--path", "golden", "--out", "o"])
        .expect(0);
    let other = karat(dir.path(), &[&args[..], &["o"]].concat()).expect(4);
    assert!(other.stdout.contains("the rerun's ids differ"), "{}", other.stdout);
    let own = ["audit", "--model", "mini", "--tokens", "ids.json", "--patches", "none", "--rerun", "--quiet"];
    let own = karat(dir.path(), &own).expect(0);
    assert!(own.stdout.contains("run twice: the same bits in all "), "{}", own.stdout);
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
