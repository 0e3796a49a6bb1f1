//! Noise in the weight pass of golden's own lane on x, so that weights are decoded once for both.
//!
//! Golden shows a tap of all rows on x before any lane behind it shows one of them ([`karat_seam::Layer::run`] promises no such thing, so it is
//! checked). What a tap's roundings cost follows from x and from golden's taps up to this one, so it is known when the lane of
//! noise comes there; and the decisions that the lane is to replay are those that golden has just shown. Afterwards the sizes are told again
//! from all of golden's taps: noise of other sizes is not used, and made in a pass of its own.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use karat_seam::{
    Block, Data, DataMut, Lane, Layer, Phase, Recorder, Result, RowId, Site, Streams, Tap, TensorMut, Visitor, Want,
};

use super::costs::Costs;
use super::lanes::{Asked, Rows};
use super::noise::{Golden, Noise, Sizes};
use super::{Owned, found, phase_of, plans, terms};
use crate::cache::Key;
use crate::facts::LayerFacts;
use crate::lockstep::Walk;

/// Rows an expert up to which decoding its weights once more costs more than a lane: plans that turn out to have the same noise are then
/// worth a lane each. With more rows only the first plan, most often the only one, is sure to need its lane.
const FEW_ROWS: usize = 16;

/// The phase of a row.
type Phases<'a> = Box<dyn Fn(RowId) -> Phase + Send + Sync + 'a>;

/// Lanes of noise beside golden's.
#[derive(Default)]
pub(crate) struct Beside<'a> {
    plans: Vec<(Owned<'a>, Phases<'a>)>,
    layers: u16,
    /// What was measured on the way.
    pub(super) costs: Costs,
    /// What the lanes left.
    pub(super) ready: Vec<(Asked, Arc<Rows>)>,
}

impl<'a> Beside<'a> {
    /// For the plans of which no earlier run left anything; none for an MTP block, whose taps have other names while it runs.
    pub(crate) fn of(
        walk: &Walk<'a, '_>,
        (l, facts): (u16, &LayerFacts),
        key: Option<&Key>,
        missing: &[usize],
    ) -> Self {
        let layers = walk.blocks();
        if l >= layers {
            return Self::default();
        }
        let (plans, _) = plans(walk, missing);
        let (_, known) = found(walk, key, &plans);
        let rows: usize = walk.setup.golden.requests().seqs.iter().map(|s| s.ids.len()).sum();
        let is_few = rows * facts.experts_per_token <= FEW_ROWS * facts.experts;
        let wanted = plans.into_iter().zip(known).filter(|(_, known)| known.is_none());
        let wanted = wanted.take(if is_few { usize::MAX } else { 1 });
        let plans = wanted.map(|(plan, _)| (plan, phase_of(walk, plan.1))).collect();
        Self { plans, layers, ..Self::default() }
    }

    /// Runs golden's lanes, of which the first is on x and fills `on_x`, and the lanes of noise behind them.
    pub(crate) fn run(
        &mut self,
        golden: &dyn Layer,
        on_x: &Mutex<Recorder>,
        (l, facts): (u16, &LayerFacts),
        lanes: &mut [Lane<'_>],
    ) -> Result<()> {
        let plans = std::mem::take(&mut self.plans);
        let Some(x) = lanes.first().map(|lane| lane.x).filter(|_| !plans.is_empty()) else {
            return golden.run(lanes);
        };
        let at = Place { golden, on_x, x, l, layers: self.layers, facts, costs: &self.costs };
        let mut noise: Vec<One<'_>> = plans.into_iter().map(|(plan, phases)| One::new(at, plan, phases)).collect();
        let mut all: Vec<Lane<'_>> = lanes
            .iter_mut()
            .map(|lane| Lane { kv: lane.kv, routing: lane.routing, ..Lane::new(lane.x, &mut *lane.see) })
            .collect();
        all.extend(noise.iter_mut().map(|one| Lane::new(x, one as &mut dyn Visitor)));
        golden.run(&mut all)?;
        let outs: Vec<_> = all.into_iter().map(|lane| lane.out).collect();
        for (lane, out) in lanes.iter_mut().zip(outs) {
            lane.out = out;
        }
        self.ready = noise.into_iter().filter_map(One::left).collect();
        Ok(())
    }
}

/// What the lanes have in common.
#[derive(Clone, Copy)]
struct Place<'p> {
    golden: &'p dyn Layer,
    on_x: &'p Mutex<Recorder>,
    x: &'p Streams,
    l: u16,
    layers: u16,
    facts: &'p LayerFacts,
    costs: &'p Costs,
}

