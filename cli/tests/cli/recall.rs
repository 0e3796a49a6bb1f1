use crate::support::{karat, without_numbers, workplace};

#[test]
fn golden_recalls_a_turn_and_the_control_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let story =
        include_str!("../../../scenarios/library/turn-two.toml").replace("conversations = 6", "conversations = 2");
    std::fs::write(dir.path().join("two.toml"), story).unwrap();
    let golden = karat(dir.path(), &["recall", "two.toml", "--golden", "--quiet", "--json"]).expect(0).json();
    let set = &golden["recall"][0];
    assert_eq!((&set["patch_set"], &set["lost"]), (&"golden".into(), &0.into()), "{set}");
    assert_eq!(set["by_scenario"][0]["golden"], set["answers"]);
    let args = ["recall", "two.toml", "--stock", "none", "--patches", "none", "--quiet", "--out", "b"];
    // Two conversations can't rule a loss of 1 % out.
    let control = karat(dir.path(), &args).expect(4);
    assert!(control.stdout.starts_with("unproven: stock: 0 lost, 0 gained of "), "{}", control.stdout);
    assert!(control.stdout.lines().all(|l| l.chars().count() <= 100), "{}", control.stdout);
    insta::assert_snapshot!(without_numbers(&control.stdout));
    let bundle = karat_bundle::read(&dir.path().join("b")).unwrap();
    assert!(bundle.taps.is_empty() && bundle.recall.iter().all(|r| r.answer_kl < 1e-9), "{:?}", bundle.recall);
    assert!(bundle.recall.iter().all(|r| r.amnesia.is_some_and(|a| a < 0.01)), "{:?}", bundle.recall);
}

#[test]
fn parts_merge_to_the_run_that_was_never_parted() {
    let dir = tempfile::tempdir().unwrap();
    let at = |file: &str| dir.path().join(file);
    let story = |n| {
        include_str!("../../../scenarios/library/turn-two.toml")
            .replace("conversations = 6", &format!("conversations = {n}"))
    };
    std::fs::write(at("three.toml"), story(3)).unwrap();
    std::fs::write(at("two.toml"), story(2)).unwrap();
    let run = |more: &[&str]| {
        let args = ["recall", "three.toml", "--patches", "fp8-kv", "--quiet"];
        karat(dir.path(), &[&args[..], more].concat())
    };
    assert!([0, 1, 4].contains(&run(&["--out", "whole"]).exit));
    for part in ["1/2", "2/2"] {
        let ran = run(&["--partition", part, "--out", &part[..1]]);
        assert!([0, 1, 4].contains(&ran.exit), "{}{}", ran.stdout, ran.stderr);
    }
    let merged = karat(dir.path(), &["merge", "2", "1", "--out", "merged"]);
    let file = |bundle: &str, file: &str| std::fs::read_to_string(at(bundle).join(file)).unwrap();
    for name in ["recall.csv", "verdict.json", "tokens.csv", "patches.csv"] {
        assert_eq!(file("merged", name), file("whole", name), "{name}");
    }
    assert!(file("whole", "recall.csv").lines().count() > 3 && merged.stdout.contains("answers"), "{}", merged.stdout);
    let missing = karat(dir.path(), &["merge", "1", "--out", "x"]).expect(3);
    assert!(missing.error().contains("part 2 of 2 is missing"), "{}", missing.stderr);
    let other = ["recall", "two.toml", "--patches", "fp8-kv", "--quiet", "--partition", "2/2", "--out", "other"];
    karat(dir.path(), &other);
    let mixed = karat(dir.path(), &["merge", "1", "other", "--out", "x"]).expect(3);
    assert!(mixed.error().contains("other and 1 are no parts of one run"), "{}", mixed.stderr);
    let early = run(&["--partition", "1/2", "--stop-early"]).expect(2);
    assert!(early.stderr.contains("--stop-early"), "{}", early.stderr);
}

#[test]
fn recall_refuses_what_it_cannot_ask() {
    let dir = workplace();
    let toml = "format = \"karat-scenario/1\"\ntitle = \"t\"\n[[messages]]\nrole = \"user\"\ncontent = \"hello.\"\n";
    std::fs::write(dir.path().join("mute.toml"), toml).unwrap();
    let mute = karat(dir.path(), &["recall", "mute.toml", "--quiet"]).expect(2);
    assert!(mute.error().contains("ask nothing"), "{}", mute.stderr);
    for (args, words) in
        [(&["--margin", "0"][..], "--margin"), (&["no-such"], "no-such"), (&["--endpoint", "x"], "not a URL")]
    {
        let ran = karat(dir.path(), &[&["recall", "--quiet"], args].concat()).expect(2);
        assert!(ran.error().contains(words), "{}", ran.stderr);
    }
}
