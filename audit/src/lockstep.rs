//! The lockstep loop: golden and every candidate, layer by layer, one layer's weights in memory at a time.
//!
//! In each layer the candidate runs first on its own streams x'. Golden then runs, in one pass over its weights, R(x)
//! with its own decisions and R(x') with the candidate's decisions forced, so that like is compared with like; whether
//! those decisions were golden's own on x' is judged apart.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use karat_bundle::{Finding, FlipRow, RecallRow, TapRow, TokenRow, Verdict};
use karat_scenarios::Ask;
use karat_seam::{Block, Choices, Error as SeamError, Lane, Path, Recorder, Routing, Site, Streams, Tap};

use crate::candidate::Candidate;
use crate::facts::Facts;
use crate::part::Part;
use crate::progress::{Progress, Steps};
use crate::recall::Asked;
use crate::{Result, align, head, layer};

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
}

/// What a lockstep run leaves.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Rows of `taps.csv`, layer by layer in op order.
    pub taps: Vec<TapRow>,
    /// Rows of `tokens.csv`.
    pub tokens: Vec<TokenRow>,
    /// Rows of `flips.csv`.
    pub flips: Vec<FlipRow>,
    /// What bears on the verdict beside the rows.
    pub findings: Vec<Finding>,
    /// Error of each patch at its own ops, by (patch set, patch): rel-L2 on the operands that it was given.
    pub own_errors: BTreeMap<(String, String), f64>,
    /// What could not be judged.
    pub notes: Vec<String>,
    /// Answers, by candidate.
    pub(crate) asked: Vec<Asked>,
    /// Rows of `recall.csv`.
    pub recall: Vec<RecallRow>,
    /// Seconds in golden, candidates and comparing.
    pub wall: [f64; 3],
    /// Layer passes of all rows, by one path, over the number of layers.
    pub forward_equivalents: f64,
}

/// A candidate on its way through the layers.
pub(crate) struct Runner {
    /// x' in the candidate's own row order; `None` where it is not known.
    pub(crate) x: Option<Streams>,
    /// x' in golden's row order; `None` where not every row is known.
    pub(crate) x_golden_rows: Option<Streams>,
    /// What the candidate's last block showed.
    pub(crate) seen: Recorder,
    /// Its decisions there.
    pub(crate) choices: Choices,
}

/// State of a run between two layers.
pub(crate) struct Walk<'a, 'b> {
    pub(crate) setup: &'b Lockstep<'a>,
    /// x.
    pub(crate) x: Streams,
    pub(crate) runners: Vec<Runner>,
    pub(crate) out: Outcome,
    pub(crate) passes: u64,
}

impl<'a> Lockstep<'a> {
    /// Runs the comparison. Call it inside the thread pool that comparing should use.
    pub fn run(&self, progress: &dyn Progress, stop: &AtomicBool) -> Result<Outcome> {
        let mut out = Outcome::default();
        if let Some(finding) = self.other_ids() {
            out.findings.push(finding);
            return Ok(out);
        }
        let blocks = self.golden.blocks().layers;
        let layers = self.layers.unwrap_or(blocks).min(blocks);
        let mut steps = Steps::new(progress, stop, (u64::from(layers) + 2) * (self.candidates.len() as u64 + 1));
        let mut walk = self.embed(out, &mut steps)?;
        for l in 0..layers {
            layer::run(&mut walk, l, &mut steps)?;
        }
        if layers == blocks {
            head::run(&mut walk, &mut steps)?;
        } else {
            walk.out.notes.push(format!("only the first {layers} of {blocks} layers ran: no logits were compared"));
        }
        let mut out = walk.out;
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

    fn embed<'b>(&'b self, mut out: Outcome, steps: &mut Steps<'_>) -> Result<Walk<'a, 'b>> {
        let mut golden = Recorder::all();
        steps.next("golden embedding")?;
        let start = Instant::now();
        let x = self.golden.embed(&mut golden)?;
        out.wall[0] += start.elapsed().as_secs_f64();
        let mut runners = Vec::new();
        for candidate in &self.candidates {
            steps.next(&format!("{} embedding", candidate.patch_set))?;
            let mut seen = Recorder::all();
            let start = Instant::now();
            let streams = match candidate.path.embed(&mut seen) {
                Ok(streams) => Some(streams),
                Err(SeamError::Unsupported { .. }) => None,
                Err(other) => return Err(other.into()),
            };
            out.wall[1] += start.elapsed().as_secs_f64();
            let mut x2 = streams.as_ref().and_then(|s| align::streams(s, &x.rows));
            if x2.is_none() {
                out.notes.push(format!(
                    "{}: no embedding, so golden's is taken as the input of layer 0",
                    candidate.path.name()
                ));
                x2 = Some(x.clone());
            }
            runners.push(Runner { x: streams, x_golden_rows: x2, seen, choices: Choices::default() });
        }
        let mut walk = Walk { setup: self, x, runners, out, passes: 0 };
        layer::compare_embed(&mut walk, &golden)?;
        Ok(walk)
    }
}

impl Walk<'_, '_> {
    /// Adds what comparing left, one part a candidate.
    pub(crate) fn take(&mut self, parts: Vec<Part>) {
        for (candidate, part) in self.setup.candidates.iter().zip(parts) {
            self.out.take(&candidate.patch_set, part);
        }
    }

    /// Layers of the model.
    pub(crate) fn blocks(&self) -> u16 {
        self.setup.golden.blocks().layers
    }

    /// Runs golden's lanes of one block: R(x) first, then R(x') of each candidate whose x' is known.
    pub(crate) fn golden_lanes<T>(
        &mut self,
        run: impl FnOnce(&mut [Lane<'_>]) -> Result<T>,
    ) -> Result<(Recorder, BTreeMap<usize, Recorder>, Option<Streams>, T)> {
        let start = Instant::now();
        let mut on_x = Recorder::all();
        let known: Vec<usize> = (0..self.runners.len()).filter(|i| self.runners[*i].x_golden_rows.is_some()).collect();
        let mut on_x2: Vec<Recorder> = known.iter().map(|_| Recorder::all()).collect();
        let mut lanes = vec![Lane::new(&self.x, &mut on_x)];
        for (i, see) in known.iter().zip(&mut on_x2) {
            let runner = &self.runners[*i];
            let Some(x) = &runner.x_golden_rows else { continue };
            lanes.push(Lane { routing: Routing::Forced(&runner.choices), ..Lane::new(x, see) });
        }
        let result = run(&mut lanes)?;
        let next = lanes[0].out.take().map(|out| out.streams);
        drop(lanes);
        self.out.wall[0] += start.elapsed().as_secs_f64();
        Ok((on_x, known.into_iter().zip(on_x2).collect(), next, result))
    }

    /// True when the tap is to be compared.
    pub(crate) fn wants(&self, site: Site) -> bool {
        crate::place::is_compared(site.tap) && (self.setup.taps)(site)
    }

    /// Sites of a block that a candidate showed, in op order, with their sequences.
    pub(crate) fn sites(&self, candidate: usize, block: Block) -> Vec<(Site, u32)> {
        let seen = &self.runners[candidate].seen;
        seen.taps.keys().filter(|(site, _)| site.block == block).copied().collect()
    }
}

/// Taps whose second axis follows the expert slots.
pub(crate) fn follows_slots(tap: Tap) -> bool {
    matches!(tap, Tap::FfnWt | Tap::FfnExpertAct)
}
