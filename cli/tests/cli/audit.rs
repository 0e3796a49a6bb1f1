use karat_bundle::Verdict;

use crate::support::{karat, without_numbers, workplace};

#[test]
fn the_f32_control_passes_and_says_so() {
    let dir = workplace();
    let args = ["audit", "--model", "mini", "--tokens", "ids.json", "--stock", "none", "--patches", "none", "--quiet"];
    let ran = karat(dir.path(), &args).expect(0);
    assert!(ran.stdout.starts_with("pass: all "), "{}", ran.stdout);
    assert_eq!(ran.stderr, "", "--quiet says nothing");
    assert!(ran.stdout.lines().all(|l| l.chars().count() <= 100), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\x1b'), "no colours when it is no terminal");
    insta::assert_snapshot!(without_numbers(&ran.stdout));
}

#[test]
fn a_bundle_holds_every_table_and_reads_back() {
    let dir = workplace();
    let args = ["audit", "--model", "mini", "--tokens", "ids.json", "--patches", "bf16-mhc", "--out", "b", "--json"];
    let ran = karat(dir.path(), &args);
    let data = ran.json();
    let mut names: Vec<String> = std::fs::read_dir(dir.path().join("b"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = [
        "derivations.csv",
        "flips.csv",
        "histories.csv",
        "patches.csv",
        "recall.csv",
        "run.json",
        "taps.csv",
        "tokens.csv",
        "verdict.json",
    ];
    assert_eq!(names, expected);
    let bundle = karat_bundle::read(&dir.path().join("b")).unwrap();
    assert_eq!(i32::from(bundle.verdict.exit_code), ran.exit);
    assert_eq!(data["verdict"], bundle.verdict.verdict.name());
    assert_eq!(data["exit_code"], bundle.verdict.exit_code);
    assert_eq!(data["patches"][0]["patch"], "bf16-mhc");
    assert_eq!(bundle.run.command[0], "audit");
    assert_eq!((bundle.run.scenarios[0].name.as_str(), bundle.run.scenarios[0].rows), ("ids.json", 40));
    // Judged again from what was stored, the verdict is the same.
    let again = karat_bundle::judge(&bundle.evidence(), &bundle.run.policy);
    assert_eq!((again.verdict, again.reasons), (bundle.verdict.verdict, bundle.verdict.reasons));
}

#[test]
fn a_patch_that_no_step_exercises_is_unproven() {
    let dir = workplace();
    let args = ["audit", "--model", "mini", "--tokens", "ids.json", "--patches", "mma-sparse-mla", "--json"];
    let data = karat(dir.path(), &args).expect(4).json();
    assert_eq!(data["verdict"], Verdict::Unproven.name());
    let reason =
        "patch mma-sparse-mla was not exercised in decode; largest prefill that exercised this patch: 0 tokens";
    assert_eq!(data["reasons"][0], reason, "{data}");
    // Its rule is there nonetheless: the effect probe has decode steps of its own.
    assert_eq!(data["patches"][0]["state"], "active", "{data}");
    let args = ["audit", "--model", "mini", "--tokens", "ids.json", "--patches", "chunked-prefill", "--json"];
    let data = karat(dir.path(), &args).expect(4).json();
    assert!(data["reasons"][0].as_str().unwrap().contains("chunked-prefill was not exercised in prefill"), "{data}");
    let args = ["audit", "--model", "mini", "--tokens", "ids.json", "--patches", "chunked-prefill:size=16", "--json"];
    let data = karat(dir.path(), &args).expect(0).json();
    assert_eq!(
        (data["patches"][0]["state"].as_str(), data["patches"][0]["added_flips"].as_i64()),
        (Some("active"), Some(0))
    );
}

/// A rule that stands in the stock profile already, and a factor that is lost, are told by the effect probes.
#[test]
fn effect_probes_tell_an_inert_patch_and_a_lost_factor() {
    let dir = workplace();
    let base = ["audit", "--model", "mini", "--tokens", "ids.json", "--stock", "sglang", "--json", "--patches"];
    let data = karat(dir.path(), &[&base[..], &["tf32-mhc"]].concat()).expect(4).json();
    assert_eq!(data["patches"][0]["state"], "inert", "{data}");
    let data = karat(dir.path(), &[&base[..], &["routed-scaling-in-topk:hash=off"]].concat()).expect(1).json();
    assert_eq!(data["patches"][0]["state"], "applied 0 times", "{data}");
    let notes: Vec<&str> = data["notes"].as_array().unwrap().iter().filter_map(|n| n.as_str()).collect();
    assert!(notes.iter().any(|n| n.contains("applied 0 times at layers.0.ffn.routed")), "{notes:?}");
    // What the profile assumes stands in every report that uses it.
    for row in ["D5: cos and sin in f32 (assumed)", "D14: KV really rounded through FP8 (assumed)"] {
        assert!(notes.iter().any(|n| n.starts_with(&format!("stock sglang, {row}"))), "{row}: {notes:?}");
    }
}

#[test]
fn taps_and_layers_can_be_chosen() {
    let dir = workplace();
    let base = ["audit", "--model", "mini", "--tokens", "ids.json", "--patches", "none", "--out", "b", "--quiet"];
    let args = [&base[..], &["--taps", "layers.*.attn.in", "--layers", "2"]].concat();
    karat(dir.path(), &args).expect(0);
    let bundle = karat_bundle::read(&dir.path().join("b")).unwrap();
    assert!(!bundle.taps.is_empty() && bundle.taps.iter().all(|r| r.tap == "attn.in"));
    assert!(bundle.run.notes.iter().any(|n| n.contains("first 2 of 4 layers")), "{:?}", bundle.run.notes);
    let args = [&base[..], &["--taps", "layers.99.out"]].concat();
    karat(dir.path(), &args).expect(4);
}

#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn the_default_audit_runs_the_story_on_the_golden_model_and_checks_its_answers() {
    let dir = tempfile::tempdir().unwrap();
    let ran = karat(dir.path(), &["audit", "--quiet", "--out", "b"]).expect(0);
    assert!(ran.stdout.contains("mini golden model") && ran.stdout.contains("tic-tac-toe"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("random weights"), "{}", ran.stdout);
    assert!(ran.stdout.lines().all(|l| l.chars().count() <= 100), "{}", ran.stdout);
    let bundle = karat_bundle::read(&dir.path().join("b")).unwrap();
    let of_stock: Vec<_> = bundle.recall.iter().filter(|r| r.patch_set == "stock").collect();
    assert_eq!(of_stock.iter().map(|r| r.expected.as_str()).collect::<Vec<_>>(), ["tiny tower", "K472", "petra"]);
    for row in &bundle.recall {
        assert!(row.matched_golden == row.answer_tokens && row.matched_candidate == row.answer_tokens, "{row:?}");
        assert!(row.margin_stratum == "4+" && row.symptom == "fine", "{row:?}");
        // A cold history decodes the last answer; the earlier ones are part of its prompt.
        assert_eq!(row.phase, if row.expected == "petra" { "decode" } else { "prefill" }, "{row:?}");
    }
    assert!(bundle.patches.iter().all(|p| p.recall_lost == Some(0)), "{:?}", bundle.patches);
}

#[test]
fn histories_are_compared_with_the_cold_run_and_written() {
    let dir = workplace();
    let model = ["audit", "--model", "mini", "--tokens", "ids.json", "--quiet"];
    let control = ["--stock", "none", "--patches", "none", "--histories", "all", "--json", "--out", "h"];
    let data = karat(dir.path(), &[&model[..], &control].concat()).expect(0).json();
    let all = data["histories"].as_array().unwrap();
    assert_eq!((data["verdict"].as_str(), all.len()), (Some("pass"), 10), "{data}");
    for history in all {
        assert_eq!(history["bit_identical"], true, "{history}");
        assert!(history["golden"]["logits"].as_f64().unwrap() <= 1e-5, "{history}");
    }
    // The bundle alone gives the verdict again, and a table that says otherwise another.
    let mut bundle = karat_bundle::read(&dir.path().join("h")).unwrap();
    assert_eq!(karat_bundle::judge(&bundle.evidence(), &bundle.run.policy), bundle.verdict);
    let judged: Vec<_> = bundle.histories.iter().filter(|r| r.history == "warm" && r.verdict.is_some()).collect();
    assert_eq!(judged.len(), 3 + 5, "pages, logits, owners; five distances from golden: {judged:#?}");
    assert!(bundle.histories.iter().any(|r| r.history == "speculative" && r.what == "mtp logits" && r.compared > 0));
    assert!(bundle.tokens.iter().any(|r| r.history == "after-abort" && r.kl < 1e-9));
    bundle.histories[0].differs += 1;
    bundle.histories[0].value = Some(1.0);
    let report = karat_bundle::judge(&bundle.evidence(), &bundle.run.policy);
    assert_eq!((report.verdict.name(), report.reasons.len()), ("fail", 1), "{report:?}");
    // Quantised, with patches of decode alone: still its own cold run, with each row in its phase.
    let ran = karat(dir.path(), &[&model[..], &["--histories", "warm,after-abort"]].concat()).expect(0);
    assert!(ran.stdout.starts_with("pass: 2 histories, each bit-identical"), "{}", ran.stdout);
    // Pages of another size than the model's own 16.
    let pages = ["--histories", "after-abort,after-transfer", "--page", "32"];
    let ran = karat(dir.path(), &[&model[..], &pages].concat()).expect(0);
    assert!(ran.stdout.starts_with("pass: 2 histories, each bit-identical"), "{}", ran.stdout);
    assert!(ran.stdout.contains("32 tokens"), "{}", ran.stdout);
    assert!(ran.stdout.lines().all(|l| l.chars().count() <= 100), "{}", ran.stdout);
    for (page, history, words) in
        [("24", "all", "multiple of 16 tokens"), ("0", "all", "multiple"), ("16", "cold", "--page")]
    {
        let refused = karat(dir.path(), &[&model[..], &["--histories", history, "--page", page]].concat()).expect(2);
        assert!(refused.error().contains(words), "{}", refused.stderr);
    }
    let floor = karat(dir.path(), &[&model[..], &["--histories", "all", "--floor"]].concat()).expect(2);
    assert!(floor.error().contains("--floor has no meaning"), "{}", floor.stderr);
}

#[test]
fn a_report_judges_a_bundle_again_and_explains_a_tolerance() {
    let dir = workplace();
    let args = ["audit", "--model", "mini", "--tokens", "ids.json", "--patches", "none", "--out", "b", "--quiet"];
    let audit = karat(dir.path(), &args).expect(0);
    let report = karat(dir.path(), &["report", "b"]).expect(0);
    assert_eq!(report.stdout, audit.stdout, "the same page");
    let text = karat(dir.path(), &["report", "b", "--explain", "layers.1.attn.q"]).expect(0).stdout;
    for words in [
        "layers.1.attn.q, written by attn.query_up",
        "operand attn.qr",
        "e4m3 x 2^k / 128",
        " rows",
        "derived (rel_l2)",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    let data = karat(dir.path(), &["report", "b", "--explain", "layers.1.attn.q", "--json"]).expect(0).json();
    // The op's error is the root of the sum of squares of the roundings that are shown.
    let terms = data["roundings"].as_array().unwrap();
    let of = |t: &serde_json::Value| t["times"].as_f64().unwrap() * t["cost"].as_f64().unwrap().powi(2);
    let sum: f64 = terms.iter().map(of).sum();
    assert!((sum.sqrt() / data["op_error"].as_f64().unwrap() - 1.0).abs() < 1e-12, "{data}");
    for row in data["rows"].as_array().unwrap() {
        let of = |name: &str| row[name].as_f64().unwrap();
        // Where the tail of the ratio of two sums of squares is exp(-8).
        let chance = (4.0 / of("effective_rows")).exp().acosh().exp();
        if row["basis"] == "derived" {
            assert!((of("tolerance") / (1.5 * of("derived") * chance) - 1.0).abs() < 1e-12, "{row}");
        }
    }
    let none = karat(dir.path(), &["report", "b", "--explain", "attn.q"]).expect(2);
    assert!(none.error().contains("layers.0.attn.q"), "{}", none.stderr);
    assert!(karat(dir.path(), &["report", "nowhere"]).expect(3).error().contains("no such folder"));
}
