//! Runs one history and compares it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karat_diff::logits::{Position, positions};
use karat_model::Checkpoint;
use karat_optimized::serving::{Facts, Geometry, Lost, Misplaced, Paged, Program, Script, check_owners, lost_rows};
use karat_optimized::{History, Optimized, Plan, Stock};
use karat_reference::{Golden, Mode};
use karat_seam::{Phase, Requests, RowId, Tensor};

use super::compare::{Compare, Difference, Same, logits};
use super::drafts;
use super::flips::Added;
use super::golden::{self, FromGolden};
use super::pass::{Ran, mtp_block, run};
use super::yardstick::{self, Cut, Keep, Yardstick};
use crate::Result;

/// Ids whose overlap is measured.
const TOP_K: usize = 10;

/// What came of a history.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// What happened in it.
    pub facts: Facts,
    /// A row that is not its reader's by its owner tag.
    pub misplaced: Option<Misplaced>,
    /// All rows that are not their reader's, by sequence and tensor.
    pub lost: Vec<Lost>,
    /// The first row, or logit, that is not the cold run's, in order of layers and then of time.
    pub difference: Option<Difference>,
    /// Rows of state that were compared with the cold run's.
    pub compared: u64,
    /// Distance from golden over all sequences, when golden was run.
    pub golden: Option<FromGolden>,
    /// The same one by one, in the order of the requests.
    pub sequences: Vec<OfSequence>,
    /// Executions of each patch.
    pub calls: BTreeMap<&'static str, u64>,
}

/// What came of one sequence in a history.
#[derive(Debug, Clone, PartialEq)]
pub struct OfSequence {
    /// Its name.
    pub name: String,
    /// Rows that are read from pages, against the cold run.
    pub pages: Same,
    /// Logits against the cold run, position by position.
    pub logits: Same,
    /// The same of the first MTP block, where there is one.
    pub mtp: Option<Same>,
    /// Distance from golden.
    pub golden: Option<FromGolden>,
    /// Most likely ids changed, against those that stock's cold run changes.
    pub added: Option<Added>,
    /// Logits against golden, by position, with the phase in which they were computed.
    pub positions: Vec<(Phase, Position)>,
    /// The logits themselves, `[n,V]`; empty where they are the cold run's.
    pub values: Vec<f32>,
}

impl Checked {
    /// True when the history is its own cold run, by owner, by every value that it reads, and by its logits.
    pub fn is_same(&self) -> bool {
        self.misplaced.is_none() && self.difference.is_none()
    }
}

