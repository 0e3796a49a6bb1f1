//! What the roundings of the stock plan must cost, tap by tap, from golden alone.
//!
//! At each tap r² is the sum of c² over the roundings of the op that writes it: operands, accumulator, output
//! ([`terms`]), each c measured by rounding golden's own values to the format. What roundings further up in the layer
//! add is measured too: golden runs once more on x with noise of these sizes at every tap, its own decisions forced
//! ([`noise`]), and the distance from the run without noise is what the row's tolerance is derived from.

mod input;
mod noise;
mod terms;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use karat_bundle::DerivationRow;
use karat_model::Checkpoint;
use karat_optimized::Numerics;
use karat_seam::{Block, Lane, Layer, Recorder, Routing, RowId, Tap};

use crate::cache::{Key, Kind, Reader, Writer};
use crate::facts::LayerFacts;
use crate::lockstep::Walk;
use crate::place::named;
use crate::record::{read_rows, rows};
use crate::{Result, choices};

/// What roundings are derived from: the stock plan's rules, which are the same in both phases, and the weights.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// Where the path rounds, and to what.
    pub numerics: &'a Numerics,
    /// The model: weights that the path rounds.
    pub checkpoint: &'a Checkpoint,
}

/// ‖noise‖² and ‖golden‖² of one row of one tap.
pub(crate) type Squares = [f64; 2];

/// What the roundings cost in one layer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Predicted {
    /// By tap and sequence, then by position (index for entries).
    rows: BTreeMap<(Tap, u32), BTreeMap<u32, Squares>>,
    /// The roundings at each tap.
    pub(crate) terms: Vec<Term>,
}

/// One rounding at one tap.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Term {
    /// The sequence whose values it was measured on; `None` where it is the same for all.
    pub(crate) seq: Option<u32>,
    /// The row of `derivations.csv`, without names of a sequence.
    pub(crate) row: DerivationRow,
}

impl Predicted {
    /// rel-L2 over these rows, and how many of them carry it; `None` where nothing was derived, or golden is zero.
    pub(crate) fn over<'r>(&self, tap: Tap, rows: impl Iterator<Item = &'r RowId>) -> Option<(f64, f64)> {
        let (mut noise, mut fourth, mut size) = (0.0, 0.0, 0.0);
        for row in rows {
            let [d, x] = self.rows.get(&(tap, row.seq))?.get(&row.pos)?;
            noise += d;
            fourth += d * d;
            size += x;
        }
        let carry = if fourth > 0.0 { noise * noise / fourth } else { 1.0 };
        (size > 0.0).then(|| ((noise / size).sqrt(), carry))
    }

    fn write(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.u64(self.rows.len() as u64);
        for ((tap, seq), squares) in &self.rows {
            to.text(tap.name());
            to.u32(*seq);
            to.u64(squares.len() as u64);
            for (pos, [d, x]) in squares {
                to.u32(*pos);
                to.f64(*d);
                to.f64(*x);
            }
        }
        to.u64(self.terms.len() as u64);
        for term in &self.terms {
            to.u32(term.seq.unwrap_or(u32::MAX));
        }
        rows(&mut to, &self.terms.iter().map(|t| t.row.clone()).collect::<Vec<_>>());
        to.0
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        let mut all = BTreeMap::new();
        for _ in 0..from.count(20)? {
            let (tap, seq) = (Tap::from_name(from.text()?)?, from.u32()?);
            let mut squares = BTreeMap::new();
            for _ in 0..from.count(20)? {
                squares.insert(from.u32()?, [from.f64()?, from.f64()?]);
            }
            all.insert((tap, seq), squares);
        }
        let of: Vec<u32> = (0..from.count(4)?).map(|_| from.u32()).collect::<Option<_>>()?;
        let rows: Vec<DerivationRow> = read_rows(&mut from)?;
        if rows.len() != of.len() {
            return None;
        }
        let seq = |of: u32| (of != u32::MAX).then_some(of);
        let terms = of.into_iter().zip(rows).map(|(of, row)| Term { seq: seq(of), row }).collect();
        from.is_done().then_some(Self { rows: all, terms })
    }
}

/// Derives layer `l` (MTP blocks follow the layers), or takes it from the cache. `None` when the first candidate's rules
/// are not known, or golden's layer is not here. `on_x` is what golden shows on x.
pub(crate) fn of(
    walk: &mut Walk<'_, '_>,
    l: u16,
    golden: Option<&dyn Layer>,
    on_x: &Recorder,
    key: Option<&Key>,
    facts: &LayerFacts,
) -> Result<Option<Predicted>> {
    once(walk, key, |walk, rules| {
        let Some(golden) = golden else { return Ok(None) };
        let terms = terms::of(rules, l, walk.blocks(), golden, on_x);
        let x = walk.x.values()?;
        let forced = choices::of(l, on_x, walk.setup.golden.requests(), facts, &x.rows);
        let blocks = (named(Block::Layer(l), walk.blocks()), Block::Layer(l));
        let mut see = noise::Noise::new(blocks, noise::Sizes::of(&terms), on_x);
        golden.run(&mut [Lane { routing: Routing::Forced(&forced), ..Lane::new(x, &mut see) }])?;
        walk.passes += 1;
        Ok(Some(Predicted { rows: see.seen, terms }))
    })
}

/// As [`of`], the streams that enter MTP block `i`; `next` are the ids after the rows of x.
pub(crate) fn of_input(
    walk: &mut Walk<'_, '_>,
    i: u16,
    next: &[u32],
    on_x: &Recorder,
    key: Option<&Key>,
) -> Result<Option<Predicted>> {
    once(walk, key, |walk, rules| {
        let x = walk.x.values()?;
        let Some(operands) = input::operands(rules, i, on_x, x) else { return Ok(None) };
        let terms = input::terms(rules, (i, walk.blocks()), &operands);
        let sizes = input::sizes(&terms);
        let x = input::disturbed(x, &sizes);
        let block = Block::Mtp(i);
        let mut see = noise::Noise::new((block, block), sizes, on_x);
        walk.setup.golden.mtp_input(i, &mut [Lane::new(&x, &mut see)], next)?;
        see.seen.retain(|(tap, _), _| *tap == Tap::In);
        let terms = terms.into_iter().map(|(_, term)| term).collect();
        Ok(Some(Predicted { rows: see.seen, terms }))
    })
}

/// What was derived before under this key, or is now.
fn once<'a>(
    walk: &mut Walk<'a, '_>,
    key: Option<&Key>,
    make: impl FnOnce(&mut Walk<'a, '_>, Rules<'a>) -> Result<Option<Predicted>>,
) -> Result<Option<Predicted>> {
    let Some(rules) = walk.setup.candidates.first().and_then(|c| c.rules) else { return Ok(None) };
    let key = key.map(|key| key.clone().part("entry", b"derived").shown("rules", rules.numerics).finish());
    let found = key.filter(|_| walk.reads_cache).zip(walk.cache());
    if let Some(found) = found.and_then(|(key, cache)| cache.get(Kind::Other, &key, Predicted::read)) {
        return Ok(Some(found));
    }
    let start = std::time::Instant::now();
    let Some(predicted) = make(walk, rules)? else { return Ok(None) };
    walk.out.wall[0] += start.elapsed().as_secs_f64();
    if let Some((key, cache)) = key.zip(walk.cache()) {
        cache.put(&key, &predicted.write());
    }
    Ok(Some(predicted))
}
