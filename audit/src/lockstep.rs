//! The lockstep loop: golden and every candidate, layer by layer, one layer's weights in memory at a time.
//!
//! In each layer the candidate runs first on its own streams x'. Golden then runs, in one pass over its weights, R(x)
//! with its own decisions and R(x') with the candidate's decisions forced, so that like is compared with like; whether
//! those decisions were golden's own on x' is judged apart.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use karat_bundle::{DerivationRow, Finding, FlipRow, RecallRow, TapRow, TokenRow, Verdict};
use karat_scenarios::Ask;
use karat_seam::{Block, Choices, Lane, Path, Recorder, Routing, RowId, Site, Streams, Tap, TensorMut, Visitor, Want};

use crate::cache::Cache;
use crate::candidate::Candidate;
use crate::facts::Facts;
use crate::flow::{Flow, Keys};
use crate::patch_rows::Calls;
use crate::progress::{Progress, Steps};
use crate::recall::Asked;
use crate::{Error, Result, States, embed, head, layer, mtp, place};

/// What to compare.
pub struct Lockstep<'a> {
    /// Golden, f32.
    pub golden: &'a dyn Path,
    /// Golden in f64 mode, when the floor is measured. It runs on the first candidate's x'.
    pub floor: Option<&'a dyn Path>,
    /// Candidates; the first is stock (or the only one).
    pub candidates: Vec<Candidate<'a>>,
    /// Scenario of each sequence.
    pub scenarios: Vec<String>,
    /// Questions of each sequence.
    pub asks: &'a [Vec<Ask>],
    /// Facts about the model.
    pub facts: Facts,
    /// Which taps are compared; golden and decisions are computed whatever it says.
    pub taps: &'a (dyn Fn(Site) -> bool + Sync),
    /// Only this many layers (and then no head).
    pub layers: Option<u16>,
    /// Where earlier runs left what they found out, and this one does.
    pub cache: Option<&'a Cache>,
    /// A bound on the streams that wait between two blocks; all are held without one.
    pub states: Option<Arc<States>>,
}

/// What a lockstep run leaves.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Rows of `taps.csv`, layer by layer in op order.
    pub taps: Vec<TapRow>,
    /// Rows of `derivations.csv`.
    pub derivations: Vec<DerivationRow>,
    /// Rows of `tokens.csv`.
    pub tokens: Vec<TokenRow>,
    /// Rows of `flips.csv`.
    pub flips: Vec<FlipRow>,
    /// What bears on the verdict beside the rows.
    pub findings: Vec<Finding>,
    /// Error of each patch at its own ops, by (patch set, patch): rel-L2 on the operands that it was given.
    pub own_errors: BTreeMap<(String, String), f64>,
    /// Executions by (patch set, patch), where the candidate counts them.
    pub calls: BTreeMap<(String, String), Calls>,
    /// What could not be judged.
    pub notes: Vec<String>,
    /// Answers, by candidate.
    pub(crate) asked: Vec<Asked>,
    /// Rows of `recall.csv`.
    pub recall: Vec<RecallRow>,
    /// Seconds in golden, candidates and comparing.
    pub wall: [f64; 3],
    /// Those in golden that noise took, and what it is the size of.
    pub noise_s: f64,
    /// Layer passes of all rows, by one path, over the number of layers. What came from the cache is free.
    pub forward_equivalents: f64,
}

/// A candidate on its way through the layers.
pub(crate) struct Runner {
    /// x' in the candidate's own row order; `None` where it is not known.
    pub(crate) x: Option<Flow>,
    /// x' in golden's row order, while it is compared; `None` where not every row is known.
    pub(crate) x_golden_rows: Option<Streams>,
    /// What the candidate's last block showed.
    pub(crate) seen: Recorder,
    /// Its decisions there.
    pub(crate) choices: Choices,
    /// Streams of the rerun, and what its last block showed.
    pub(crate) again: (Option<Streams>, Option<Recorder>),
}

