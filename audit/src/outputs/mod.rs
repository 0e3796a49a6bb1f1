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

use karat_bundle::TapRow;
use karat_seam::{Layer, Recorder, Site, Streams, Tap};

pub(crate) use lanes::{Null, Nulls};

use crate::compare::Context;
use crate::facts::LayerFacts;
use crate::{Result, align};

/// True where a candidate shows the streams that leave layer `l` for a sequence, and nothing that was computed before them.
pub(crate) fn is_bare(seen: &Recorder, l: u16, seq: u32) -> bool {
    let block = Site::layer(l, Tap::Out).block;
    let mut own = seen.taps.keys().filter(|(site, of)| site.block == block && *of == seq).map(|(site, _)| site.tap);
    own.next() == Some(Tap::Out) && own.next().is_none()
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
) -> Result<Vec<TapRow>> {
    let (Some(of), Some(theirs)) = (null.of(seq), seen.get(Site::layer(l, Tap::Out), seq)) else {
        return Ok(Vec::new());
    };
    let Some(side) = unmix::Side::of(layer, (l, seq), facts, x, golden, &of.scores)? else { return Ok(Vec::new()) };
    let Some(out) = align::gather(&theirs.rows, &theirs.tensor, &side.rows).map(align::narrow) else {
        return Ok(Vec::new());
    };
    let Some(found) = side.branches(&out)? else { return Ok(Vec::new()) };
    Ok(judge::rows(at, l, &side.rows, &found, of, null.factor))
}
