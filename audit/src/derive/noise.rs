//! Noise of the roundings' size at every tap of golden.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use karat_diff::tolerance::noise::{Noisy, disturb, mix};
use karat_diff::tolerance::root_sum;
use karat_seam::{Block, Data, DataMut, Phase, Recorder, Result, RowId, Site, Tap, TensorMut, Visitor, Want};

use super::{Squares, Term};

/// Standard deviations of the noise at one tap.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Size {
    /// Over the RMS of the row: what rounding an operand of a product does to every output alike.
    pub(crate) spread: f64,
    /// Over the value: what rounding the output does.
    pub(crate) own: f64,
}

/// Sizes by tap: what all sequences have alike under `None`, and what each adds to that.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sizes(BTreeMap<Tap, BTreeMap<Option<u32>, Size>>);

impl Sizes {
    pub(crate) fn of(terms: &[Term]) -> Self {
        let mut sizes = Self::default();
        sizes.add(terms);
        sizes
    }

    /// Terms that come after those that are in it.
    pub(super) fn add(&mut self, terms: &[Term]) {
        for Term { seq, row } in terms {
            let Some(tap) = Tap::from_name(&row.tap) else { continue };
            let size = self.0.entry(tap).or_default().entry(*seq).or_default();
            let cost = row.cost * row.times.sqrt();
            let to = if row.shape == "spread" { &mut size.spread } else { &mut size.own };
            *to = root_sum([*to, cost]);
        }
    }

    /// True where something is known of a tap.
    pub(super) fn has(&self, tap: Tap) -> bool {
        self.0.contains_key(&tap)
    }

    /// The size at a tap of a sequence.
    pub(crate) fn at(&self, tap: Tap, seq: u32) -> Option<Size> {
        let of = self.0.get(&tap)?;
        let get = |seq| of.get(&seq).copied().unwrap_or_default();
        let (all, own) = (get(None), get(Some(seq)));
        Some(Size { spread: root_sum([all.spread, own.spread]), own: root_sum([all.own, own.own]) })
    }
}

/// A visitor that adds the noise and measures what has gathered. Uniform, from tap and position alone: the same for every
/// number of threads.
pub(crate) struct Noise<'a> {
    block: Block,
    named: Block,
    /// In prefill and in decode.
    pub(super) sizes: [Sizes; 2],
    golden: Golden<'a>,
    /// Tokens an entry stands for.
    ratio: Option<u32>,
    phase_of: Box<dyn Fn(RowId) -> Phase + Send + Sync + 'a>,
    draw: u64,
    pub(super) seen: BTreeMap<(Tap, u32), BTreeMap<u32, Squares>>,
    /// A row that golden did not show came by.
    pub(super) is_short: bool,
}

/// What golden shows on x without noise.
#[derive(Clone, Copy)]
pub(crate) enum Golden<'a> {
    /// All of it.
    Whole(&'a Recorder),
    /// As far as its own lane of the same pass got.
    Growing(&'a Mutex<Recorder>),
}

impl<'a> From<&'a Recorder> for Golden<'a> {
    fn from(all: &'a Recorder) -> Self {
        Self::Whole(all)
    }
}

impl<'a> Noise<'a> {
    /// For a block as a path shows it; `golden` has its taps under the block `named`. `ratio`: tokens an entry stands for.
    pub(crate) fn new(
        (block, named): (Block, Block),
        sizes: [Sizes; 2],
        golden: impl Into<Golden<'a>>,
        ratio: Option<u32>,
        phase_of: Box<dyn Fn(RowId) -> Phase + Send + Sync + 'a>,
    ) -> Self {
        let golden = golden.into();
        Self { block, named, sizes, golden, ratio, phase_of, draw: 0, seen: BTreeMap::new(), is_short: false }
    }

    /// Another draw of the same noise; 0 is the first.
    pub(crate) fn draw(self, draw: u64) -> Self {
        Self { draw, ..self }
    }

