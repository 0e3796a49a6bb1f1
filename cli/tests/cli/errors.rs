use crate::support::{karat, karat_in, workplace};

#[test]
fn clap_refuses_what_is_no_argument() {
    let dir = tempfile::tempdir().unwrap();
    for args in
        [&["audit", "--no-such-flag"][..], &["nonsense"], &["audit", "--threads", "0"], &["trace", "--out", "x"]]
    {
        let ran = karat(dir.path(), args).expect(2);
        assert!(ran.stdout.is_empty() && ran.stderr.starts_with("error: "), "{}", ran.stderr);
    }
    let help = karat(dir.path(), &["--help"]).expect(0).stdout;
    assert!(help.contains("Exit codes") && help.contains("audit"), "{help}");
}

#[test]
fn what_is_not_in_this_version_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let ran = karat(dir.path(), &["diff", "a", "b", "--out", "c"]).expect(2);
    assert!(ran.error().contains("is not in this version"), "{}", ran.stderr);
}

#[test]
fn a_gpu_that_is_not_there_exits_2() {
    let dir = tempfile::tempdir().unwrap();
    let cuda = ["--backend", "cuda"];
    let none = [("CUDA_VISIBLE_DEVICES", "-1"), ("KARAT_NO_CACHE", "1")];
    for args in [&["audit"][..], &["gate"], &["recall"], &["trace", "--path", "golden", "--out", "t"]] {
        let ran = karat_in(dir.path(), &[args, &cuda].concat(), &none).expect(2);
        assert!(ran.error().starts_with("--backend cuda: "), "{args:?}: {}", ran.stderr);
    }
    for (args, words) in [
        (&["audit", "--pack", "p"][..], "it needs --backend cuda"),
        (&["audit", "--histories", "all", "--backend", "cuda"], "several histories"),
        (&["audit", "--tier", "exact-split"], "--tier exact-split needs --backend cuda"),
        (&["recall", "--tier", "exact-split", "--backend", "cpu"], "--tier exact-split needs --backend cuda"),
        (&["gate", "--backend", "cuda", "--tier", "fast"], "--tier: expected bits or exact-split, found `fast`"),
        (
            &["trace", "--path", "golden", "--out", "t", "--tier", "f16"],
            "--tier: expected bits or exact-split, found `f16`",
        ),
        (&["gate", "--from", "b", "--tier", "bits"], "--tier has no meaning with --from"),
        (&["audit", "--backend", "cuda", "--tier", "exact-split"], "--backend cuda: "),
    ] {
        let ran = karat_in(dir.path(), args, &none).expect(2);
        assert!(ran.error().contains(words), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn every_command_that_runs_golden_names_its_tiers() {
    let dir = tempfile::tempdir().unwrap();
    for command in ["audit", "gate", "recall", "trace"] {
        let help = karat(dir.path(), &[command, "--help"]).expect(0).stdout;
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let told = "--tier <TIER> Arithmetic of golden's products on --backend cuda: bits (the CPU's, the default), or exact-split \
                    (on the tensor cores where the weight is exact in bf16, with a stated floor: for big models)";
        assert!(words.contains(told), "{command}: {help}");
    }
}

#[test]
fn arguments_that_contradict_each_other_exit_2() {
    let dir = workplace();
    let model = ["audit", "--model", "mini", "--quiet"];
    let cases: [(&[&str], &str); 11] = [
        (&["--tokens", "ids.json", "--layers", "99"], "the model has"),
        (&["--tokens", "ids.json", "tic-tac-toe"], "not both"),
        (&["--tokens", "ids.json", "--patches", "nonsense"], "nonsense"),
        (&["--tokens", "ids.json", "--without", "nonsense"], "nonsense"),
        (&["--stock", "nonsense"], "nonsense"),
        (&["--backend", "tpu"], "tpu"),
        (&["--histories", "warm,nonsense"], "nonsense"),
        (&["--layers", "0"], "--layers 0"),
        (&["--candidate", "t", "--claims", "nonsense"], "nonsense"),
        (&["--candidate", "t", "--claims", "f32", "--stock", "none"], "no meaning"),
        (&["no-such-scenario"], "no-such-scenario"),
    ];
    for (args, words) in cases {
        let ran = karat(dir.path(), &[&model[..], args].concat()).expect(2);
        assert!(ran.error().contains(words), "{args:?}: {}", ran.stderr);
    }
    std::fs::create_dir(dir.path().join("mine")).unwrap();
    std::fs::write(dir.path().join("mine").join("thesis"), "x").unwrap();
    let ids = ["--tokens", "ids.json", "--patches", "none", "--layers", "1"];
    let ran = karat(dir.path(), &[&model[..], &ids, &["--out", "mine"]].concat()).expect(2);
    assert!(ran.error().contains("mine"), "{}", ran.stderr);
}

#[test]
fn unreadable_input_exits_3_with_one_message() {
    let dir = workplace();
    std::fs::write(dir.path().join("cut.json"), r#"{"sequences":[{"id":"a","inp"#).unwrap();
    std::fs::write(dir.path().join("big.json"), r#"{"sequences":[{"id":"a","input_ids":[99999]}]}"#).unwrap();
    std::fs::write(dir.path().join("bad.toml"), "format = 1").unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["audit", "--model", "nowhere"], "nowhere"),
        (&["audit", "--model", "mini", "--tokens", "nowhere.json"], "nowhere.json"),
        (&["audit", "--model", "mini", "--tokens", "cut.json"], "cut.json"),
        (&["audit", "--model", "mini", "--tokens", "big.json"], "99999"),
        (&["audit", "--model", "mini", "bad.toml"], "bad.toml"),
        (&["audit", "--model", "mini", "--candidate", "nowhere", "--claims", "f32"], "nowhere"),
        (&["diff", "nowhere", "mini"], "nowhere"),
        (&["model", "inspect", "nowhere"], "nowhere"),
        (&["doctor", "--plan", "cut.json"], "cut.json"),
    ];
    for (args, words) in cases {
        let ran = karat(dir.path(), &[args, &["--quiet"]].concat()).expect(3);
        assert!(ran.error().contains(words) && ran.stdout.is_empty(), "{args:?}: {}", ran.stderr);
        let json = karat(dir.path(), &[args, &["--quiet", "--json"]].concat()).expect(3).json();
        assert!(json["error"].as_str().unwrap().contains(words) && json["exit_code"] == 3, "{json}");
    }
}

/// A full disk must not look like a run that passed; a reader that has gone away is no error.
#[test]
#[cfg(target_os = "linux")]
fn a_result_that_cannot_be_written_is_an_error() {
    let list = |out: std::process::Stdio| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_karat"));
        command.args(["scenario", "list"]).stdout(out).stderr(std::process::Stdio::piped());
        command.spawn().unwrap().wait_with_output().unwrap()
    };
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = list(full.into());
    assert_eq!(ran.status.code(), Some(75));
    assert!(String::from_utf8_lossy(&ran.stderr).starts_with("error: the result can't be written"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(list(writer.into()).status.code(), Some(0));
}

#[test]
fn taps_that_no_tap_fits_are_unproven_and_say_so() {
    let dir = workplace();
    let args = ["audit", "--model", "mini", "--quiet", "--tokens", "ids.json", "--taps", "layers.0.nothing"];
    let ran = karat(dir.path(), &args).expect(4);
    assert!(ran.stdout.starts_with("unproven: --taps admits none"), "{}", ran.stdout);
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_run_with_130_and_leaves_no_bundle() {
    let dir = workplace();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_karat"))
        .current_dir(dir.path())
        // One thread, and golden in f64 too: on a quiet machine the default audit ends before its first line of progress.
        .args(["audit", "--no-cache", "--floor", "--rerun", "--threads", "1", "--out", "bundle"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The first line of progress: the handler is in place and the run has begun.
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut first).unwrap();
    assert!(std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130), "after {first}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("bundle")), "{left:?}");
}
