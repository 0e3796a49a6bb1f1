//! What the roundings of a numeric plan must cost, tap by tap, from golden alone.
//!
//! At each tap r² is the sum of c² over the roundings of the op that writes it: operands, accumulator, output
//! ([`terms`]), each c measured by rounding golden's own values to the format. What roundings further up in the layer
//! add is measured too: golden runs once more on x with noise of these sizes at every tap, its own decisions forced
//! ([`noise`]), and the distance from the run without noise is what the row's tolerance is derived from. Each numeric plan
//! of a run is derived by itself, with the rules of the phase that a row is computed in.

mod beside;
mod costs;
mod input;
mod lanes;
mod noise;
mod terms;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use karat_bundle::DerivationRow;
use karat_model::Checkpoint;
use karat_optimized::{Attend, Exponential, Numerics, Optimized, Product, SplitK};
use karat_seam::{Block, Lane, Layer, Op, Path, Phase, Recorder, Routing, RowId, Streams, Tap};

pub(crate) use beside::Beside;
use costs::Costs;
use lanes::{Asked, Rows};
pub(crate) use noise::{Noise, Size, Sizes};

use crate::cache::{Hash, Key, Kind, Reader, Writer};
use crate::facts::LayerFacts;
use crate::lockstep::Walk;
use crate::place::named;
use crate::record::{read_rows, rows};
use crate::{Result, choices};

/// What roundings are derived from: a plan's rules and the weights.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// Where the path rounds, and to what: in prefill, in decode.
    pub numerics: [&'a Numerics; 2],
    /// The model: weights that the path rounds.
    pub checkpoint: &'a Checkpoint,
}

impl<'a> Rules<'a> {
    /// Those of a path of this model.
    pub fn of(path: &'a Optimized, checkpoint: &'a Checkpoint) -> Self {
        Self { numerics: [Phase::Prefill, Phase::Decode].map(|p| path.numerics(p)), checkpoint }
    }

    /// True when both phases round alike.
    pub(crate) fn is_even(&self) -> bool {
        self.numerics[0] == self.numerics[1]
    }

    /// True for a mixing whose product rounds its weight: one weight's error is that of all rows, so that many rows are but one
    /// draw, and no number of them tells what another draw may be. What follows has the error, and others over it.
    pub(crate) fn is_one_draw(&self, tap: Tap, phase: Phase) -> bool {
        let taps = [Tap::HcAttnPre, Tap::HcAttnPost, Tap::HcAttnComb, Tap::HcFfnPre, Tap::HcFfnPost, Tap::HcFfnComb];
        taps.contains(&tap) && self.numerics[phase as usize].hc != Product::F32
    }

    /// Ops whose roundings no term tells.
    pub(crate) fn untold(&self, phase: Phase) -> Vec<Op> {
        match self.numerics[phase as usize].attend {
            // What a score loses depends on the scores.
            Attend::Fp8Q { .. }
            | Attend::SplitK(SplitK { fold_scale: true, .. } | SplitK { exp: Exponential::Cubic, .. }) => {
                vec![Op::Attend]
            }
            Attend::Fused { .. } | Attend::Parted { .. } | Attend::SplitK(_) => Vec::new(),
        }
    }
}

/// A rounding that costs less than this is f32's own.
const EXACT: f64 = 1e-6;

/// ‖noise‖² and ‖golden‖² of one row of one tap.
pub(crate) type Squares = [f64; 2];

