use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_model::{Checkpoint, Geometry, new_model};
use karat_optimized::Stock;

use super::*;
use crate::{Inputs, Quiet};

/// Effects in a path that was asked for `asked` and runs `really`.
fn seen(asked: &[&str], really: &[&str]) -> Effects {
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
    let plan = |patches: &[&str]| Plan {
        stock: Stock::Sglang,
        patches: patches.iter().map(ToString::to_string).collect(),
        history: History::Cold,
    };
    let really = plan(really);
    let open = |requests| {
        let path = Optimized::new(job.checkpoint.clone(), requests, really.clone(), 1)?;
        Ok(Box::new(path) as Box<dyn Path>)
    };
    Effects::seen(&job, &plan(asked), &open).unwrap()
}

#[test]
fn what_runs_behind_the_seam_is_told_not_what_was_asked_for() {
    let asked = ["bf16-mhc", "mma-sparse-mla", "routed-scaling-in-topk", "chunked-prefill"];
    let right = seen(&asked, &asked);
    assert!(right.states.values().all(|s| s == "active") && right.notes.is_empty(), "{right:?}");
    assert_eq!(right.states.len(), 3, "a patch that only cuts prompts is told by the run's steps");
    // One is off, and the factor is lost in the layers that route by token id.
    let wrong = seen(&asked, &["bf16-mhc", "routed-scaling-in-topk:hash=off", "chunked-prefill"]);
    let of = |patch: &str| wrong.states[patch].as_str();
    let found = [of("bf16-mhc"), of("mma-sparse-mla"), of("routed-scaling-in-topk")];
    assert_eq!(found, ["active", "inert", "applied 0 times"]);
    let notes = [
        "effect probe: patch mma-sparse-mla changes nothing at layers.0.attn.lse in decode",
        "effect probe: patch routed-scaling-in-topk is applied 0 times at layers.0.ffn.routed in prefill",
    ];
    assert_eq!(wrong.notes, notes);
}

#[test]
fn a_plan_is_probed_once_and_again_when_what_was_kept_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::from_memory("mini", new_model(Geometry::Mini, 3)).unwrap();
    let plan = |patches: &[&str]| Plan {
        stock: Stock::Official,
        patches: patches.iter().map(ToString::to_string).collect(),
        history: History::Cold,
    };
    let found = Effects {
        states: [("bf16-mhc".to_string(), "applied 2 times".to_string())].into(),
        notes: vec!["a sentence".to_string()],
    };
    let mut probes = 0;
    let mut ask = |plan: &Plan| {
        let cache = Cache::open(dir.path(), 1 << 20).unwrap();
        let probe = || {
            probes += 1;
            Ok(found.clone())
        };
        assert_eq!(Effects::kept(Some(&cache), &checkpoint, plan, probe).unwrap(), found);
        probes
    };
    let asked = [&plan(&["bf16-mhc"]), &plan(&["bf16-mhc"]), &plan(&["bf16-mhc", "fp8-indexer"])];
    assert_eq!(asked.map(&mut ask), [1, 1, 2]);
    let bytes = found.write();
    assert_eq!(Effects::read(&bytes), Some(found.clone()));
    assert!((0..bytes.len()).all(|n| Effects::read(&bytes[..n]).is_none()));
}
