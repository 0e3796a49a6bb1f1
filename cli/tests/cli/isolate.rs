use crate::support::{karat, workplace};

#[test]
fn the_plan_runs_on_any_model_and_a_step_that_fails_is_told() {
    let dir = workplace();
    let args =
        ["isolate", "--model", "mini", "--tokens", "ids.json", "--patches", "bf16-mhc,fp8-kv", "--quiet", "--out", "o"];
    let ran = karat(dir.path(), &args);
    // Random weights: whatever the verdict of the audit is, nothing else may be broken.
    assert!(ran.exit == 0 || ran.exit == 1, "{}", ran.stderr);
    assert_eq!(ran.stderr, "");
    for part in ["facts, and where", "suspects, the heaviest", "ruled out, and by which", "what can't be known", "next"]
    {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    // A token file asks nothing: there is nothing to recall, and everything else was measured.
    assert!(ran.stdout.contains("step `recall` failed: token files ask nothing"), "{}", ran.stdout);
    let read = |name: &str| std::fs::read_to_string(dir.path().join("o").join(name)).unwrap();
    assert_eq!(read("isolate.txt"), ran.stdout);
    let data: serde_json::Value = serde_json::from_str(&read("isolate.json")).unwrap();
    assert_eq!(data["exit_code"], ran.exit);
    let failed = data["steps"].as_array().unwrap().iter().filter(|s| !s["failed"].is_null()).count();
    assert_eq!(failed, 1, "{data}");
    let ruled_out = data["ruled_out"].as_array().unwrap();
    assert!(ruled_out.iter().any(|m| m["step"] == "histories"), "{data}");
    for next in data["next"].as_array().unwrap() {
        let command = next["command"].as_str().unwrap();
        assert!(command.starts_with("karat ") && !command.contains("  "), "{command}");
    }
}

#[test]
fn what_cannot_be_isolated_is_refused() {
    let dir = workplace();
    for (args, words) in [
        (&["--patches", "nonsense"][..], "nonsense"),
        (&["--tokens", "ids.json", "x"], "not both"),
        (&["--stock", "x"], "x"),
    ] {
        let ran = karat(dir.path(), &[&["isolate", "--quiet"], args].concat()).expect(2);
        assert!(ran.error().contains(words), "{args:?}: {}", ran.stderr);
    }
}

#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn the_default_plan_ends_with_a_sound_path_and_every_step_done() {
    let dir = tempfile::tempdir().unwrap();
    let data = karat(dir.path(), &["isolate", "tic-tac-toe", "--quiet", "--json"]).expect(0).json();
    assert_eq!(data["verdict"], "pass", "{data}");
    assert!(data["steps"].as_array().unwrap().iter().all(|s| s["failed"].is_null()), "{data}");
    let ruled: Vec<&str> = data["ruled_out"].as_array().unwrap().iter().map(|m| m["step"].as_str().unwrap()).collect();
    for step in ["recall", "prefill against decode", "histories"] {
        assert!(ruled.contains(&step), "{step}: {data}");
    }
    assert!(data["seconds"].as_f64().unwrap() < 300.0, "{data}");
}
