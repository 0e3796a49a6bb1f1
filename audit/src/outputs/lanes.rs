//! Golden with noise of a plan's roundings at every tap and free decisions: what a right candidate's streams look like.

use std::collections::BTreeMap;

use karat_diff::tolerance::{DERIVED, ROUNDINGS};
use karat_seam::{Block, Lane, Layer, Recorder, RowId, Site, Tap, TensorMut, Visitor, Want};

use super::flips::Scores;
use super::unmix::{Branches, Side};
use super::{is_undecided, judge};
use crate::decisions::router_score;
use crate::derive::{self, Noise, Rules};
use crate::facts::LayerFacts;
use crate::lockstep::Walk;
use crate::place::named;
use crate::{Result, align};

/// Draws of the noise.
const DRAWS: u64 = 12;

/// What a right candidate of one plan looks like.
pub(crate) struct Null {
    by_seq: BTreeMap<u32, OfSequence>,
    /// Tolerances are so many times what the draws differ by among each other.
    pub(super) factor: f64,
}

/// In one sequence.
pub(super) struct OfSequence {
    pub(super) scores: Scores,
    pub(super) judge: judge::Scale,
}

impl Null {
    pub(super) fn of(&self, seq: u32) -> Option<&OfSequence> {
        self.by_seq.get(&seq)
    }
}

/// By candidate.
#[derive(Default)]
pub(crate) struct Nulls {
    all: Vec<Null>,
    of: BTreeMap<usize, usize>,
}

impl Nulls {
    pub(crate) fn of(&self, i: usize) -> Option<&Null> {
        self.all.get(*self.of.get(&i)?)
    }