/// Golden's run, and stock's distance from it.
struct Trusted {
    ran: Ran,
    /// Logits `[n,V]` by sequence.
    tensors: Vec<Tensor>,
    /// Stock's cold run against golden; `None` where the path is stock itself.
    stock: Option<Vec<Vec<Position>>>,
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
    /// True when compressor rows are rounded where a forward call ends: the cold run is then cut where the history is.
    rounds_state: bool,
    yardsticks: BTreeMap<Vec<Cut>, Arc<Yardstick>>,
    golden: Option<Trusted>,
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
        let rounds_state = prefill.compress_state.rounds() || decode.compress_state.rounds();
        let one_rule = prefill == decode && !rounds_state;
        let yardsticks = BTreeMap::new();
        Ok(Self { checkpoint, requests, plan, geometry, threads, one_rule, rounds_state, yardsticks, golden: None })
    }

    /// True when compressor rows are rounded where a forward call ends, so that the cold run is cut where a history is.
    pub fn rounds_state(&self) -> bool {
        self.rounds_state
    }

    /// True for the path that must be within golden's own tolerance: f32, nothing rounded.
    pub fn is_control(&self) -> bool {
        self.plan.stock == Stock::None && self.plan.patches.is_empty()
    }

    /// Runs golden and, under patches, stock, so that histories are compared with golden too.
    ///
    /// # Errors
    /// Those of the paths.
    pub fn run_golden(&mut self) -> Result<()> {
        let golden = Golden::new(self.checkpoint.clone(), self.requests.clone(), Mode::F32, self.threads)?;
        let rows = self.cold_rows();
        let next = self.cold_next();
        let ran = run(&golden, &rows, &next)?;
        let vocab = self.vocab();
        let tensor = |l: &Vec<f32>| Tensor::f32([l.len() / vocab, vocab], l.clone());
        let tensors: Vec<Tensor> = ran.logits.iter().map(tensor).collect();
        let mut trusted = Trusted { ran, tensors, stock: None };
        if !self.plan.patches.is_empty() {
            let plan = Plan { stock: self.plan.stock, patches: Vec::new(), history: History::Cold };
            let stock = Optimized::new(self.checkpoint.clone(), self.requests.clone(), plan, self.threads)?;
            let stock = run(&stock, &rows, &[])?.logits;
            trusted.stock = Some(self.positions(&trusted.tensors, &stock)?);
        }
        self.golden = Some(trusted);
        Ok(())
    }

    fn vocab(&self) -> usize {
        self.checkpoint.config().vocab_size
    }

    /// Rows of each sequence in a cold run.
    fn cold_rows(&self) -> Vec<Vec<usize>> {
        let mut first = 0;
        let each = self.requests.seqs.iter().map(|s| {
            let rows = (first..first + s.ids.len()).collect();
            first += s.ids.len();
            rows
        });
        each.collect()
    }

    /// The id after each row of a cold run (after the last of a sequence its own), for an MTP block; none without one.
    fn cold_next(&self) -> Vec<u32> {
        match mtp_block(self.checkpoint.config()) {
            None => Vec::new(),
            Some(_) => self.requests.seqs.iter().flat_map(|s| drafts::next_ids(&s.ids)).collect(),
        }
    }

    /// Logits of each sequence against golden's.
    fn positions(&self, golden: &[Tensor], logits: &[Vec<f32>]) -> Result<Vec<Vec<Position>>> {
        let each = golden.iter().zip(logits).enumerate();
        each.map(|(seq, (golden, own))| self.positions_of(seq, golden, own)).collect()
    }

    fn positions_of(&self, seq: usize, golden: &Tensor, own: &[f32]) -> Result<Vec<Position>> {
        let ids = &self.requests.seqs[seq].ids;
        let next: Vec<Option<u32>> = (1..=ids.len()).map(|p| ids.get(p).copied()).collect();
        let own = Tensor::f32([own.len() / self.vocab(), self.vocab()], own.to_vec());
        Ok(positions(golden, &own, &next, TOP_K)?)
    }

    /// For each sequence the token that the path's own MTP block drafts for each position; `None` without such a block.
    ///
    /// # Errors
    /// Those of the path.
    pub fn drafts(&self) -> Result<Option<Vec<Arc<[u32]>>>> {
        drafts::of(&self.checkpoint, &self.requests, &self.plan, self.threads)
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
        let (cuts, final_pieces) = self.cuts(&program, &rows);
        let yardstick = self.yardstick(cuts)?;
        let names: Vec<String> = self.requests.seqs.iter().map(|s| s.id.clone()).collect();
        let (vocab, config) = (self.vocab(), self.checkpoint.config().clone());
        let mtp = mtp_block(&config).filter(|_| geometry.speculative);
        let mtp_layers = config.mtp.iter().take(usize::from(mtp.is_some()));
        let layers = (0u16..).zip(config.layers.iter().chain(mtp_layers).copied());
        let misplaced = check_owners(&program, &geometry, layers.clone());
        let lost = if misplaced.is_some() { lost_rows(&program, &geometry, layers) } else { Vec::new() };
        let facts = Facts::of(&program);
        let ids: Vec<Vec<RowId>> = rows.iter().map(|rows| rows.iter().map(|r| program.rows[*r].id).collect()).collect();
        let phases: Vec<Vec<Phase>> =
            rows.iter().map(|rows| rows.iter().map(|r| program.rows[*r].phase).collect()).collect();
        let next: Vec<u32> = mtp.map_or_else(Vec::new, |_| program.rows.iter().map(|r| r.next).collect());
        let only = self.rounds_state.then_some(final_pieces);
        let compare = Arc::new(Compare::new(yardstick.clone(), geometry, config, &program, &names, only));
        let path = self.serve(Paged { name: name.to_string(), geometry, program, watch: Some(compare.clone()) })?;
        let mut ran = run(&path, &rows, &next)?;
        let calls = path.coverage().patches.iter().map(|p| (p.name, p.prefill + p.decode)).collect();
        let found = compare.found();
        let mut sequences = Vec::new();
        for (seq, (name, pages)) in names.into_iter().zip(found.pages).enumerate() {
            let same = logits(&ran.logits[seq], &yardstick.logits[seq], &name, vocab);
            let mtp = ran.mtp.get(seq).zip(yardstick.mtp.get(seq)).map(|(own, cold)| logits(own, cold, &name, vocab));
            let mut of = OfSequence {
                name,
                pages,
                logits: same,
                mtp,
                golden: None,
                added: None,
                positions: Vec::new(),
                values: Vec::new(),
            };
            if let Some(trusted) = &self.golden {
                of.golden = Some(golden::compare(&ran, &trusted.ran, seq, &ids[seq], vocab));
                let own = match of.logits.differs {
                    0 => yardstick.positions[seq].clone(),
                    _ => self.positions_of(seq, &trusted.tensors[seq], &ran.logits[seq])?,
                };
                let stock = trusted.stock.as_ref().unwrap_or(&yardstick.positions);
                of.added = Some(Added::of(&own, &stock[seq], vocab));
                of.positions = phases[seq].iter().copied().zip(own).collect();
            }
            if of.logits.differs > 0 {
                of.values = std::mem::take(&mut ran.logits[seq]);
            }
            sequences.push(of);
        }
        let of_logits = || sequences.iter().find_map(|s| s.logits.first.clone());
        let of_mtp = || sequences.iter().find_map(|s| s.mtp.as_ref()?.first.clone());
        Ok(Checked {
            facts,
            misplaced,
            lost,
            difference: found.first.or_else(of_logits).or_else(of_mtp),
            compared: sequences.iter().map(|s| s.pages.compared).sum(),
            golden: sequences.iter().filter_map(|s| s.golden.clone()).reduce(|a, b| a.with(&b)),
            sequences,
            calls,
        })
    }

    /// How the cold run must be cut to compute what a history computed, and the pieces whose rows stand in its end.
    fn cuts(&self, program: &Program, rows: &[Vec<usize>]) -> (Vec<Cut>, BTreeSet<usize>) {
        let mut piece_of = vec![usize::MAX; program.rows.len()];
        for (j, piece) in program.pieces().enumerate() {
            piece_of[piece.rows.clone()].fill(j);
        }
        let mut pieces = BTreeSet::new();
        let cut = |(rows, sequence): (&Vec<usize>, &karat_seam::Sequence)| {
            pieces.extend(rows.iter().map(|r| piece_of[*r]));
            let phases: Vec<Phase> = rows.iter().map(|r| program.rows[*r].phase).collect();
            if self.one_rule {
                return Cut { phases: vec![Phase::Prefill; sequence.ids.len()], starts: Vec::new() };
            }
            let begins = |(_, pair): &(u32, &[usize])| piece_of[pair[0]] != piece_of[pair[1]];
            let starts = (1u32..).zip(rows.windows(2)).filter(begins).map(|(p, _)| p);
            Cut { phases, starts: if self.rounds_state { starts.collect() } else { Vec::new() } }
        };
        let cuts = rows.iter().zip(&self.requests.seqs).map(cut).collect();
        (cuts, pieces)
    }

    fn serve(&self, paged: Paged) -> Result<Optimized> {
        let (checkpoint, requests) = (self.checkpoint.clone(), self.requests.clone());
        Ok(Optimized::serve(checkpoint, requests, self.plan.clone(), paged, self.threads)?)
    }

    /// The cold run that is cut so.
    fn yardstick(&mut self, cuts: Vec<Cut>) -> Result<Arc<Yardstick>> {
        if let Some(known) = self.yardsticks.get(&cuts) {
            return Ok(known.clone());
        }
        let keep = Arc::new(Keep::default());
        let path = self.serve(yardstick::program(&self.requests, self.geometry, &cuts, keep.clone())?)?;
        let ran = run(&path, &self.cold_rows(), &self.cold_next())?;
        let positions = match &self.golden {
            Some(trusted) => self.positions(&trusted.tensors, &ran.logits)?,
            None => Vec::new(),
        };
        let made = Arc::new(Yardstick { rows: keep.take(), logits: ran.logits, mtp: ran.mtp, positions });
        self.yardsticks.insert(cuts, made.clone());
        Ok(made)
    }
}
