//! Runs one history and compares it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use karat_model::Checkpoint;
use karat_optimized::serving::{Facts, Geometry, Misplaced, Paged, Program, Script, check_owners};
use karat_optimized::{Optimized, Plan};
use karat_reference::{Golden, Mode};
use karat_seam::{Lane, Path, Phase, Requests, RowId};

use super::compare::{Compare, Difference, first_element};
use super::golden::{self, FromGolden, Ran};
use super::yardstick::{self, Keep, Yardstick};
use crate::Result;

/// What came of a history.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// What happened in it.
    pub facts: Facts,
    /// A row that is not its reader's by its owner tag.
    pub misplaced: Option<Misplaced>,
    /// The first row, or logit, that is not the cold run's, in order of layers and then of time.
    pub difference: Option<Difference>,
    /// Rows of state that were compared with the cold run's.
    pub compared: u64,
    /// Distance from golden, when golden was run.
    pub golden: Option<FromGolden>,
}

impl Checked {
    /// True when the history is its own cold run, by owner, by every value that it reads, and by its logits.
    pub fn is_same(&self) -> bool {
        self.misplaced.is_none() && self.difference.is_none()
    }
}

/// One path on one set of requests.
pub struct Checker {
    checkpoint: Arc<Checkpoint>,
    requests: Requests,
    plan: Plan,
    geometry: Geometry,
    threads: usize,
    /// True when decode has prefill's rules: phases then change no bit, and one cold run is enough.
    one_rule: bool,
    yardsticks: BTreeMap<Vec<Vec<Phase>>, Arc<Yardstick>>,
    golden: Option<Ran>,
}

impl Checker {
    /// A checker; nothing is run yet.
    ///
    /// # Errors
    /// As [`Optimized::new`].
    pub fn new(
        checkpoint: Arc<Checkpoint>,
        requests: Requests,
        plan: Plan,
        geometry: Geometry,
        threads: usize,
    ) -> Result<Self> {
        let plain = Optimized::new(checkpoint.clone(), requests.clone(), plan.clone(), threads)?;
        let (prefill, decode) = (plain.numerics(Phase::Prefill), plain.numerics(Phase::Decode));
        if prefill.compress_state.rounds() || decode.compress_state.rounds() {
            return Err(karat_model::Error::usage(
                "compressor state that is rounded between forward calls depends on the history",
            )
            .at("--histories")
            .expected("rules with compressor state in f32")
            .found(plan.patches.join(", "))
            .hint("--without bf16-compressor-state")
            .into());
        }
        let one_rule = prefill == decode;
        let yardsticks = BTreeMap::new();
        Ok(Self { checkpoint, requests, plan, geometry, threads, one_rule, yardsticks, golden: None })
    }

    /// Runs golden, so that histories are compared with it too.
    ///
    /// # Errors
    /// Those of golden.
    pub fn run_golden(&mut self) -> Result<()> {
        let golden = Golden::new(self.checkpoint.clone(), self.requests.clone(), Mode::F32, self.threads)?;
        let rows: Vec<Vec<usize>> = self.sequences(|first, n| (first..first + n).collect());
        self.golden = Some(run(&golden, &rows)?);
        Ok(())
    }

    /// Something of each sequence: `f` gets its first row in a cold run and its length.
    fn sequences<T>(&self, f: impl Fn(usize, usize) -> T) -> Vec<T> {
        let mut first = 0;
        let each = self.requests.seqs.iter().map(|s| {
            let out = f(first, s.ids.len());
            first += s.ids.len();
            out
        });
        each.collect()
    }

    /// Runs a history and compares it.
    ///
    /// # Errors
    /// Usage: pools too small for a request. Those of the paths.
    pub fn check(&mut self, name: &str, script: &Script) -> Result<Checked> {
        self.check_program(name, script.setup.geometry, script.program()?)
    }