    /// Of an entry: the row that completes it.
    fn phase(&self, tap: Tap, row: RowId) -> Phase {
        let pos = match self.ratio {
            Some(ratio) if tap.is_per_entry() => row.pos * ratio + ratio - 1,
            _ => row.pos,
        };
        (self.phase_of)(RowId { pos, ..row })
    }
}

impl Visitor for Noise<'_> {
    fn want(&self, at: Site) -> Want {
        let is_known = self.sizes.iter().any(|sizes| sizes.has(at.tap));
        if at.block == self.block && is_known { Want::Write } else { Want::Skip }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], mut tensor: TensorMut<'_>) -> Result<()> {
        self.disturb(at, rows, &mut tensor.data);
        Ok(())
    }
}

impl Noise<'_> {
    /// Adds the noise of a tap to its values.
    pub(crate) fn disturb(&mut self, at: Site, rows: &[RowId], values: &mut DataMut<'_>) {
        let Some(first) = rows.first() else { return };
        let sizes = self.sizes.each_ref().map(|sizes| sizes.at(at.tap, first.seq).unwrap_or_default());
        let phases: Vec<Phase> = rows.iter().map(|row| self.phase(at.tap, *row)).collect();
        let DataMut::F32(values) = values else { return };
        let width = values.len() / rows.len();
        let held;
        let golden = match self.golden {
            Golden::Whole(all) => all,
            Golden::Growing(all) => {
                held = all.lock().unwrap_or_else(PoisonError::into_inner);
                &*held
            }
        };
        let golden = golden.get(Site { block: self.named, ..at }, first.seq);
        let draw = self.draw;
        let noisy = |((row, phase), values): ((&RowId, Phase), _)| {
            let Size { spread, own } = sizes[phase as usize];
            // A ragged row is wider in one of the two: what only one has is -inf there.
            let golden = golden.and_then(|g| golden_row(g, row));
            Noisy {
                spread,
                own,
                seed: if draw == 0 { seed(at.tap, *row) } else { mix(seed(at.tap, *row) ^ draw) },
                values,
                golden: golden.unwrap_or_default(),
                squares: [0.0; 2],
            }
        };
        let mut noisy: Vec<Noisy<'_>> =
            rows.iter().zip(phases).zip(values.chunks_exact_mut(width.max(1))).map(noisy).collect();
        disturb(&mut noisy);
        let seen = self.seen.entry((at.tap, first.seq)).or_default();
        let is_known = |row: &&RowId| golden.is_some_and(|g| golden_row(g, row).is_some());
        self.is_short |= !rows.iter().all(|row| is_known(&row));
        seen.extend(rows.iter().zip(&noisy).filter(|(row, _)| is_known(row)).map(|(row, of)| (row.pos, of.squares)));
    }
}

/// Golden's values of a row; its rows are positions 0, 1, 2, ... in a cold run.
fn golden_row<'r>(golden: &'r karat_seam::Recorded, row: &RowId) -> Option<&'r [f32]> {
    let at = row.pos as usize;
    let Data::F32(values) = &golden.tensor.data else { return None };
    let width = golden.tensor.width();
    golden.rows.get(at).filter(|r| r.pos == row.pos)?;
    values.get(at * width..(at + 1) * width)
}

/// Adds noise to one row.
pub(super) fn add(Size { spread, own }: Size, seed: u64, values: &mut [f32]) {
    disturb(&mut [Noisy { spread, own, seed, values, golden: &[], squares: [0.0; 2] }]);
}

/// From tap and position alone: a sequence's noise does not depend on its place among others.
pub(super) fn seed(tap: Tap, row: RowId) -> u64 {
    // Numbered as before there was `in`: what earlier versions derived stays.
    let number = tap as u64 - u64::from(tap >= Tap::In);
    mix(mix(u64::from(row.pos)) ^ number)
}
