//! Golden with noise of a plan's roundings at every tap and free decisions: what a right candidate's streams look like.

use karat_diff::tolerance::{DERIVED, ROUNDINGS};
use karat_seam::{Block, Lane, Layer, Phase, Recorder, RowId, Site, Tap, TensorMut, Visitor, Want};
use rayon::prelude::*;

use super::flips::Scores;
use super::judge::{self, Draws, Factors, Judged, Scale, Statistic};
use super::unmix::{Branches, Side};
use crate::decisions::router_score;
use crate::derive::{self, Noise, Rules, Sizes};
use crate::facts::LayerFacts;
use crate::lockstep::Walk;
use crate::place::named;
use crate::{Result, align};

/// Draws of the noise that there are once a stage is over. The first ones tell how large the noise of each row is; another stage
/// begins while some statistic of some candidate is neither as near as the draws nor further than chance goes.
const STAGES: [usize; 4] = [12, 24, 48, 96];

/// A plan's noise in one layer.
pub(super) struct Noisy<'w, 'a, 'b> {
    walk: &'w Walk<'a, 'b>,
    l: u16,
    golden: &'w dyn Layer,
    on_x: &'w Recorder,
    facts: &'w LayerFacts,
    sizes: [Sizes; 2],
    /// Tolerances are so many times what the draws differ by among each other.
    pub(super) factors: Factors,
    /// The first candidate that has the plan.
    first: usize,
}

/// One sequence, as draws have it.
pub(super) struct OfSequence<'w> {
    side: Side<'w>,
    pub(super) phases: Vec<Phase>,
    pub(super) scale: Scale,
    pub(super) draws: Draws,
}