/// What the roundings cost in one layer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Predicted {
    rows: Arc<Rows>,
    /// Where the cache keeps the rows.
    kept: Option<Hash>,
    /// The roundings at each tap, in prefill, and in decode where that has others.
    pub(crate) terms: Vec<Term>,
    decode: Option<Vec<Term>>,
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

    /// True for a tap whose op rounds nothing but its result, and that once, to bf16.
    pub(crate) fn rounds_once(&self, tap: Tap, phase: Phase) -> bool {
        let mut terms = self.terms_in(phase).iter().filter(|t| t.row.tap == tap.name() && t.row.cost > EXACT);
        let (first, second) = (terms.next(), terms.find(|t| t.row.term != "output"));
        let is_one = |t: &Term| t.row.term == "output" && t.row.times <= 1.0 && t.row.format == "bf16";
        second.is_none() && first.is_some_and(is_one)
    }

    /// The roundings at each tap in a phase.
    pub(crate) fn terms_in(&self, phase: Phase) -> &[Term] {
        self.decode.as_deref().filter(|_| phase == Phase::Decode).unwrap_or(&self.terms)
    }

    /// Without the rows: what keeps them has a name of its own.
    fn write(&self, kept: &Hash) -> Vec<u8> {
        let mut to = Writer::default();
        to.bytes(kept);
        write_terms(&mut to, &self.terms);
        to.byte(u8::from(self.decode.is_some()));
        self.decode.iter().for_each(|terms| write_terms(&mut to, terms));
        to.0
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        let kept = Some(from.bytes()?.try_into().ok()?);
        let terms = read_terms(&mut from)?;
        let decode = if from.byte()? != 0 { Some(read_terms(&mut from)?) } else { None };
        from.is_done().then_some(Self { rows: Arc::default(), kept, terms, decode })
    }
}

fn write_terms(to: &mut Writer, terms: &[Term]) {
    to.u64(terms.len() as u64);
    for term in terms {
        to.u32(term.seq.unwrap_or(u32::MAX));
    }
    rows(to, &terms.iter().map(|t| t.row.clone()).collect::<Vec<_>>());
}

fn read_terms(from: &mut Reader<'_>) -> Option<Vec<Term>> {
    let of: Vec<u32> = (0..from.count(4)?).map(|_| from.u32()).collect::<Option<_>>()?;
    let rows: Vec<DerivationRow> = read_rows(from)?;
    if rows.len() != of.len() {
        return None;
    }
    let seq = |of: u32| (of != u32::MAX).then_some(of);
    Some(of.into_iter().zip(rows).map(|(of, row)| Term { seq: seq(of), row }).collect())
}

/// What was derived in one layer, plan by plan.
#[derive(Debug, Default)]
pub(crate) struct Derived {
    all: Vec<Predicted>,
    /// By candidate: which of them; `None` where nothing was derived.
    of: Vec<Option<usize>>,
}

impl Derived {
    /// A candidate's own; of one whose plan is not known the first candidate's.
    pub(crate) fn of(&self, i: usize) -> Option<&Predicted> {
        let at = self.of.get(i).copied().flatten().or(self.of.first().copied().flatten())?;
        self.all.get(at)
    }
}

/// A plan, and the first candidate that has it.
type Owned<'a> = (Rules<'a>, usize);

/// Derives layer `l` (MTP blocks follow the layers) for the plan of each candidate of `missing` and of the first, or takes it
/// from the cache; nothing where golden's layer is not here. `on_x` is what golden shows on x, `beside` what its own pass left.
pub(crate) fn of(
    walk: &mut Walk<'_, '_>,
    l: u16,
    golden: Option<&dyn Layer>,
    on_x: &Recorder,
    key: Option<&Key>,
    facts: &LayerFacts,
    missing: &[usize],
    beside: &Beside<'_>,
) -> Result<Derived> {
    once(walk, key, missing, |walk, wanted| {
        let Some(golden) = golden else { return Ok(None) };
        let (setup, x) = (walk.setup, walk.x.values()?);
        let forced = choices::of(l, on_x, setup.golden.requests(), facts, &x.rows);
        let blocks = (named(Block::Layer(l), walk.blocks()), Block::Layer(l));
        let costs = &beside.costs;
        let (mut made, mut asked) = (Vec::new(), Vec::new());
        for (rules, i) in wanted {
            let of = |phase| terms::of((*rules, phase), (l, walk.blocks()), golden, on_x, x, costs);
            let terms = of(Phase::Prefill)?;
            let decode = if rules.is_even() { None } else { Some(of(Phase::Decode)?) };
            asked.push(([&terms, decode.as_ref().unwrap_or(&terms)].map(|terms| Sizes::of(terms)), *i));
            made.push((terms, decode));
        }
        let left = lanes::left(walk, key, &asked, &beside.ready, |walk, lanes| {
            let new = |(sizes, i): &&Asked| Noise::new(blocks, sizes.clone(), on_x, facts.ratio, phase_of(walk, *i));
            let mut see: Vec<Noise<'_>> = lanes.iter().map(new).collect();
            let x = walk.x.values()?;
            let lane = |see| Lane { routing: Routing::Forced(&forced), ..Lane::new(x, see) };
            let mut lanes: Vec<Lane<'_>> = see.iter_mut().map(|see| lane(see)).collect();
            golden.run(&mut lanes)?;
            walk.passes += lanes.len() as u64;
            drop(lanes);
            Ok(see.into_iter().map(|see| see.seen).collect())
        })?;
        let whole = |((terms, decode), (rows, kept))| Predicted { rows, kept, terms, decode };
        Ok(Some(made.into_iter().zip(left).map(whole).collect()))
    })
}

