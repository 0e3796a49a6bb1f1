//! What the streams that leave a layer say about what was computed inside it, where the candidate shows nothing else.
//!
//! A layer adds two vectors to its streams, attention's and the experts', each into every stream by a known coefficient, so
//! an error of the streams is solved for an error of either and a rest that no branch can make ([`unmix`]). What a changed
//! decision would do is taken out where noise may have changed it ([`flips`]). What is left is held against golden with noise of
//! the plan's roundings at every tap, its decisions free, taken apart in the same way ([`lanes`]): the worst row, the rows that
//! one in ten and half of all are beyond, the entry, and the gain of every part of a branch over all rows, which noise moves least
//! ([`judge`]).
//!
//! What is as near as the draws go passes, what is further than chance goes fails, and what is between asks for more draws.

mod flips;
mod judge;
mod lanes;
mod linear;
#[cfg(test)]
mod tests;
mod unmix;

use std::collections::{BTreeMap, BTreeSet};

use karat_bundle::TapRow;
use karat_diff::Claims;
use karat_seam::{Layer, Recorder, RowId, Site, Tap};
use rayon::prelude::*;

use judge::Statistic;
use lanes::{Noisy, OfSequence};

use crate::derive::{self, Rules};
use crate::facts::LayerFacts;
use crate::lockstep::Walk;
use crate::place::Place;
use crate::{Result, align};

/// True where a candidate shows the streams that leave layer `l` for a sequence and nothing else of it, or not what it
/// decided there.
pub(crate) fn is_undecided(claims: Claims, seen: &Recorder, facts: &LayerFacts, (l, seq): (u16, u32)) -> bool {
    let block = Site::layer(l, Tap::Out).block;
    let own: Vec<Tap> =
        seen.taps.keys().filter(|(site, of)| site.block == block && *of == seq).map(|(site, _)| site.tap).collect();
    let lacks = |makes: bool, tap| makes && !own.contains(&tap);
    // Noise of f32 changes no decision that is not a tie.
    let is_unknown = claims != Claims::F32
        && (lacks(facts.selects_entries, Tap::AttnSelected) || lacks(!facts.hash_routing, Tap::FfnIdx));
    own.contains(&Tap::Out) && (own.len() == 1 || is_unknown)
}

/// Streams of a sequence, taken apart.
#[derive(Default)]
pub(crate) struct Apart {
    pub(crate) rows: Vec<TapRow>,
    /// Positions at which a decision is open: golden may have another one than the candidate there, and both be right.
    pub(crate) open: BTreeSet<u32>,
}

/// True for what may follow from a decision of the layer.
pub(crate) fn follows_decisions(tap: Tap) -> bool {
    (Tap::AttnO..=Tap::Out).contains(&tap)
}

/// A candidate's sequence, taken apart.
struct Of {
    i: usize,
    seq: u32,
    rows: Vec<RowId>,
    found: Vec<Statistic>,
    open: BTreeSet<u32>,
}

/// By candidate of `missing` and sequence: the streams that leave layer `l` of those that don't show what they decided there, taken apart,
/// with one gated row a branch, statistic and phase (parts `unmixed.*`). `on_x2`: what golden shows on their own streams.
pub(crate) fn apart(
    walk: &mut Walk<'_, '_>,
    l: u16,
    golden: Option<&dyn Layer>,
    (on_x, on_x2): (&Recorder, &BTreeMap<usize, Recorder>),
    facts: &LayerFacts,
    missing: &[usize],
) -> Result<BTreeMap<(usize, u32), Apart>> {
    let mut out = BTreeMap::new();
    let Some(golden) = golden else { return Ok(out) };
    let start = std::time::Instant::now();
    let mut lanes = 0;
    for (rules, members) in plans(walk, l, facts, missing) {
        let noisy = Noisy::of(walk, l, (golden, on_x), facts, (rules, members[0].0))?;
        lanes += of_plan(walk, l, (golden, on_x2), facts, &noisy, &members, &mut out)?;
    }
    walk.passes += lanes;
    walk.out.in_noise(start);
    Ok(out)
}