/// The lane of one plan: noise whose sizes are told tap by tap.
struct One<'p> {
    at: Place<'p>,
    plan: Owned<'p>,
    noise: Noise<'p>,
    told: BTreeSet<Tap>,
    /// Something was not there when it was asked for.
    is_lost: bool,
}

impl<'p> One<'p> {
    fn new(at: Place<'p>, plan: Owned<'p>, phases: Phases<'p>) -> Self {
        let (block, none) = (Block::Layer(at.l), Sizes::of(&[]));
        let noise = Noise::new((block, block), [none.clone(), none], Golden::Growing(at.on_x), at.facts.ratio, phases);
        Self { at, plan, noise, told: BTreeSet::new(), is_lost: false }
    }

    /// What the noise left; `None` where it may not be what was to be made.
    fn left(self) -> Option<(Asked, Arc<Rows>)> {
        let is_whole = !self.is_lost && !self.noise.is_short;
        is_whole.then(|| ((self.noise.sizes, self.plan.1), Arc::new(self.noise.seen)))
    }

    /// Tells the sizes at a tap, in prefill and in decode.
    fn tell(&mut self, tap: Tap) {
        if !self.told.insert(tap) {
            return;
        }
        let Place { golden, on_x, x, l, layers, costs, .. } = self.at;
        let on_x = on_x.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |phase| terms::of_tap((self.plan.0, phase), (l, layers), golden, &on_x, x, costs, tap);
        let prefill = of(Phase::Prefill);
        let decode = if self.plan.0.is_even() { None } else { Some(of(Phase::Decode)) };
        // An error comes again where all taps are told, and is said there.
        match (prefill, decode.transpose()) {
            (Ok(prefill), Ok(decode)) => {
                self.noise.sizes[1].add(decode.as_ref().unwrap_or(&prefill));
                self.noise.sizes[0].add(&prefill);
            }
            _ => self.is_lost = true,
        }
    }

    /// Replays golden's decisions at these rows; `None` where it did not show them.
    fn replay(&self, at: Site, rows: &[RowId], values: &mut DataMut<'_>) -> Option<()> {
        let on_x = self.at.on_x.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = on_x.get(at, rows.first()?.seq)?;
        let (theirs, width) = (shown.tensor.width(), values.len() / rows.len());
        for (i, row) in rows.iter().enumerate() {
            let of = row.pos as usize;
            shown.rows.get(of).filter(|r| r.pos == row.pos)?;
            let (from, to) = (of * theirs..of * theirs + width.min(theirs), i * width..i * width + width.min(theirs));
            match (&shown.tensor.data, &mut *values) {
                (Data::U8(all), DataMut::U8(values)) => values.get_mut(to)?.copy_from_slice(all.get(from)?),
                (Data::I64(all), DataMut::I64(values)) => values.get_mut(to)?.copy_from_slice(all.get(from)?),
                _ => return None,
            }
        }
        Some(())
    }
}

impl Visitor for One<'_> {
    fn want(&self, at: Site) -> Want {
        let is_wanted = match at.tap {
            Tap::FfnIdx => true,
            // Elsewhere every entry is attended to.
            Tap::AttnSelected => self.at.facts.selects_entries,
            tap => terms::writer(self.at.golden, tap).is_some(),
        };
        if at.block == Block::Layer(self.at.l) && is_wanted { Want::Write } else { Want::Skip }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], mut tensor: TensorMut<'_>) -> Result<()> {
        if at.tap.is_discrete() {
            self.is_lost |= !rows.is_empty() && self.replay(at, rows, &mut tensor.data).is_none();
            return Ok(());
        }
        self.tell(at.tap);
        if self.noise.sizes.iter().any(|sizes| sizes.has(at.tap)) {
            self.noise.disturb(at, rows, &mut tensor.data);
        }
        Ok(())
    }
}
