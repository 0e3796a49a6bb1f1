//! The hand-made broken inputs through the binary: one message that names file, tensor or field, exit 3, no result.

use std::path::Path;

use karat_tests::broken::{self, Broken, Kind};

use crate::support::karat;

/// Runs a command on each broken input of a kind, which lies in `in/`; `whole/` holds a whole checkpoint.
fn each(kind: Kind, args: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    broken::write(&broken::whole(Kind::Checkpoint), &dir.path().join("whole"));
    let ids: Vec<u32> = (0..48).map(|i| i * 10).collect();
    let tokens = serde_json::json!({"sequences": [{"id": "a", "input_ids": ids}]});
    std::fs::write(dir.path().join("ids.json"), tokens.to_string()).unwrap();
    let wrong: Vec<String> = broken::all()
        .into_iter()
        .filter(|case| case.kind == kind && !(args[0] == "diff" && case.name == "no manifest"))
        .filter_map(|case| complaint(&case, dir.path(), args).map(|what| format!("{}: {what}", case.name)))
        .collect();
    assert!(wrong.is_empty(), "{args:?}: {} inputs:\n{}", wrong.len(), wrong.join("\n"));
}

/// What isn't as it should be.
fn complaint(case: &Broken, dir: &Path, args: &[&str]) -> Option<String> {
    let input = dir.join("in");
    case.write(&input);
    let ran = karat(dir, &[args, &["--quiet"]].concat());
    // A case may be that nothing is there.
    let _ = std::fs::remove_dir_all(&input);
    let one_line = ran.stderr.lines().count() == 1 && ran.stderr.starts_with("error: ");
    let missing: Vec<_> = case.says.iter().filter(|words| !ran.stderr.contains(**words)).collect();
    let fine = ran.exit == 3 && one_line && ran.stdout.is_empty() && missing.is_empty() && !dir.join("out").exists();
    (!fine).then(|| format!("exit {}, without {missing:?}: {}{}", ran.exit, ran.stderr, ran.stdout))
}

#[test]
fn checkpoints() {
    each(Kind::Checkpoint, &["model", "inspect", "in"]);
    each(Kind::Checkpoint, &["audit", "--model", "in", "--tokens", "ids.json", "--out", "out"]);
}

#[test]
fn tokenizers_and_prompt_texts() {
    each(Kind::Prompt, &["scenario", "render", "tic-tac-toe", "--model", "in"]);
}

#[test]
fn token_files() {
    each(Kind::Tokens, &["audit", "--model", "whole", "--tokens", "in/tokens.json", "--out", "out"]);
}

#[test]
fn traces() {
    // Without a manifest `diff` reads the folder as plain tensors, which it may.
    each(Kind::Trace, &["audit", "--model", "whole", "--candidate", "in", "--claims", "f32", "--out", "out"]);
    each(Kind::Trace, &["diff", "in", "in"]);
}

/// A checkpoint that opens but holds values that are none: verification lists them, golden doesn't run on them.
#[test]
fn values() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = serde_json::json!({"sequences": [{"id": "a", "input_ids": (0..48).collect::<Vec<u32>>()}]});
    std::fs::write(dir.path().join("ids.json"), tokens.to_string()).unwrap();
    for case in broken::all().into_iter().filter(|case| case.kind == Kind::Values) {
        case.write(&dir.path().join("in"));
        let ran = karat(dir.path(), &["model", "verify", "in", "--quiet"]).expect(3);
        let found = ran.stdout.lines().find(|line| line.starts_with("error")).expect("one line about it");
        assert!(case.says.iter().all(|words| found.contains(words)), "{}: {}", case.name, ran.stdout);
        // Two equal experts for a token are a defined sum.
        if case.name != "one expert twice for a token" {
            let trace = ["trace", "--path", "golden", "--model", "in", "--tokens", "ids.json", "--taps", "logits"];
            let ran = karat(dir.path(), &[&trace[..], &["--out", "out", "--quiet"]].concat()).expect(3);
            let tensor = case.says[0].trim_end_matches(".weight");
            assert!(ran.error().contains(tensor) && ran.stdout.is_empty(), "{}: {}", case.name, ran.stderr);
            assert!(!dir.path().join("out").exists(), "{}: a partial trace was left", case.name);
        }
    }
}