/// The plans of candidates that don't show what they decided, each with these and their sequences.
fn plans<'a>(
    walk: &Walk<'a, '_>,
    l: u16,
    facts: &LayerFacts,
    missing: &[usize],
) -> Vec<(Rules<'a>, Vec<(usize, u32)>)> {
    let seqs = 0..walk.setup.golden.requests().seqs.len() as u32;
    let mut plans: Vec<(Rules<'_>, Vec<(usize, u32)>)> = Vec::new();
    for i in missing.iter().copied() {
        let candidate = &walk.setup.candidates[i];
        let Some(rules) = candidate.rules.or(candidate.claimed.map(|c| c.rules)) else { continue };
        let is_in = |seq: &u32| is_undecided(candidate.claims, &walk.runners[i].seen, facts, (l, *seq));
        let own: Vec<(usize, u32)> = seqs.clone().filter(is_in).map(|seq| (i, seq)).collect();
        if own.is_empty() {
            continue;
        }
        let same = |(plan, of): &(Rules<'_>, Vec<(usize, u32)>)| {
            let is_known = |i: usize| walk.setup.candidates[i].is_plan_known();
            plan.numerics == rules.numerics
                && is_known(of[0].0) == is_known(i)
                && derive::phases_alike(walk, of[0].0, i)
        };
        match plans.iter().position(same) {
            Some(at) => plans[at].1.extend(own),
            None => plans.push((rules, own)),
        }
    }
    plans
}

/// Gives the lanes that it took.
fn of_plan(
    walk: &Walk<'_, '_>,
    l: u16,
    (golden, on_x2): (&dyn Layer, &BTreeMap<usize, Recorder>),
    facts: &LayerFacts,
    noisy: &Noisy<'_, '_, '_>,
    members: &[(usize, u32)],
    out: &mut BTreeMap<(usize, u32), Apart>,
) -> Result<u64> {
    let (scores, kept) = noisy.first()?;
    let mut drawn: BTreeMap<u32, OfSequence<'_>> = BTreeMap::new();
    for (seq, scores) in (0..).zip(&scores).filter(|(seq, _)| members.iter().any(|(_, of)| of == seq)) {
        drawn.extend(noisy.begin(seq, scores, &kept)?.map(|of| (seq, of)));
    }
    drop(kept);
    let one = |&(i, seq): &(usize, u32)| -> Result<Option<Of>> {
        let (Some(null), Some(x), Some(on_x2)) = (drawn.get(&seq), &walk.runners[i].x_golden_rows, on_x2.get(&i))
        else {
            return Ok(None);
        };
        let Some(theirs) = walk.runners[i].seen.get(Site::layer(l, Tap::Out), seq) else { return Ok(None) };
        let side = unmix::Side::of(golden, (l, seq), facts, x, on_x2, &scores[seq as usize])?;
        let Some(side) = side.filter(|side| side.rows.len() == null.phases.len()) else { return Ok(None) };
        let Some(tensor) = align::gather(&theirs.rows, &theirs.tensor, &side.rows).map(align::narrow) else {
            return Ok(None);
        };
        let Some(found) = side.branches(&tensor)? else { return Ok(None) };
        let [.., rest] = &found;
        let open = side.rows.iter().zip(&rest.is_closed).filter(|(_, closed)| !**closed).map(|(row, _)| row.pos);
        let open = open.collect();
        Ok(Some(Of {
            i,
            seq,
            open,
            found: noisy.statistics(&found, &null.scale, &null.phases, &side),
            rows: side.rows,
        }))
    };
    let found: Vec<Result<Option<Of>>> = members.par_iter().map(one).collect();
    let found = found.into_iter().filter_map(Result::transpose).collect::<Result<Vec<Of>>>()?;
    loop {
        let is_open = |seq: u32, null: &OfSequence<'_>| {
            found.iter().any(|of| of.seq == seq && lanes::decided(&of.found, &null.draws, noisy.factors).is_none())
        };
        let mut open: Vec<(u32, &mut OfSequence<'_>)> =
            drawn.iter_mut().filter(|(seq, null)| is_open(**seq, null)).map(|(seq, null)| (*seq, null)).collect();
        if open.is_empty() || !noisy.more(&mut open)? {
            break;
        }
    }
    for of in &found {
        let (candidate, draws) = (&walk.setup.candidates[of.i], &drawn[&of.seq].draws);
        let scenario = walk.setup.scenarios.get(of.seq as usize).map_or("", String::as_str);
        let sequence = &walk.setup.golden.requests().seqs[of.seq as usize].id;
        let place = Place { candidate, scenario, sequence, layers: walk.blocks() };
        let asked = lanes::decided(&of.found, draws, noisy.factors).unwrap_or(draws.len());
        let rows = judge::rows(&place, l, &of.rows, &of.found, draws, (asked, noisy.factors));
        out.insert((of.i, of.seq), Apart { rows, open: of.open.clone() });
    }
    Ok(drawn.values().map(|of| of.draws.len() as u64).max().unwrap_or(0))
}