    /// The same for a program (perhaps one that was changed on purpose).
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_program(&mut self, name: &str, geometry: Geometry, program: Program) -> Result<Checked> {
        let mut rows: Vec<Vec<usize>> = vec![Vec::new(); self.requests.seqs.len()];
        for (request, _, its) in program.done() {
            rows[program.requests[request].0 as usize] = its.to_vec();
        }
        let phases = rows.iter().map(|rows| rows.iter().map(|r| program.rows[*r].phase).collect()).collect();
        let yardstick = self.yardstick(phases)?;
        let names: Vec<String> = self.requests.seqs.iter().map(|s| s.id.clone()).collect();
        let layers = (0u16..).zip(self.checkpoint.config().layers.iter().copied());
        let misplaced = check_owners(&program, &geometry, layers);
        let facts = Facts::of(&program);
        let ids: Vec<Vec<RowId>> = rows.iter().map(|rows| rows.iter().map(|r| program.rows[*r].id).collect()).collect();
        let config = self.checkpoint.config().clone();
        let compare = Arc::new(Compare::new(yardstick.clone(), geometry, config, &program, &names));
        let paged = Paged { name: name.to_string(), geometry, program, watch: Some(compare.clone()) };
        let ran = run(&self.serve(paged)?, &rows)?;
        let read = compare.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let vocab = self.checkpoint.config().vocab_size;
        let difference = read.or_else(|| logits(&ran.logits, &yardstick.logits, &names, vocab));
        let compared = compare.read.load(Ordering::Relaxed);
        let golden = self.golden.as_ref().map(|golden| golden::compare(&ran, golden, &ids, vocab));
        Ok(Checked { facts, misplaced, difference, compared, golden })
    }

    fn serve(&self, paged: Paged) -> Result<Optimized> {
        let (checkpoint, requests) = (self.checkpoint.clone(), self.requests.clone());
        Ok(Optimized::serve(checkpoint, requests, self.plan.clone(), paged, self.threads)?)
    }

    /// The cold run with these phases.
    fn yardstick(&mut self, phases: Vec<Vec<Phase>>) -> Result<Arc<Yardstick>> {
        let phases = if self.one_rule { self.sequences(|_, n| vec![Phase::Prefill; n]) } else { phases };
        if let Some(known) = self.yardsticks.get(&phases) {
            return Ok(known.clone());
        }
        let keep = Arc::new(Keep::default());
        let path = self.serve(yardstick::program(&self.requests, self.geometry, &phases, keep.clone())?)?;
        let rows: Vec<Vec<usize>> = self.sequences(|first, n| (first..first + n).collect());
        let logits = run(&path, &rows)?.logits;
        let made = Arc::new(Yardstick { rows: keep.take(), logits });
        self.yardsticks.insert(phases, made.clone());
        Ok(made)
    }
}

/// Runs a path; logits of the given rows, by sequence.
fn run(path: &dyn Path, rows: &[Vec<usize>]) -> Result<Ran> {
    let mut seen = golden::recorder();
    let mut x = path.embed(&mut seen)?;
    for l in 0..path.blocks().layers {
        let mut lanes = [Lane::new(&x, &mut seen)];
        path.layer(l)?.run(&mut lanes)?;
        let [lane] = lanes;
        let missing = || karat_seam::Error::Request(format!("{}: layer {l} gave no streams", path.name()));
        x = lane.out.ok_or_else(missing)?.streams;
    }
    let head = path.head(&mut [Lane::new(&x, &mut seen)])?.pop();
    let all = head.ok_or_else(|| karat_seam::Error::Request(format!("{} gave no logits", path.name())))?;
    let (values, width) = (all.as_f32("logits")?, all.width());
    let of = |rows: &Vec<usize>| rows.iter().flat_map(|r| values[r * width..(r + 1) * width].iter().copied()).collect();
    let logits = rows.iter().map(of).collect();
    Ok(Ran { seen, logits })
}

/// The first logit that differs.
fn logits(own: &[Vec<f32>], cold: &[Vec<f32>], names: &[String], vocab: usize) -> Option<Difference> {
    own.iter().zip(cold).zip(names).find_map(|((own, cold), name)| {
        let (element, a, b) = first_element(own, cold)?;
        Some(Difference {
            layer: None,
            part: None,
            sequence: name.clone(),
            position: element / vocab,
            at: None,
            bytes: None,
            read_by: None,
            element: (element % vocab, a, b),
        })
    })
}
