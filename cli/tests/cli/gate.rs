//! `karat gate` and `karat merge` as people run them.

use std::path::Path;

use crate::support::{karat, workplace};

/// Three sequences and a patch that prompts alone exercise.
const RUN: [&str; 6] = ["--model", "mini", "--tokens", "three.json", "--patches", "chunked-prefill:size=8"];

fn three(dir: &Path) -> [&'static str; 6] {
    let ids = |n: u32, o: u32| (0..n).map(|i| (i * 37 + 11 + o) % 500).collect::<Vec<_>>();
    let one = |id: &str, n, o| serde_json::json!({"id": id, "input_ids": ids(n, o)});
    let all = serde_json::json!({"sequences": [one("a", 40, 0), one("b", 24, 5), one("c", 17, 9)]});
    std::fs::write(dir.join("three.json"), all.to_string()).unwrap();
    RUN
}

fn files(dir: &Path) -> Vec<Vec<u8>> {
    let names = ["taps.csv", "tokens.csv", "flips.csv", "recall.csv", "patches.csv", "verdict.json"];
    names.map(|name| std::fs::read(dir.join(name)).unwrap()).to_vec()
}

#[test]
fn a_stored_bundle_judged_again_equals_a_fresh_run_under_that_policy() {
    let dir = workplace();
    let at = |name: &str| dir.path().join(name);
    let run = three(dir.path());
    let tight = "format = \"karat-policy/1\"\ntolerance_scale = 0.3\n\
                 [[limit]]\nname = \"kl\"\nmetric = \"kl_max\"\nmax = 1e-9\n";
    std::fs::write(at("tight.toml"), tight).unwrap();
    karat(dir.path(), &[&["audit", "--out", "stored", "--quiet"], &run[..]].concat()).expect(0);
    let policy = ["--policy", "tight.toml", "--quiet", "--out"];
    let fresh = karat(dir.path(), &[&["gate"], &run[..], &policy, &["fresh", "--json"]].concat()).expect(1).json();
    let again = karat(dir.path(), &[&["gate", "--from", "stored"], &policy[..], &["again", "--json"]].concat());
    let again = again.expect(1).json();
    assert_eq!(files(&at("fresh")), files(&at("again")));
    for key in ["verdict", "reasons", "table", "limits", "detectable", "tests", "patches"] {
        assert_eq!(fresh[key], again[key], "{key}");
    }
    assert_eq!((fresh["verdict"].as_str(), fresh["table"][0]["verdict"].as_str()), (Some("fail"), Some("fail")));
    // And back: under the default policy it is what the audit said.
    let back = karat(dir.path(), &["gate", "--from", "again", "--out", "back"]).expect(0);
    assert_eq!(files(&at("stored")), files(&at("back")));
    assert!(back.stdout.starts_with("pass: all "), "{}", back.stdout);
    assert!(back.stdout.contains("smallest effect that this run could have seen"), "{}", back.stdout);
    assert!(back.stdout.lines().all(|l| l.chars().count() <= 100), "{}", back.stdout);
    // The tightest policy that passes is one.
    let found = karat(dir.path(), &["gate", "--from", "stored", "--find-tolerances"]).expect(0).stdout;
    std::fs::write(at("found.toml"), &found).unwrap();
    karat(dir.path(), &["gate", "--from", "stored", "--policy", "found.toml"]).expect(0);
    std::fs::write(at("under.toml"), found.replace("tolerance_scale = 1.0", "tolerance_scale = 0.5")).unwrap();
    karat(dir.path(), &["gate", "--from", "stored", "--policy", "under.toml"]).expect(1);
    let default = karat(dir.path(), &["gate", "--print-policy"]).expect(0).stdout;
    std::fs::write(at("default.toml"), default).unwrap();
    karat(dir.path(), &["gate", "--from", "again", "--policy", "default.toml", "--out", "named"]).expect(0);
    assert_eq!(files(&at("stored")), files(&at("named")));
}

#[test]
fn parts_merge_to_the_run_that_was_never_parted() {
    let dir = workplace();
    let at = |name: &str| dir.path().join(name);
    let run = three(dir.path());
    karat(dir.path(), &[&["audit", "--out", "whole", "--quiet"], &run[..]].concat()).expect(0);
    for part in ["1/3", "2/3", "3/3"] {
        let out = format!("p{}", &part[..1]);
        let ran = karat(dir.path(), &[&["audit", "--partition", part, "--out", &out, "--quiet"], &run[..]].concat());
        assert!([0, 4].contains(&ran.exit), "a part may be empty, and nothing else: {}{}", ran.stdout, ran.stderr);
    }
    karat(dir.path(), &["merge", "p3", "p1", "p2", "--out", "merged"]).expect(0);
    assert_eq!(files(&at("whole")), files(&at("merged")));
    karat(dir.path(), &["merge", "merged", "--out", "twice"]).expect(0);
    assert_eq!(files(&at("whole")), files(&at("twice")));
    let missing = karat(dir.path(), &["merge", "p1", "p2", "--out", "x"]).expect(3);
    assert!(missing.error().contains("part 3 of 3 is missing"), "{}", missing.stderr);
    let twice = karat(dir.path(), &["merge", "p1", "p2", "p3", "p1", "--out", "x"]).expect(3);
    assert!(twice.error().contains("part 1 of 3 is in both"), "{}", twice.stderr);
    let other = ["--partition", "3/3", "--out", "other", "--quiet", "--floor", "--stock", "none", "--patches", "none"];
    karat(dir.path(), &[&["audit"], &other[..], &run[..4]].concat());
    let mixed = karat(dir.path(), &["merge", "p1", "p2", "other", "--out", "x"]).expect(3);
    assert!(mixed.error().contains("other and p1 are no parts of one run"), "{}", mixed.stderr);
    assert!(!at("x").exists(), "nothing is left of what was refused");
    for wrong in ["0/3", "4/3", "1", "a/b", "1/0", "1/99999"] {
        let ran = karat(dir.path(), &[&["audit", "--partition", wrong], &run[..]].concat()).expect(2);
        assert!(ran.error().contains("--partition: expected I/N"), "{}", ran.stderr);
    }
    let part = karat(dir.path(), &["gate", "--from", "p1", "--baseline", "new.lock", "--update-baseline"]);
    assert!(part.exit != 0 && !at("new.lock").exists(), "{}", part.stderr);
}

