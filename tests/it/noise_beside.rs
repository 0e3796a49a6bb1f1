//! The noise that tolerances are derived from goes through golden's layer beside golden itself: one pass over the weights, and the rows of
//! two passes.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use karat_audit::{Candidate, Facts, Lockstep, Outcome, Quiet, Rules};
use karat_diff::Claims;
use karat_model::Checkpoint;
use karat_model::new::{Geometry, new_model};
use karat_optimized::{History, Optimized, Plan, Stock};
use karat_reference::{Golden, Mode};
use karat_seam::{
    Blocks, Lane, Layer, Op, Path, Phase, Requests, Result, RowId, Sequence, Streams, Tap, Tensor, Visitor,
};

use crate::optimized_drive::{ids, turns};

/// Golden, with the lanes of each pass counted by layer.
struct Watched {
    inner: Golden,
    /// Runs the lanes one after the other, the last first: nothing that one lane shows is there for another.
    backwards: bool,
    passes: Mutex<Vec<(u16, usize)>>,
}

struct WatchedLayer<'a> {
    of: &'a Watched,
    l: u16,
    inner: Box<dyn Layer + 'a>,
}

impl Layer for WatchedLayer<'_> {
    fn run(&self, lanes: &mut [Lane<'_>]) -> Result<()> {
        self.of.passes.lock().unwrap().push((self.l, lanes.len()));
        if self.of.backwards {
            return lanes.chunks_mut(1).rev().try_for_each(|lane| self.inner.run(lane));
        }
        self.inner.run(lanes)
    }

    fn op(&self, op: Op, operands: &[(Tap, Tensor)], rows: &[RowId]) -> Result<Vec<(Tap, Tensor)>> {
        self.inner.op(op, operands, rows)
    }

    fn has_op(&self, op: Op) -> bool {
        self.inner.has_op(op)
    }
}

impl Path for Watched {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn identity(&self) -> [u8; 32] {
        self.inner.identity()
    }

    fn requests(&self) -> &Requests {
        self.inner.requests()
    }

    fn blocks(&self) -> Blocks {
        Blocks { mtp: 0, ..self.inner.blocks() }
    }

    fn embed(&self, see: &mut dyn Visitor) -> Result<Streams> {
        self.inner.embed(see)
    }

    fn layer(&self, l: u16) -> Result<Box<dyn Layer + '_>> {
        Ok(Box::new(WatchedLayer { of: self, l, inner: self.inner.layer(l)? }))
    }

    fn head(&self, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        self.inner.head(lanes)
    }
}

/// An audit of stock and of stock with some patches; and golden's passes.
fn audited(requests: &Requests, patches: &[&[&str]], backwards: bool) -> (Outcome, Vec<(u16, usize)>) {
    let checkpoint = Arc::new(Checkpoint::from_memory("mini", new_model(Geometry::Mini, 3)).unwrap());
    let inner = Golden::new(checkpoint.clone(), requests.clone(), Mode::F32, 2).unwrap();
    let golden = Watched { inner, backwards, passes: Mutex::default() };
    let path = |patches: &&[&str]| {
        let patches = patches.iter().map(|p| (*p).to_string()).collect();
        let plan = Plan { stock: Stock::Official, patches, history: History::Decoded };
        Optimized::new(checkpoint.clone(), requests.clone(), plan, 2).unwrap()
    };
    let paths: Vec<Optimized> = patches.iter().map(path).collect();
    let candidate = |(i, path)| {
        let rotates = [Phase::Prefill, Phase::Decode].map(|p| Optimized::numerics(path, p).index.hadamard);
        let rules = Some(Rules::of(path, &checkpoint));
        Candidate { rotates, rules, ..Candidate::new(format!("set {i}"), path as &dyn Path, Claims::Official) }
    };
    let lockstep = Lockstep {
        golden: &golden,
        floor: None,
        candidates: paths.iter().enumerate().map(candidate).collect(),
        scenarios: vec!["made".into(); requests.seqs.len()],
        asks: &[],
        facts: Facts::of(&checkpoint).unwrap(),
        taps: &|_| true,
        layers: None,
        cache: None,
        states: None,
    };
    let outcome = lockstep.run(&Quiet, &AtomicBool::new(false)).unwrap();
    (outcome, golden.passes.into_inner().unwrap())
}

/// One pass a layer with `lanes` lanes, and the rows of a golden that shows its lanes in another order, whose noise has a pass of its own.
fn check(requests: &Requests, patches: &[&[&str]], lanes: usize) {
    let (beside, passes) = audited(requests, patches, false);
    assert!(!passes.is_empty());
    for (i, pass) in passes.iter().enumerate() {
        assert_eq!(*pass, (i as u16, lanes), "{passes:?}");
    }
    let (apart, again) = audited(requests, patches, true);
    assert_eq!(again.len(), 2 * passes.len(), "a second pass a layer: {again:?}");
    let derived = beside.taps.iter().filter(|row| row.derived.is_some()).count();
    assert!(derived > 100, "{derived} rows have a derived tolerance");
    let text = |outcome: &Outcome| format!("{:?}{:?}{:?}", outcome.taps, outcome.derivations, outcome.flips);
    assert!(text(&beside) == text(&apart), "the rows differ");
}

#[test]
fn noise_shares_goldens_pass_and_leaves_the_rows_of_two_passes() {
    // Entries are selected, two sequences, and rows in both phases.
    let many = Requests { seqs: vec![turns("a", ids(150, 9), &[90, 60]), Sequence::prompt("b", ids(30, 10))] };
    check(&many, &[&[]], 3);
    // Few rows an expert: a lane for each plan.
    let few = Requests { seqs: vec![turns("a", ids(20, 9), &[12, 8])] };
    check(&few, &[&[], &["mxfp4-moe"]], 5);
}
