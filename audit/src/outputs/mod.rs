//! What the streams that leave a layer say about what was computed inside it, where the candidate shows nothing else.
//!
//! A layer adds two vectors to its streams, attention's and the experts', each into every stream by a known coefficient, so
//! an error of the streams is solved for an error of either and a rest that no branch can make ([`unmix`]). What a changed
//! decision would do is taken out where noise may have changed it ([`flips`]). What is left is held against golden with noise of
//! the plan's roundings at every tap, its decisions free, taken apart in the same way ([`lanes`]): the worst row, the row that
//! one in ten is beyond, and the gain of every part of a branch over all rows, which noise moves least ([`judge`]).

mod flips;
mod judge;
mod lanes;
mod linear;
#[cfg(test)]
mod tests;
mod unmix;

use std::collections::BTreeSet;

use karat_bundle::TapRow;
use karat_diff::Claims;
use karat_seam::{Layer, Recorder, Site, Streams, Tap};

pub(crate) use lanes::{Null, Nulls};

use crate::compare::Context;
use crate::facts::LayerFacts;
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

/// One gated row a branch, statistic and phase (parts `unmixed.*`) of layer `l` for one sequence. `x` are the streams that
/// enter the candidate's layer in golden's row order, `golden` what golden shows on them.
pub(crate) fn rows(
    at: &Context<'_>,
    layer: &dyn Layer,
    (l, seq): (u16, u32),
    facts: &LayerFacts,
    x: &Streams,
    golden: &Recorder,
    seen: &Recorder,
    null: &Null,
) -> Result<Apart> {
    let (Some(of), Some(theirs)) = (null.of(seq), seen.get(Site::layer(l, Tap::Out), seq)) else {
        return Ok(Apart::default());
    };
    let Some(side) = unmix::Side::of(layer, (l, seq), facts, x, golden, &of.scores)? else {
        return Ok(Apart::default());
    };
    let Some(out) = align::gather(&theirs.rows, &theirs.tensor, &side.rows).map(align::narrow) else {
        return Ok(Apart::default());
    };
    let Some(found) = side.branches(&out)? else { return Ok(Apart::default()) };
    let [.., rest] = &found;
    let open = side.rows.iter().zip(&rest.is_closed).filter(|(_, closed)| !**closed).map(|(row, _)| row.pos);
    Ok(Apart { open: open.collect(), rows: judge::rows(at, l, &side.rows, &found, of, null.factor) })
}