/// Sizes of a plan's roundings in layer `l` of `layers`, in prefill and in decode. `x` are the streams that enter it.
pub(crate) fn sizes(
    rules: Rules<'_>,
    (l, layers): (u16, u16),
    golden: &dyn Layer,
    on_x: &Recorder,
    x: &Streams,
) -> Result<[Sizes; 2]> {
    let costs = Costs::default();
    let of =
        |phase| Ok::<_, crate::Error>(Sizes::of(&terms::of((rules, phase), (l, layers), golden, on_x, x, &costs)?));
    let prefill = of(Phase::Prefill)?;
    let decode = if rules.is_even() { prefill.clone() } else { of(Phase::Decode)? };
    Ok([prefill, decode])
}

/// As [`of`], the streams that enter MTP block `i`; `next` are the ids after the rows of x.
pub(crate) fn of_input(
    walk: &mut Walk<'_, '_>,
    i: u16,
    next: &[u32],
    on_x: &Recorder,
    key: Option<&Key>,
    missing: &[usize],
) -> Result<Derived> {
    once(walk, key, missing, |walk, wanted| {
        let x = walk.x.values()?;
        let costs = Costs::default();
        let (mut made, mut asked) = (Vec::new(), Vec::new());
        for (rules, at) in wanted {
            let Some(operands) = input::operands(*rules, i, on_x, x) else { return Ok(None) };
            let [terms, decode] = [Phase::Prefill, Phase::Decode]
                .map(|phase| input::terms((*rules, phase), (i, walk.blocks()), &operands, &costs));
            asked.push(([input::sizes(&terms), input::sizes(&decode)], *at));
            let [terms, decode] = [terms, decode].map(|of| of.into_iter().map(|(_, term)| term).collect());
            made.push((terms, (!rules.is_even()).then_some(decode)));
        }
        let left = lanes::left(walk, key, &asked, &[], |walk, lanes| {
            let mut all = Vec::new();
            for (sizes, at) in lanes {
                let phases = phase_of(walk, *at);
                let x = input::disturbed(walk.x.values()?, sizes, &*phases);
                let block = Block::Mtp(i);
                let mut see = Noise::new((block, block), sizes.clone(), on_x, None, phases);
                walk.setup.golden.mtp_input(i, &mut [Lane::new(&x, &mut see)], next)?;
                see.seen.retain(|(tap, _), _| *tap == Tap::In);
                all.push(see.seen);
            }
            Ok(all)
        })?;
        let whole = |((terms, decode), (rows, kept))| Predicted { rows, kept, terms, decode };
        Ok(Some(made.into_iter().zip(left).map(whole).collect()))
    })
}

