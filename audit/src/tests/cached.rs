//! The lockstep loop with a cache: the same outcome, and nothing computed twice.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use karat_diff::Claims;
use karat_seam::{Op, Phase, Site, Tap};

use super::fake::{Fake, Fault, requests};
use super::lockstep::facts;
use crate::{Cache, Candidate, Lockstep, Outcome, PatchSpec, Progress, Quiet};

fn run(golden: &Fake, candidates: &[(&str, &Fake)], cache: Option<&Cache>, layers: Option<u16>) -> Outcome {
    run_until(golden, candidates, cache, layers, &Quiet).unwrap()
}

fn run_until(
    golden: &Fake,
    candidates: &[(&str, &Fake)],
    cache: Option<&Cache>,
    layers: Option<u16>,
    progress: &dyn Progress,
) -> crate::Result<Outcome> {
    let spec = PatchSpec {
        name: "fast".into(),
        ops: vec![Op::OutputUp],
        phases: vec![Phase::Prefill],
        claimed_error: 1e-3,
        risk: "low".into(),
        exact: false,
    };
    let candidates = candidates
        .iter()
        .map(|(set, path)| Candidate {
            patches: if *set == "stock" { vec![] } else { vec![spec.clone()] },
            ..Candidate::new(*set, *path, Claims::Bf16)
        })
        .collect();
    let lockstep = Lockstep {
        golden,
        floor: Some(golden),
        candidates,
        scenarios: vec!["test".into(); golden.requests.seqs.len()],
        asks: &[],
        facts: facts(),
        taps: &|_: Site| true,
        layers,
        cache,
        states: None,
    };
    lockstep.run(progress, &AtomicBool::new(false))
}

/// Dies when a step begins.
struct Dies {
    at: u64,
    /// What the step was.
    last_words: Mutex<String>,
}

impl Progress for Dies {
    fn step(&self, done: u64, _: u64, what: &str) {
        if done == self.at {
            *self.last_words.lock().unwrap() = what.to_string();
            panic!("the end");
        }
    }
}

/// Everything but times and passes.
fn shown(o: &Outcome) -> String {
    format!("{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}", o.taps, o.tokens, o.flips, o.own_errors, o.notes, o.calls)
}

fn fault(layer: u16, gain: f32) -> Fault {
    Fault { gain: Some((layer, Tap::AttnOut, gain)), wrong_experts: Some((1, 3)), ..Fault::default() }
}

fn every_entry(dir: &Path, f: &mut dyn FnMut(&Path)) {
    let list = |dir: &Path| fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
    let mut all: Vec<_> = list(dir).iter().flat_map(|l| list(l)).flat_map(|shelf| list(&shelf)).collect();
    all.sort();
    all.iter().for_each(|path| f(path));
}

#[test]
fn the_same_outcome_with_and_without_and_nothing_runs_twice() {
    let golden = Fake::new(requests(&[7, 3]), Fault::default());
    let (stock, fast) = (Fake::new(requests(&[7, 3]), fault(0, 1.01)), Fake::new(requests(&[7, 3]), fault(1, 1.02)));
    let candidates = [("stock", &stock), ("stock+fast", &fast)];
    let without = run(&golden, &candidates, None, None);
    let dir = tempfile::tempdir().unwrap();
    let open = || Cache::open(dir.path(), 1 << 20).unwrap();
    let cache = open();
    let first = run(&golden, &candidates, Some(&cache), None);
    assert_eq!((shown(&first), first.forward_equivalents), (shown(&without), without.forward_equivalents));
    assert_eq!((cache.used().comparisons, cache.used().comparisons_asked), (0, 10));
    let cache = open();
    let again = run(&golden, &candidates, Some(&cache), None);
    assert_eq!((shown(&again), again.forward_equivalents), (shown(&without), 0.0));
    let used = cache.used();
    assert_eq!((used.comparisons, used.comparisons_asked, used.golden, used.golden_asked), (10, 10, 5, 5));
    assert_eq!(used.written_bytes, 0);
}

#[test]
fn a_changed_candidate_is_all_that_runs() {
    let golden = Fake::new(requests(&[7]), Fault::default());
    let (stock, fast) = (Fake::new(requests(&[7]), fault(0, 1.01)), Fake::new(requests(&[7]), fault(1, 1.02)));
    let other = Fake::new(requests(&[7]), fault(1, 1.03));
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path(), 1 << 20).unwrap();
    run(&golden, &[("stock", &stock), ("stock+fast", &fast)], Some(&cache), None);
    let changed = run(&golden, &[("stock", &stock), ("stock+fast", &other)], Some(&cache), None);
    let without = run(&golden, &[("stock", &stock), ("stock+fast", &other)], None, None);
    assert_eq!(shown(&changed), shown(&without));
    // Its own pass and golden on its x': stock, R(x), R(x') of stock and the floor came from the cache.
    assert_eq!((changed.forward_equivalents, without.forward_equivalents), (2.0, 6.0));
    // A changed stock changes what a patch's logits are judged by, and nothing else of the patch.
    let moved = run(&golden, &[("stock", &other), ("stock+fast", &fast)], Some(&cache), None);
    let without = run(&golden, &[("stock", &other), ("stock+fast", &fast)], None, None);
    assert_eq!(shown(&moved), shown(&without));
    assert_eq!(moved.forward_equivalents, 3.0);
}