#[test]
fn a_baseline_is_written_only_by_a_run_that_passes_and_then_compared_with() {
    let dir = workplace();
    let run = three(dir.path());
    let lock = dir.path().join("karat.lock");
    karat(dir.path(), &[&["audit", "--out", "b", "--quiet"], &run[..]].concat()).expect(0);
    let gate = |args: &[&str]| karat(dir.path(), &[&["gate", "--from", "b"], args].concat());
    gate(&["--baseline", "karat.lock"]).expect(3);
    std::fs::write(dir.path().join("no.toml"), "format = \"karat-policy/1\"\ntolerance_scale = 0.1\n").unwrap();
    let update = ["--baseline", "karat.lock", "--update-baseline"];
    let failed = gate(&[&update[..], &["--policy", "no.toml"]].concat()).expect(1);
    assert!(failed.stderr.contains("not written") && !lock.exists(), "{}", failed.stderr);
    let written = gate(&update).expect(0);
    assert!(written.stdout.contains("metrics written to karat.lock"), "{}", written.stdout);
    let same = gate(&["--baseline", "karat.lock", "--json"]).expect(0).json();
    assert_eq!(
        (same["verdict"].as_str(), same["baseline"]["changes"].as_array().map(Vec::len)),
        (Some("pass"), Some(0))
    );
    assert!(same["baseline"]["compared"].as_u64().unwrap() > 50, "{}", same["baseline"]);
    assert!(same["table"][0]["baseline"].is_number(), "{}", same["table"]);
    // A lower baseline: this run is worse than it, and taking it needs a reason.
    let text = std::fs::read_to_string(&lock).unwrap();
    let lower = |line: &str| match line.split(' ').collect::<Vec<_>>().as_slice() {
        ["metric", name, value, "n", n, "from", low, "to", high, rest @ ..]
            if name.starts_with("tap/stock/prefill/attn.q/") =>
        {
            let third = |v: &str| v.parse::<f64>().unwrap() / 3.0;
            let (value, low, high) = (third(value), third(low), third(high));
            format!("metric {name} {value:?} n {n} from {low:?} to {high:?} {}", rest.join(" "))
        }
        _ => line.to_string(),
    };
    std::fs::write(&lock, text.lines().map(|l| lower(l) + "\n").collect::<String>()).unwrap();
    let worse = gate(&["--baseline", "karat.lock"]).expect(1);
    assert!(
        worse.stdout.starts_with("regressed: worse than the baseline: tap/stock/prefill/attn.q/"),
        "{}",
        worse.stdout
    );
    let refused = gate(&update).expect(2);
    assert!(refused.stderr.contains("--reason TEXT"), "{}", refused.stderr);
    gate(&[&update[..], &["--reason", "another kernel"]].concat()).expect(0);
    assert!(std::fs::read_to_string(&lock).unwrap().contains(": another kernel\n"));
    gate(&["--baseline", "karat.lock"]).expect(0);
    std::fs::write(&lock, "<<<<<<< HEAD\n").unwrap();
    assert!(gate(&["--baseline", "karat.lock"]).expect(3).error().contains("karat.lock, line 1"));
}

#[test]
fn wrong_policies_and_arguments_are_told_before_anything_runs() {
    let dir = workplace();
    std::fs::write(dir.path().join("p.toml"), "format = \"karat-policy/1\"\n\n[[limit]]\nname = \"x\"\n").unwrap();
    let ran = karat(dir.path(), &["gate", "--policy", "p.toml"]).expect(3);
    assert!(ran.error().contains("p.toml, line 3: missing field `metric`"), "{}", ran.stderr);
    karat(dir.path(), &["gate", "--policy", "nowhere.toml"]).expect(3);
    let ran = karat(dir.path(), &["gate", "--from", "b", "--stock", "none"]).expect(2);
    assert!(ran.error().contains("--stock has no meaning with --from"), "{}", ran.stderr);
    karat(dir.path(), &["gate", "--from", "b", "--today", "2026-02-30"]).expect(2);
    karat(dir.path(), &["gate", "--from", "b"]).expect(3);
    karat(dir.path(), &["gate", "--histories", "all"]).expect(2);
}
