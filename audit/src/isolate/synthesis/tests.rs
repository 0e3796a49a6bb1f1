use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_bundle::Verdict;
use karat_model::{Checkpoint, Geometry, new_model};
use karat_optimized::{History, Stock};

use super::super::evidence::{Audited, Decode, Evidence, Logits, Phases, Recalled, Served};
use super::{Synthesis, of};
use crate::bisect::{Ended, Over, Stage};
use crate::{Inputs, Isolate, Job, Quiet, StepRun, Subject};

fn synthesis(found: &Evidence, steps: Vec<StepRun>) -> Synthesis {
    let stop = AtomicBool::new(false);
    let job = Job {
        random_weights: true,
        ..Job::new(
            Arc::new(Checkpoint::from_memory("mini", new_model(Geometry::Mini, 3)).unwrap()),
            Inputs::default(),
            &Quiet,
            &stop,
        )
    };
    let patches = vec!["fp8-kv".to_string(), "mma-sparse-mla".to_string()];
    let subject = Subject { stock: Stock::Official, patches, history: History::Cold };
    let ask = Isolate { subject, quick: Err("none".into()), arguments: "made.toml".into(), change: None, books: None };
    of(&job, &ask, found, steps, vec!["no kernel ran".into()])
}

fn logits(kl: f64, flips: usize, lost: &[&str]) -> Logits {
    let lost = lost.iter().map(ToString::to_string).collect();
    Logits { positions: 100, kl, decode: Some(kl), flips, given: 4, lost, ..Logits::default() }
}

fn stage(over: Over, found: &[&str], share: f64) -> Stage {
    Stage {
        over,
        ended: Ended::Found,
        found: found.iter().map(ToString::to_string).collect(),
        sentence: format!("{over:?} sentence"),
        criterion: "c".into(),
        is_absolute: false,
        share: Some(share),
    }
}

fn served(name: &str, differs: Option<&str>) -> Served {
    Served { name: name.into(), differs: differs.map(Into::into), lacks: None, broken: None }
}

/// A path in which nothing is broken: what it is not is said with numbers.
fn sound() -> Evidence {
    Evidence {
        recall: Some(Recalled { conversations: 3, answers: 20, upper: 0.1, ..Recalled::default() }),
        decode: Some(Decode {
            patches: vec!["mma-sparse-mla".into()],
            with: logits(2e-4, 1, &[]),
            without: logits(2e-4, 1, &[]),
        }),
        logits: Some((logits(2e-4, 1, &[]), logits(1.9e-4, 1, &[]))),
        phases: Some(Phases { rows: 30, all: (1e-9, 0), stock: (0.0, 0) }),
        reverts: Some(vec![
            ("fp8-kv".into(), logits(1.95e-4, 1, &[])),
            ("mma-sparse-mla".into(), logits(2e-4, 1, &[])),
        ]),
        histories: Some(vec![served("cold", None), served("warm", None)]),
        audit: Some(Audited { verdict: Verdict::Pass, judged: 50, ..Audited::default() }),
        layer: Some(stage(Over::Layers, &["layer 3"], 0.2)),
        op: Some(stage(Over::Ops, &["attn.attend"], 0.9)),
        smallest: None,
    }
}

#[test]
fn a_sound_path_has_nothing_broken_and_much_that_is_ruled_out() {
    let out = synthesis(&sound(), vec![]);
    assert_eq!(out.verdict, Verdict::Pass);
    assert_eq!(
        out.suspects.iter().map(|s| s.what.as_str()).collect::<Vec<_>>(),
        ["the stock profile's own number formats"]
    );
    let ruled: Vec<(&str, &str)> = out.ruled_out.iter().map(|m| (m.step, m.what.split(':').next().unwrap())).collect();
    for expected in [
        ("recall", "a lost conversation"),
        ("decode kernels", "mma-sparse-mla"),
        ("prefill against decode", "decoding as such"),
        ("one-line reverts", "fp8-kv"),
        ("histories", "the cache and the scheduler, as far as these histories go"),
        ("layers and ops", "one layer alone"),
    ] {
        assert!(ruled.contains(&expected), "{expected:?} of {ruled:?}");
    }
    assert!(out.unknown.iter().any(|u| u == "no kernel ran"));
    assert!(out.next.iter().any(|n| n.command == "karat recall --all"), "{:?}", out.next);
}

#[test]
fn what_breaks_something_comes_before_what_only_costs() {
    let mut found = sound();
    found.logits = Some((logits(8e-2, 30, &["K472", "petra"]), logits(1e-4, 1, &[])));
    found.reverts =
        Some(vec![("fp8-kv".into(), logits(1e-4, 1, &[])), ("mma-sparse-mla".into(), logits(1e-4, 1, &[]))]);
    found.smallest = Some(stage(Over::Patches, &["fp8-kv", "mma-sparse-mla"], 0.0));
    found.layer = Some(stage(Over::Layers, &["layer 2"], 0.93));
    found.op = Some(stage(Over::Ops, &["attn.attend"], 0.97));
    let out = synthesis(&found, vec![]);
    assert_eq!(out.verdict, Verdict::Fail);
    let order: Vec<&str> = out.suspects.iter().map(|s| s.what.as_str()).collect();
    assert_eq!(order[0], "fp8-kv and mma-sparse-mla together", "{order:?}");
    assert!(order.contains(&"patch fp8-kv") && order.contains(&"attn.attend of layer 2"), "{order:?}");
    assert!(out.sentence.starts_with("2 of 4 answers that golden gives are lost"), "{}", out.sentence);
    assert!(
        out.next[0].command.contains("bisect made.toml --stock official --patches fp8-kv,mma-sparse-mla --over all")
    );
    // A cache that changes a bit comes before everything.
    found.histories = Some(vec![served("cold", None), served("after-evict", Some("layer 2, window"))]);
    let out = synthesis(&found, vec![]);
    assert_eq!(out.suspects[0].what, "cache or scheduler: history after-evict");
    assert!(out.next[0].command.ends_with("--histories after-evict"), "{:?}", out.next);
    // "warm" was the same, but not every history that ran was.
    assert!(!out.ruled_out.iter().any(|m| m.what.starts_with("the cache")));
}

#[test]
fn a_failed_step_takes_nothing_else_along() {
    let failed = |name| StepRun { name, seconds: 0.0, forward_equivalents: 0.0, failed: Some("disk".into()) };
    let found = Evidence { audit: None, reverts: None, ..sound() };
    let out = synthesis(&found, vec![failed("audit")]);
    assert_eq!(out.verdict, Verdict::Pass);
    assert!(out.unknown.contains(&"step `audit` failed: disk".to_string()), "{:?}", out.unknown);
    let nothing = synthesis(&Evidence::default(), vec![failed("audit")]);
    assert_eq!((nothing.verdict, nothing.facts.len()), (Verdict::Unproven, 0));
}