impl Outcome {
    /// Counts the seconds since `start` as golden's, in noise.
    pub(crate) fn in_noise(&mut self, start: Instant) {
        let seconds = start.elapsed().as_secs_f64();
        self.wall[0] += seconds;
        self.noise_s += seconds;
    }
}

impl Runner {
    fn new() -> Self {
        Self { x: None, x_golden_rows: None, seen: Recorder::all(), choices: Choices::default(), again: (None, None) }
    }
}

/// State of a run between two layers.
pub(crate) struct Walk<'a, 'b> {
    pub(crate) setup: &'b Lockstep<'a>,
    /// x.
    pub(crate) x: Flow,
    pub(crate) runners: Vec<Runner>,
    pub(crate) out: Outcome,
    pub(crate) passes: u64,
    pub(crate) keys: Option<Keys>,
    /// False when all is computed again, and kept again.
    pub(crate) reads_cache: bool,
}

impl Lockstep<'_> {
    /// Runs the comparison. Call it inside the thread pool that comparing should use.
    pub fn run(&self, progress: &dyn Progress, stop: &AtomicBool) -> Result<Outcome> {
        match self.walk(progress, stop, true) {
            Err(Error::CacheGap) => {
                self.cache.iter().for_each(|cache| cache.forget_hits());
                self.walk(progress, stop, false)
            }
            other => other,
        }
    }

    fn walk(&self, progress: &dyn Progress, stop: &AtomicBool, reads_cache: bool) -> Result<Outcome> {
        let mut out = Outcome::default();
        if let Some(finding) = self.other_ids() {
            out.findings.push(finding);
            return Ok(out);
        }
        let blocks = self.golden.blocks().layers;
        let layers = self.layers.unwrap_or(blocks).min(blocks);
        let drafts: Vec<u16> =
            (0..self.golden.blocks().mtp).filter(|i| layers == blocks && mtp::wanted(self, *i)).collect();
        let passes = u64::from(layers) + 2 + mtp::STEPS * drafts.len() as u64;
        let mut steps = Steps::new(progress, stop, passes * (self.candidates.len() as u64 + 1));
        let runners = self.candidates.iter().map(|_| Runner::new()).collect();
        let keys = self.cache.map(|cache| Keys::of(self, cache));
        let mut walk = Walk { setup: self, x: Flow::default(), runners, out, passes: 0, keys, reads_cache };
        let all: Vec<usize> = (0..self.candidates.len()).collect();
        embed::run(&mut walk, &mut steps)?;
        for l in 0..layers {
            layer::run(&mut walk, l, &all, &mut steps)?;
        }
        if layers == blocks {
            let inputs = mtp::Inputs::of(&walk);
            head::run(&mut walk, &mut steps)?;
            drafts.into_iter().try_for_each(|i| mtp::run(&mut walk, i, &inputs, &mut steps))?;
        } else {
            walk.out.notes.push(format!("only the first {layers} of {blocks} layers ran: no logits were compared"));
        }
        let mut out = walk.out;
        out.notes.extend(self.states.iter().filter_map(|states| states.note()));
        out.forward_equivalents = walk.passes as f64 / f64::from(blocks.max(1));
        Ok(out)
    }

    /// Ids decide everything: with other ids nothing can be compared.
    fn other_ids(&self) -> Option<Finding> {
        let golden = self.golden.requests();
        for candidate in &self.candidates {
            let theirs = candidate.path.requests();
            let who = candidate.path.name();
            let unproven = |reason: String| Some(Finding::new(Verdict::Unproven, reason));
            if theirs.seqs.len() != golden.seqs.len() {
                let (n, m) = (theirs.seqs.len(), golden.seqs.len());
                return unproven(format!("{who} holds {n} sequences, golden ran {m}: nothing was compared"));
            }
            for (a, b) in golden.seqs.iter().zip(&theirs.seqs) {
                if a.ids == b.ids {
                    continue;
                }
                let at =
                    a.ids.iter().zip(b.ids.iter()).position(|(x, y)| x != y).unwrap_or(a.ids.len().min(b.ids.len()));
                let show = |ids: &[u32]| ids.get(at).map_or("nothing".to_string(), u32::to_string);
                return unproven(format!(
                    "ids differ: sequence {}, position {at}: golden ran {}, {who} holds {}: nothing was compared",
                    a.id,
                    show(&a.ids),
                    show(&b.ids),
                ));
            }
        }
        None
    }
}