/// What was derived before under these plans' keys, or is now: `make` gives one for each that it is asked for.
fn once<'a>(
    walk: &mut Walk<'a, '_>,
    key: Option<&Key>,
    missing: &[usize],
    make: impl FnOnce(&mut Walk<'a, '_>, &[Owned<'a>]) -> Result<Option<Vec<Predicted>>>,
) -> Result<Derived> {
    let start = std::time::Instant::now();
    let (plans, of) = plans(walk, missing);
    let (keys, mut all) = found(walk, key, &plans);
    let wanted: Vec<usize> = (0..plans.len()).filter(|p| all[*p].is_none()).collect();
    if !wanted.is_empty() {
        let asked: Vec<Owned<'a>> = wanted.iter().map(|p| plans[*p]).collect();
        for (p, predicted) in wanted.into_iter().zip(make(walk, &asked)?.unwrap_or_default()) {
            if let Some(((key, kept), cache)) = keys[p].as_ref().zip(predicted.kept.as_ref()).zip(walk.cache()) {
                cache.put(key, &predicted.write(kept));
            }
            all[p] = Some(predicted);
        }
    }
    // A plan of which nothing could be derived has no place.
    let known: Vec<bool> = all.iter().map(Option::is_some).collect();
    let place = |p: usize| known[p].then(|| known[..p].iter().filter(|k| **k).count());
    walk.out.in_noise(start);
    Ok(Derived { of: of.into_iter().map(|p| p.and_then(place)).collect(), all: all.into_iter().flatten().collect() })
}

/// The plans of the candidates of `missing`, and by candidate which of them is its own.
fn plans<'a>(walk: &Walk<'a, '_>, missing: &[usize]) -> (Vec<Owned<'a>>, Vec<Option<usize>>) {
    let setup = walk.setup;
    let mut of = vec![None; setup.candidates.len()];
    // Candidates that round alike, in the order of their first.
    let mut plans: Vec<Owned<'a>> = Vec::new();
    // The first candidate's plan serves those whose own is not known.
    let is_unknown = |i: &usize| setup.candidates[*i].rules.is_none();
    let asked = |i: &usize| missing.contains(i) || (*i == 0 && missing.iter().any(is_unknown));
    for (i, candidate) in setup.candidates.iter().enumerate().filter(|(i, _)| asked(i)) {
        let Some(rules) = candidate.rules else { continue };
        let same = |plan: &Owned<'_>| plan.0.numerics == rules.numerics && phases_alike(walk, plan.1, i);
        let at = plans.iter().position(same).unwrap_or_else(|| {
            plans.push((rules, i));
            plans.len() - 1
        });
        of[i] = Some(at);
    }
    (plans, of)
}

/// Keys of plans, and what an earlier run kept under them.
fn found(walk: &Walk<'_, '_>, key: Option<&Key>, plans: &[Owned<'_>]) -> (Vec<Option<Hash>>, Vec<Option<Predicted>>) {
    let keys: Vec<Option<Hash>> = plans.iter().map(|(rules, i)| plan_key(walk, key, *rules, *i)).collect();
    let found = |key: &Option<Hash>| {
        let (key, cache) = key.as_ref().filter(|_| walk.reads_cache).zip(walk.cache())?;
        let terms = cache.get(Kind::Other, key, Predicted::read)?;
        let rows = lanes::get(walk, terms.kept.as_ref())?;
        Some(Predicted { rows: Arc::new(rows), ..terms })
    };
    let all = keys.iter().map(found).collect();
    (keys, all)
}

/// The phase in which a candidate computes a row.
pub(crate) fn phase_of<'a>(walk: &Walk<'a, '_>, i: usize) -> Box<dyn Fn(RowId) -> Phase + Send + Sync + 'a> {
    let path = walk.setup.candidates[i].path;
    Box::new(move |row| path.phase_of(row))
}

/// True when two candidates compute every row in the same phase.
pub(crate) fn phases_alike(walk: &Walk<'_, '_>, a: usize, b: usize) -> bool {
    let [a, b] = [a, b].map(|i| walk.setup.candidates[i].path);
    std::ptr::addr_eq(a, b) || phases(walk, a) == phases(walk, b)
}

fn phases(walk: &Walk<'_, '_>, path: &dyn Path) -> Vec<bool> {
    let seqs = walk.setup.golden.requests().seqs.iter().enumerate();
    let rows = seqs.flat_map(|(seq, s)| (0..s.ids.len()).map(move |pos| RowId::new(seq as u32, pos as u32)));
    rows.map(|row| path.phase_of(row) == Phase::Decode).collect()
}

fn plan_key(walk: &Walk<'_, '_>, key: Option<&Key>, rules: Rules<'_>, i: usize) -> Option<Hash> {
    let key = key?.clone().part("entry", b"derived").shown("rules", &rules.numerics);
    // Where a row is computed bears on plans alone that tell the phases apart.
    let phases = if rules.is_even() { Vec::new() } else { phases(walk, walk.setup.candidates[i].path) };
    Some(key.shown("phases", &phases).finish())
}