    /// Those of the plans whose candidates show nothing but the streams that leave layer `l`; empty where there are none.
    pub(crate) fn make(
        walk: &mut Walk<'_, '_>,
        l: u16,
        golden: Option<&dyn Layer>,
        on_x: &Recorder,
        facts: &LayerFacts,
        missing: &[usize],
    ) -> Result<Self> {
        let mut out = Self::default();
        let Some(golden) = golden else { return Ok(out) };
        let start = std::time::Instant::now();
        let seqs = 0..walk.setup.golden.requests().seqs.len() as u32;
        let mut plans: Vec<(Rules<'_>, usize)> = Vec::new();
        for i in missing.iter().copied() {
            let candidate = &walk.setup.candidates[i];
            let Some(rules) = candidate.rules.or(candidate.claimed.map(|c| c.rules)) else { continue };
            if !seqs.clone().any(|seq| is_undecided(candidate.claims, &walk.runners[i].seen, facts, (l, seq))) {
                continue;
            }
            let same = |(plan, first): &(Rules<'_>, usize)| {
                let of = |i: usize| walk.setup.candidates[i].is_plan_known();
                plan.numerics == rules.numerics && of(*first) == of(i) && derive::phases_alike(walk, *first, i)
            };
            let at = plans.iter().position(same).unwrap_or_else(|| {
                plans.push((rules, i));
                plans.len() - 1
            });
            out.of.insert(i, at);
        }
        for (rules, i) in plans {
            out.all.push(null(walk, l, golden, on_x, facts, rules, i)?);
        }
        walk.out.wall[0] += start.elapsed().as_secs_f64();
        Ok(out)
    }
}

fn null(
    walk: &mut Walk<'_, '_>,
    l: u16,
    golden: &dyn Layer,
    on_x: &Recorder,
    facts: &LayerFacts,
    rules: Rules<'_>,
    i: usize,
) -> Result<Null> {
    let x = walk.x.values()?;
    let sizes = derive::sizes(rules, (l, walk.blocks()), golden, on_x, x)?;
    let blocks = (named(Block::Layer(l), walk.blocks()), Block::Layer(l));
    let drawn = |draw| {
        let noise = Noise::new(blocks, sizes.clone(), on_x, facts.ratio, derive::phase_of(walk, i)).draw(draw);
        Drawn { noise, kept: Recorder::new(|at| KEPT.contains(&at.tap)) }
    };
    let mut draws: Vec<Drawn<'_>> = (1..=DRAWS).map(drawn).collect();
    let mut lanes: Vec<Lane<'_>> = draws.iter_mut().map(|see| Lane::new(x, see)).collect();
    golden.run(&mut lanes)?;
    drop(lanes);
    let mut kept: Vec<Recorder> = draws.into_iter().map(|drawn| drawn.kept).collect();
    walk.passes += DRAWS;
    kept.iter_mut().for_each(|kept| walk.as_layer(kept, l));
    let factor = if walk.setup.candidates[i].is_plan_known() { DERIVED } else { ROUNDINGS };
    let x = walk.x.values()?;
    let mut null = Null { by_seq: BTreeMap::new(), factor };
    for seq in 0..walk.setup.golden.requests().seqs.len() as u32 {
        let scores = scores((l, seq), facts, on_x, &kept);
        let Some(side) = Side::of(golden, (l, seq), facts, x, on_x, &scores)? else { continue };
        let mut all: Vec<Branches> = Vec::new();
        for kept in &kept {
            let Some(out) = kept.get(Site::layer(l, Tap::Out), seq) else { continue };
            let Some(tensor) = align::gather(&out.rows, &out.tensor, &side.rows) else { continue };
            all.extend(side.branches(&tensor)?);
        }
        let phase_of = derive::phase_of(walk, i);
        if let Some(judge) = judge::Scale::of(&all, &side.rows.iter().map(|r| phase_of(*r)).collect::<Vec<_>>()) {
            null.by_seq.insert(seq, OfSequence { scores, judge });
        }
    }
    Ok(null)
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

/// Noise of deciding scores over all draws, by row: its own, or the median row's where that is more.
fn scores((l, seq): (u16, u32), facts: &LayerFacts, on_x: &Recorder, kept: &[Recorder]) -> Scores {
    let noise = |tap: Tap, is_relative: bool| {
        let get = |from: &Recorder| from.get(Site::layer(l, tap), seq).map(|r| r.tensor.clone());
        let right = get(on_x)?;
        let width = right.width().max(1);
        let mut all = vec![(0.0, 0.0); right.rows()];
        for kept in kept {
            let tensor = get(kept)?;
            let (right, noisy) = (right.as_f32(tap.name()).ok()?, tensor.as_f32(tap.name()).ok()?);
            let score = |v: f32| if is_relative { f64::from(v) } else { router_score(f64::from(v)) };
            for ((a, b), all) in right.chunks_exact(width).zip(noisy.chunks_exact(width)).zip(&mut all) {
                let both = a.iter().zip(b).filter(|(a, b)| a.is_finite() && b.is_finite());
                let (mut d, mut size, mut n) = (0.0, 0.0, 0u32);
                for (a, b) in both {
                    let (a, b) = (score(*a), score(*b));
                    (d, size, n) = (d + (a - b).powi(2), size + a * a, n + 1);
                }
                let over = if is_relative { size } else { f64::from(n) };
                *all = (all.0 + d, all.1 + over);
            }
        }
        let rows: Vec<f64> = all.iter().map(|(d, over)| if *over > 0.0 { (d / over).sqrt() } else { 0.0 }).collect();
        let mut sorted: Vec<f64> = rows.iter().copied().filter(|v| *v > 0.0).collect();
        sorted.sort_by(f64::total_cmp);
        let typical = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
        Some(rows.into_iter().map(|v| v.max(typical)).collect())
    };
    let entries = if facts.selects_entries { noise(Tap::AttnIndexScore, true) } else { None };
    let experts = if facts.hash_routing { None } else { noise(Tap::FfnRouterLogits, false) };
    Scores { entries: entries.unwrap_or_default(), experts: experts.unwrap_or_default() }
}