impl Walk<'_, '_> {
    /// Layers of the model.
    pub(crate) fn blocks(&self) -> u16 {
        self.setup.golden.blocks().layers
    }

    /// Runs golden's lanes of one block: R(x) unless it is known, then R(x') of each candidate of `missing` whose x' is. `run` gets what
    /// R(x) shows as it grows, and must not hold it while the lanes run.
    pub(crate) fn golden_lanes(
        &mut self,
        missing: &[usize],
        on_x: Option<Recorder>,
        run: impl FnOnce(&Mutex<Recorder>, &mut [Lane<'_>]) -> Result<()>,
    ) -> Result<GoldenLanes> {
        let start = Instant::now();
        let x = self.x.values()?;
        let ran = on_x.is_none();
        let on_x = Mutex::new(on_x.unwrap_or_else(not_state));
        let mut growing = Growing(&on_x);
        let known: Vec<usize> = missing.iter().copied().filter(|i| self.runners[*i].x_golden_rows.is_some()).collect();
        let mut on_x2: Vec<Recorder> = known.iter().map(|_| not_state()).collect();
        let mut lanes = Vec::new();
        if ran {
            lanes.push(Lane::new(x, &mut growing));
        }
        for (i, see) in known.iter().zip(&mut on_x2) {
            let runner = &self.runners[*i];
            let Some(x) = &runner.x_golden_rows else { continue };
            lanes.push(Lane { routing: Routing::Forced(&runner.choices), ..Lane::new(x, see) });
        }
        if !lanes.is_empty() {
            run(&on_x, &mut lanes)?;
        }
        let next = lanes.first_mut().filter(|_| ran).and_then(|lane| lane.out.take()).map(|out| out.streams);
        drop(lanes);
        self.out.wall[0] += start.elapsed().as_secs_f64();
        let on_x2 = known.into_iter().zip(on_x2).collect();
        let on_x = on_x.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(GoldenLanes { on_x, on_x2, ran, next })
    }

    /// True when the tap is to be compared.
    pub(crate) fn wants(&self, site: Site) -> bool {
        place::is_compared(site.tap) && self.admits(site)
    }

    /// True when the taps that are asked for have this one among them.
    pub(crate) fn admits(&self, site: Site) -> bool {
        (self.setup.taps)(Site { block: place::named(site.block, self.blocks()), ..site })
    }

    /// Sites of a block that a candidate showed, in op order, with their sequences.
    pub(crate) fn sites(&self, candidate: usize, block: Block) -> Vec<(Site, u32)> {
        let seen = &self.runners[candidate].seen;
        seen.taps.keys().filter(|(site, _)| site.block == block).copied().collect()
    }
}

/// A recorder that others read while it grows.
struct Growing<'a>(&'a Mutex<Recorder>);

impl Growing<'_> {
    fn held(&self) -> MutexGuard<'_, Recorder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visitor for Growing<'_> {
    fn want(&self, at: Site) -> Want {
        self.held().want(at)
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> karat_seam::Result<()> {
        self.held().visit(at, rows, tensor)
    }
}

/// What golden's lanes of a block gave.
pub(crate) struct GoldenLanes {
    pub(crate) on_x: Recorder,
    /// By candidate.
    pub(crate) on_x2: BTreeMap<usize, Recorder>,
    /// Whether R(x) ran.
    pub(crate) ran: bool,
    /// The streams that leave golden's block on x, when it ran.
    pub(crate) next: Option<Streams>,
}

/// Keeps all taps but the state, which repeats rows of others.
pub(crate) fn not_state() -> Recorder {
    Recorder::new(|site| !site.tap.is_state())
}

/// Taps whose second axis follows the expert slots.
pub(crate) fn follows_slots(tap: Tap) -> bool {
    matches!(tap, Tap::FfnWt | Tap::FfnExpertAct)
}