impl<'w, 'a, 'b> Noisy<'w, 'a, 'b> {
    /// `rules` are the plan's, of which candidate `first` is one.
    pub(super) fn of(
        walk: &'w Walk<'a, 'b>,
        l: u16,
        (golden, on_x): (&'w dyn Layer, &'w Recorder),
        facts: &'w LayerFacts,
        (rules, first): (Rules<'_>, usize),
    ) -> Result<Self> {
        let sizes = derive::sizes(rules, (l, walk.blocks()), golden, on_x, walk.x.values()?)?;
        let all = if walk.setup.candidates[first].is_plan_known() { DERIVED } else { ROUNDINGS };
        let attention =
            [Phase::Prefill, Phase::Decode].map(|p| if rules.untold(p).is_empty() { all } else { ROUNDINGS });
        let factors = Factors { all, attention };
        Ok(Self { walk, l, golden, on_x, facts, sizes, factors, first })
    }

    /// What golden shows in these draws.
    fn drawn(&self, draws: std::ops::Range<usize>) -> Result<Vec<Recorder>> {
        let (walk, l) = (self.walk, self.l);
        let blocks = (named(Block::Layer(l), walk.blocks()), Block::Layer(l));
        let of = |draw: usize| {
            let phase_of = derive::phase_of(walk, self.first);
            let noise = Noise::new(blocks, self.sizes.clone(), self.on_x, self.facts.ratio, phase_of);
            Drawn { noise: noise.draw(draw as u64 + 1), kept: Recorder::new(|at| KEPT.contains(&at.tap)) }
        };
        let mut see: Vec<Drawn<'_>> = draws.map(of).collect();
        let x = walk.x.values()?;
        let mut lanes: Vec<Lane<'_>> = see.iter_mut().map(|see| Lane::new(x, see)).collect();
        self.golden.run(&mut lanes)?;
        drop(lanes);
        let mut kept: Vec<Recorder> = see.into_iter().map(|drawn| drawn.kept).collect();
        kept.iter_mut().for_each(|kept| walk.as_layer(kept, l));
        Ok(kept)
    }

    /// The first stage: by sequence, the noise of the scores that decide, and what [`Self::begin`] needs.
    pub(super) fn first(&self) -> Result<(Vec<Scores>, Vec<Recorder>)> {
        let kept = self.drawn(0..STAGES[0])?;
        let seqs = 0..self.walk.setup.golden.requests().seqs.len() as u32;
        Ok((seqs.map(|seq| scores((self.l, seq), self.facts, self.on_x, &kept)).collect(), kept))
    }

    /// What the first stage says of sequence `seq`; `None` where golden can't be taken apart there.
    pub(super) fn begin(&self, seq: u32, scores: &'w Scores, kept: &[Recorder]) -> Result<Option<OfSequence<'w>>> {
        let (at, x) = ((self.l, seq), self.walk.x.values()?);
        let Some(side) = Side::of(self.golden, at, self.facts, x, self.on_x, scores)? else { return Ok(None) };
        let all = self.apart(&side, seq, kept, &|found| found)?;
        if all.len() < kept.len() {
            return Ok(None);
        }
        let phase_of = derive::phase_of(self.walk, self.first);
        let phases: Vec<Phase> = side.rows.iter().map(|row| phase_of(*row)).collect();
        // Each draw against the others, as the candidate is against all.
        let among = |k: usize| {
            let others: Vec<&Branches> = all.iter().enumerate().filter(|(i, _)| *i != k).map(|(_, of)| of).collect();
            self.statistics(&all[k], &Scale::of(&others), &phases, &side)
        };
        let mut draws = Draws::new(usize::from(self.walk.blocks()) * self.walk.setup.golden.requests().seqs.len());
        draws.extend((0..all.len()).map(among));
        let scale = Scale::of(&all.iter().collect::<Vec<_>>());
        Ok(Some(OfSequence { side, phases, scale, draws }))
    }

    /// Draws a stage more for these sequences. False where there is none.
    pub(super) fn more(&self, of: &mut [(u32, &mut OfSequence<'w>)]) -> Result<bool> {
        let have = of.iter().map(|(_, of)| of.draws.len()).max().unwrap_or(0);
        let Some(stage) = STAGES.into_iter().find(|stage| *stage > have) else { return Ok(false) };
        let kept = self.drawn(have..stage)?;
        for (seq, of) in of {
            let found = |found: Branches| self.statistics(&found, &of.scale, &of.phases, &of.side);
            let all = self.apart(&of.side, *seq, &kept, &found)?;
            of.draws.extend(all);
        }
        Ok(true)
    }

    /// What `of` makes of these draws, taken apart.
    fn apart<T: Send>(
        &self,
        side: &Side<'_>,
        seq: u32,
        kept: &[Recorder],
        of: &(dyn Fn(Branches) -> T + Sync),
    ) -> Result<Vec<T>> {
        let one = |kept: &Recorder| {
            let out = kept.get(Site::layer(self.l, Tap::Out), seq);
            let Some(tensor) = out.and_then(|out| align::gather(&out.rows, &out.tensor, &side.rows)) else {
                return Ok(None);
            };
            Ok(side.branches(&tensor)?.map(of))
        };
        let all: Vec<Result<Option<T>>> = kept.par_iter().map(one).collect();
        all.into_iter().filter_map(Result::transpose).collect()
    }

    /// All statistics of one sequence.
    pub(super) fn statistics(&self, of: &Branches, scale: &Scale, phases: &[Phase], side: &Side<'_>) -> Vec<Statistic> {
        judge::statistics(of, scale, phases, &side.rows, self.facts.ratio.unwrap_or(1) as usize)
    }
}

/// How many draws decide about these statistics: none is left between, or one has failed. `None` where more are needed.
pub(super) fn decided(found: &[Statistic], of: &Draws, factors: Factors) -> Option<usize> {
    let is_open = |draws: usize| {
        let judged = || found.iter().filter_map(|f| f.judged(of, draws, factors)).map(|(judged, _)| judged);
        judged().any(|j| j == Judged::Undecided) && judged().all(|j| j != Judged::Fails)
    };
    // As many as a run of this candidate alone would have asked for: what others asked for changes nothing.
    STAGES.into_iter().take_while(|stage| *stage <= of.len()).find(|stage| !is_open(*stage))
}

/// Taps of a noisy lane that are looked at.
const KEPT: [Tap; 3] = [Tap::Out, Tap::AttnIndexScore, Tap::FfnRouterLogits];

/// A visitor that adds noise, and keeps some of what is left.
struct Drawn<'a> {
    noise: Noise<'a>,
    kept: Recorder,
}

impl Visitor for Drawn<'_> {
    fn want(&self, at: Site) -> Want {
        match self.noise.want(at) {
            Want::Skip => self.kept.want(at),
            wanted => wanted,
        }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], mut tensor: TensorMut<'_>) -> karat_seam::Result<()> {
        if self.noise.want(at) != Want::Skip {
            self.noise.disturb(at, rows, &mut tensor.data);
        }
        if self.kept.want(at) == Want::Skip { Ok(()) } else { self.kept.visit(at, rows, tensor) }
    }
}

/// Noise of deciding scores over all draws, by row and score: its own, its row's, or the median row's, whichever is most.
fn scores((l, seq): (u16, u32), facts: &LayerFacts, on_x: &Recorder, kept: &[Recorder]) -> Scores {
    let noise = |tap: Tap, is_relative: bool| {
        let get = |from: &Recorder| {
            let tensor = &from.get(Site::layer(l, tap), seq)?.tensor;
            let score = |v: &f32| if is_relative { f64::from(*v) } else { router_score(f64::from(*v)) };
            Some((tensor.width().max(1), tensor.as_f32(tap.name()).ok()?.iter().map(score).collect::<Vec<f64>>()))
        };
        let (width, right) = get(on_x)?;
        let mut squares = vec![0.0; right.len()];
        for kept in kept {
            let (_, noisy) = get(kept).filter(|(_, noisy)| noisy.len() == right.len())?;
            for ((a, b), square) in right.iter().zip(&noisy).zip(&mut squares) {
                *square += if a.is_finite() && b.is_finite() { (a - b).powi(2) } else { 0.0 };
            }
        }
        let draws = kept.len().max(1) as f64;
        let of_row = |(right, squares): (&[f64], &[f64])| {
            let finite = || right.iter().filter(|v| v.is_finite());
            let n = finite().count().max(1) as f64;
            let rms = if is_relative { (finite().map(|v| v * v).sum::<f64>() / n).sqrt() } else { 1.0 };
            let of = |square: f64| if rms > 0.0 { (square / draws).sqrt() / rms } else { 0.0 };
            (of(squares.iter().sum::<f64>() / n), squares.iter().map(|square| of(*square)).collect())
        };
        let rows: Vec<(f64, Vec<f64>)> =
            right.chunks_exact(width).zip(squares.chunks_exact(width)).map(of_row).collect();
        let mut sorted: Vec<f64> = rows.iter().map(|(row, _)| *row).filter(|v| *v > 0.0).collect();
        sorted.sort_by(f64::total_cmp);
        let typical = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
        let most = |(row, own): (f64, Vec<f64>)| own.into_iter().map(|v| v.max(row).max(typical)).collect();
        Some(rows.into_iter().map(most).collect())
    };
    let entries = if facts.selects_entries { noise(Tap::AttnIndexScore, true) } else { None };
    let experts = if facts.hash_routing { None } else { noise(Tap::FfnRouterLogits, false) };
    Scores { entries: entries.unwrap_or_default(), experts: experts.unwrap_or_default() }
}