/// Wherever a run dies, the next one takes every block before from the cache: one layer's work is lost at most.
#[test]
fn a_death_loses_one_layer_at_most() {
    let golden = Fake::new(requests(&[5]), Fault::default());
    let (stock, fast) = (Fake::new(requests(&[5]), fault(0, 1.01)), Fake::new(requests(&[5]), fault(1, 1.02)));
    let candidates = [("stock", &stock), ("stock+fast", &fast)];
    let without = shown(&run(&golden, &candidates, None, None));
    let mut blocks_seen = std::collections::BTreeSet::new();
    for at in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let dies = Dies { at, last_words: Mutex::default() };
        let cache = Cache::open(dir.path(), 1 << 20).unwrap();
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run_until(&golden, &candidates, Some(&cache), None, &dies).map(|_| ())
        }));
        if ran.is_ok() {
            break;
        }
        let words = dies.last_words.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Embed is block 0, layer 0 block 1; the head is the last.
        let block = match words.rsplit(' ').next().unwrap() {
            "head" => 4,
            layer => layer.parse::<u64>().map_or(0, |l| l + 1),
        };
        blocks_seen.insert(block);
        let cache = Cache::open(dir.path(), 1 << 20).unwrap();
        let resumed = run(&golden, &candidates, Some(&cache), None);
        assert_eq!(shown(&resumed), without);
        let used = cache.used();
        assert!(used.golden >= block && used.comparisons >= 2 * block, "{words}: {used:?}");
    }
    assert_eq!(blocks_seen.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn a_run_goes_on_where_another_ended() {
    let golden = Fake::new(requests(&[5]), Fault::default());
    let stock = Fake::new(requests(&[5]), fault(0, 1.01));
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path(), 1 << 20).unwrap();
    run(&golden, &[("stock", &stock)], Some(&cache), Some(2));
    let whole = run(&golden, &[("stock", &stock)], Some(&cache), None);
    assert_eq!(shown(&whole), shown(&run(&golden, &[("stock", &stock)], None, None)));
    // Only the third layer: R(x), R(x'), the floor, the candidate, of three layers.
    assert_eq!(whole.forward_equivalents, 4.0 / 3.0);
}

#[test]
fn any_entry_may_be_damaged_or_gone() {
    let golden = Fake::new(requests(&[4]), Fault::default());
    let stock = Fake::new(requests(&[4]), fault(0, 1.01));
    let fast = Fake::new(requests(&[4]), fault(1, 1.02));
    let candidates = [("stock", &stock), ("stock+fast", &fast)];
    let want = shown(&run(&golden, &candidates, None, None));
    let dir = tempfile::tempdir().unwrap();
    run(&golden, &candidates, Some(&Cache::open(dir.path(), 1 << 20).unwrap()), None);
    let mut paths = Vec::new();
    every_entry(dir.path(), &mut |path| paths.push(path.to_path_buf()));
    assert!(paths.len() > 20, "{}", paths.len());
    for path in &paths {
        let whole = fs::read(path).unwrap();
        let mut bad = whole.clone();
        *bad.last_mut().unwrap() ^= 1;
        for content in [Some(bad), Some(whole[..whole.len() / 2].to_vec()), None] {
            match content {
                Some(content) => fs::write(path, content).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
            let cache = Cache::open(dir.path(), 1 << 20).unwrap();
            assert_eq!(shown(&run(&golden, &candidates, Some(&cache), None)), want, "{}", path.display());
            fs::write(path, &whole).unwrap();
        }
    }
    // All streams gone, and one comparison: the run starts again from the embedding.
    let holds = |path: &Path, text: &[u8]| fs::read(path).unwrap().windows(text.len()).any(|w| w == text);
    let comparison = paths.iter().find(|p| holds(p, b"stock+fast") && holds(p, b"ffn.out"));
    fs::remove_file(comparison.unwrap()).unwrap();
    every_entry(dir.path(), &mut |path| {
        let file = fs::read(path).unwrap();
        // A stream's name is the hash of its content: key and checksum are one.
        if file[16..48] == file[48..80] {
            fs::remove_file(path).unwrap();
        }
    });
    let cache = Cache::open(dir.path(), 1 << 20).unwrap();
    let again = run(&golden, &candidates, Some(&cache), None);
    assert_eq!(shown(&again), want);
    assert_eq!(again.forward_equivalents, 6.0, "nothing was taken from the cache: {:?}", cache.used());
    assert_eq!((cache.used().comparisons, cache.used().comparisons_asked), (0, 10));
}

#[test]
fn a_bound_that_is_too_small_costs_time_and_no_more() {
    let golden = Fake::new(requests(&[7]), Fault::default());
    let stock = Fake::new(requests(&[7]), fault(0, 1.01));
    let want = shown(&run(&golden, &[("stock", &stock)], None, None));
    for limit in [0, 3000, 20_000, 60_000] {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..3 {
            let cache = Cache::open(dir.path(), limit).unwrap();
            assert_eq!(shown(&run(&golden, &[("stock", &stock)], Some(&cache), None)), want, "{limit}");
        }
        assert!(Cache::holding(dir.path()).bytes <= limit, "{limit}");
    }
}
