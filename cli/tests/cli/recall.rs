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
