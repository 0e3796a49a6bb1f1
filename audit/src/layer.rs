//! One layer of the lockstep loop.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use karat_bundle::{DerivationRow, TapRow};
use karat_diff::tolerance::Measure;
use karat_diff::{Grid, Storage, Sums, measure};
use karat_seam::{Block, Lane, Layer, Phase, Recorder, Routing, RowId, Site, Tap};
use rayon::prelude::*;

use crate::by_kernel::Sides;
use crate::compare::{self, Context, Seen};
use crate::derive::{self, Beside, Derived};
use crate::facts::LayerFacts;
use crate::flow::{Flow, Known};
use crate::lockstep::{Walk, follows_slots, not_state};
use crate::outputs::{self, Apart};
use crate::part::Part;
use crate::pass::{self, Group, input};
use crate::place::{self, Place};
use crate::progress::Steps;
use crate::record::Record;
use crate::{Error, Result, align, choices, decisions, own_error, own_ops, rerun};

/// Runs layer `l` on golden and on the candidates `of` it and compares it, as far as no earlier run did. MTP blocks follow
/// the layers: golden's and a candidate's streams are then those that enter the block.
pub(crate) fn run(walk: &mut Walk<'_, '_>, l: u16, of: &[usize], steps: &mut Steps<'_>) -> Result<()> {
    let (block, facts, setup) = (Block::Layer(l), walk.setup.facts.layer(l), walk.setup);
    let known = walk.look_up(block);
    let missing = known.missing_of(of);
    let is_known = known.golden.is_some() && missing.is_empty();
    if !is_known {
        walk.hold(&missing, l == 0)?;
    }
    // What is kept of golden is read and verified while the candidates run.
    let (made, on_x) = std::thread::scope(|scope| {
        let on_x = (!missing.is_empty()).then(|| scope.spawn(|| known.golden_taps(setup.cache)));
        let made = run_candidates(walk, l, &facts, steps, &missing);
        // A reader that ended badly read nothing.
        (made, on_x.and_then(|reader| reader.join().ok().flatten()))
    });
    let mut made = made?;
    steps.next(&format!("golden {}", name(walk, l)))?;
    let mut next_x = known.golden.map(Flow::known);
    if !is_known {
        let mut resident = None;
        let mut beside = match on_x {
            None => Beside::of(walk, (l, &facts), known.golden_key(), &missing),
            Some(_) => Beside::default(),
        };
        let mut golden = walk.golden_lanes(&missing, on_x, |on_x, lanes| {
            let layer = setup.golden.layer(l)?;
            beside.run(&*layer, on_x, (l, &facts), lanes)?;
            resident = Some(layer);
            Ok(())
        })?;
        walk.passes += u64::from(golden.ran) + golden.on_x2.len() as u64;
        walk.as_layer(&mut golden.on_x, l);
        golden.on_x2.values_mut().for_each(|seen| walk.as_layer(seen, l));
        let floor = if missing.contains(&0) { run_floor(walk, l)? } else { None };
        let key = known.golden_key();
        let predicted = derive::of(walk, l, resident.as_deref(), &golden.on_x, key, &facts, &missing, &beside)?;
        let apart = outputs::apart(walk, l, resident.as_deref(), (&golden.on_x, &golden.on_x2), &facts, &missing)?;
        let start = Instant::now();
        let lanes = Lanes {
            on_x: &golden.on_x,
            on_x2: &golden.on_x2,
            floor: floor.as_ref(),
            predicted: Some(&predicted),
            apart: Some(&apart),
        };
        let keep = || {
            let next = golden.next.map(|next| Flow::made(setup, next));
            next.inspect(|next| walk.keep_golden(&known, &golden.on_x, &next.hash))
        };
        let compare = || compare_layer(walk, l, resident.as_deref(), &facts, &lanes, &missing);
        let (parts, kept) = rayon::join(compare, keep);
        next_x = kept.or(next_x);
        for (made, part) in made.iter_mut().zip(parts?) {
            made.record.part.extend(part);
        }
        walk.out.wall[2] += start.elapsed().as_secs_f64();
    }
    walk.x = next_x.ok_or(Error::CacheGap)?;
    walk.advance(known, made);
    Ok(())
}

/// What a candidate's block left, beside what it showed.
pub(crate) struct Made {
    /// Which candidate.
    pub(crate) i: usize,
    /// The streams that leave it.
    pub(crate) next: Option<Flow>,
    pub(crate) record: Record,
}

/// Runs the layer of every candidate that has to on its own x'.
fn run_candidates(
    walk: &mut Walk<'_, '_>,
    l: u16,
    facts: &LayerFacts,
    steps: &mut Steps<'_>,
    missing: &[usize],
) -> Result<Vec<Made>> {
    let called = name(walk, l);
    let ran = pass::run(walk, missing, &called, steps, not_state, |group, lanes| match group {
        Group::Together(together, members) => together.layer(l, members, lanes),
        Group::Alone(path) => path.layer(l)?.run(lanes),
    })?;
    let mut all = Vec::new();
    for pass::Ran { i, before, streams, is_supported } in ran {
        let start = Instant::now();
        rerun::block(walk, i, not_state(), |path, lanes| path.layer(l)?.run(lanes))?;
        let layers = walk.blocks();
        let (candidate, runner) = (&walk.setup.candidates[i], &mut walk.runners[i]);
        std::iter::once(&mut runner.seen).chain(&mut runner.again.1).for_each(|seen| as_layer(seen, layers, l));
        walk.passes += u64::from(is_supported) * if candidate.rerun.is_some() { 2 } else { 1 };
        let mut record = Record::default();
        if streams.is_none() {
            let who = candidate.path.name();
            record.part.notes.push(if l < layers {
                format!("{who}: no layers.{l}.out: what layer {} injects is not judged", l + 1)
            } else {
                format!("{who}: no mtp.{}.out: what the block's head injects is not judged", l - layers)
            });
        }
        let next = streams.map(|streams| Flow::made(walk.setup, streams));
        record.next = next.as_ref().map(|flow| flow.hash);
        record.count(&before, candidate.calls());
        runner.choices = choices::of(l, &runner.seen, walk.setup.golden.requests(), facts, &walk.x.values()?.rows);
        walk.out.wall[1] += start.elapsed().as_secs_f64();
        all.push(Made { i, next, record });
    }
    Ok(all)
}

/// What progress calls a layer.
fn name(walk: &Walk<'_, '_>, l: u16) -> String {
    match place::named(Block::Layer(l), walk.blocks()) {
        Block::Mtp(i) => format!("mtp.{i}"),
        _ => format!("layer {l}"),
    }
}

/// Renames the taps of an MTP block's layer to those of layer `l`, past the last of `layers`; others stay.
fn as_layer(seen: &mut Recorder, layers: u16, l: u16) {
    let block = place::named(Block::Layer(l), layers);
    if block == Block::Layer(l) {
        return;
    }
    let taps = std::mem::take(&mut seen.taps);
    let renamed = |((site, seq), recorded): ((Site, u32), _)| {
        let block = if site.block == block { Block::Layer(l) } else { site.block };
        ((Site { block, ..site }, seq), recorded)
    };
    seen.taps = taps.into_iter().map(renamed).collect();
}

impl Walk<'_, '_> {
    /// See [`as_layer`].
    pub(crate) fn as_layer(&self, seen: &mut Recorder, l: u16) {
        as_layer(seen, self.blocks(), l);
    }

    /// Adds what a block left to the outcome, keeps what is new, and moves every candidate on to the next block. Gives
    /// the head's rows that come after those of all candidates' taps, one pair a candidate: injected, logits.
    pub(crate) fn advance(&mut self, mut known: Known, made: Vec<Made>) -> Vec<(Part, Part)> {
        let mut made: BTreeMap<usize, Made> = made.into_iter().map(|m| (m.i, m)).collect();
        let mut rest = Vec::new();
        for i in 0..self.runners.len() {
            let (mut record, next) = match made.remove(&i) {
                Some(made) => {
                    self.keep(&known, i, &made.record);
                    (made.record, made.next)
                }
                // Known, since it was not made.
                None => {
                    let record = known.records[i].take().unwrap_or_default();
                    let next = record.next.map(Flow::known);
                    (record, next)
                }
            };
            rest.push((std::mem::take(&mut record.injected), std::mem::take(&mut record.logits)));
            self.out.take(&self.setup.candidates[i].patch_set, record);
            self.runners[i].x = next;
            self.runners[i].x_golden_rows = None;
        }
        rest
    }
}

/// Golden in f64 on the first candidate's x', with the same decisions.
fn run_floor(walk: &mut Walk<'_, '_>, l: u16) -> Result<Option<Recorder>> {
    let Some(path) = walk.setup.floor else { return Ok(None) };
    let Some(runner) = walk.runners.first() else { return Ok(None) };
    let Some(x) = &runner.x_golden_rows else { return Ok(None) };
    let start = Instant::now();
    let x = align::wide(x);
    let mut seen = Recorder::new(|site| !site.tap.is_state());
    let mut lanes = [Lane { routing: Routing::Forced(&runner.choices), ..Lane::new(&x, &mut seen) }];
    path.layer(l)?.run(&mut lanes)?;
    walk.as_layer(&mut seen, l);
    walk.passes += 1;
    walk.out.wall[0] += start.elapsed().as_secs_f64();
    Ok(Some(seen))
}

/// What golden's lanes saw.
pub(crate) struct Lanes<'a> {
    pub(crate) on_x: &'a Recorder,
    /// By candidate.
    pub(crate) on_x2: &'a BTreeMap<usize, Recorder>,
    /// On the first candidate's x'.
    pub(crate) floor: Option<&'a Recorder>,
    /// What the plans' roundings cost in this block.
    pub(crate) predicted: Option<&'a Derived>,
    /// By candidate and sequence: the streams of those that don't show what they decided, taken apart.
    pub(crate) apart: Option<&'a BTreeMap<(usize, u32), Apart>>,
}

/// Compares the candidates in layer `l`, several at a time: none needs what another leaves.
fn compare_layer(
    walk: &Walk<'_, '_>,
    l: u16,
    golden: Option<&dyn Layer>,
    facts: &LayerFacts,
    lanes: &Lanes<'_>,
    missing: &[usize],
) -> Result<Vec<Part>> {
    let sides = match golden {
        Some(golden) => Sides::all(walk, l, golden, facts.ratio, missing)?,
        None => BTreeMap::new(),
    };
    let all = missing.par_iter();
    let parts: Vec<Result<Part>> =
        all.map(|i| compare_candidate(walk, (*i, l), golden, facts, lanes, &sides)).collect();
    parts.into_iter().collect()
}

fn compare_candidate(
    walk: &Walk<'_, '_>,
    (i, l): (usize, u16),
    golden: Option<&dyn Layer>,
    facts: &LayerFacts,
    lanes: &Lanes<'_>,
    sides: &BTreeMap<usize, Sides>,
) -> Result<Part> {
    let setup = walk.setup;
    let apart = |seq: u32| lanes.apart.and_then(|apart| apart.get(&(i, seq)));
    let open = |seq: u32| apart(seq).map(|apart| &apart.open);
    let mut part = compare_block(walk, i, Block::Layer(l), lanes, &open)?;
    if i == 0 {
        part.derivations.extend(derivations(walk, lanes));
    }
    let (Some(on_x2), Some(golden)) = (lanes.on_x2.get(&i), golden) else { return Ok(part) };
    let candidate = &setup.candidates[i];
    let seen = &walk.runners[i].seen;
    let own = walk.runners[i].x.as_ref().map(Flow::values).transpose()?;
    let x = input(candidate, own, walk.x.values()?);
    let sides = candidate.kernels.as_ref().zip(sides.get(&i));
    for (seq, sequence) in setup.golden.requests().seqs.iter().enumerate() {
        let scenario = setup.scenarios.get(seq).map_or("", String::as_str);
        let place = Place { candidate, scenario, sequence: &sequence.id, layers: walk.blocks() };
        let (ratio, input, predicted) = (facts.ratio, &BTreeMap::new(), lanes.predicted.and_then(|p| p.of(i)));
        let at = Context { candidate, place: &place, ratio, input, predicted, open: None };
        let (rows, flips) = decisions::compare(&at, (l, seq as u32), golden, on_x2, seen, facts)?;
        let wanted = |tap: &str| Tap::from_name(tap).is_some_and(|tap| walk.admits(Site::layer(l, tap)));
        part.taps.extend(rows.into_iter().filter(|r| wanted(&r.tap)));
        part.flips.extend(flips);
        let mut own = decisions::own(&at, (l, seq as u32), golden, seen, facts)?;
        own.extend(own_ops::rows(&at, golden, (l, seq as u32), &x, seen)?);
        own.extend(apart(seq as u32).iter().flat_map(|apart| apart.rows.iter().cloned()));
        own.extend(sides.iter().flat_map(|(side, sides)| sides.rows(&at, side, (l, seq as u32))));
        own.sort_by_key(|row| row.order);
        part.taps.extend(own.into_iter().filter(|r| wanted(&r.tap)));
        for patch in &candidate.patches {
            let error = own_error::of(candidate, patch, golden, (l, seq as u32), &x, seen)?;
            error.iter().for_each(|e| part.own_error(&patch.name, *e));
        }
    }
    Ok(part)
}

/// Rows of derivations.csv, with the names of their sequences.
pub(crate) fn derivations(walk: &Walk<'_, '_>, lanes: &Lanes<'_>) -> Vec<DerivationRow> {
    let names = |seq: &Option<u32>| {
        let seq = seq.map(|seq| seq as usize);
        let sequence = seq.and_then(|seq| walk.setup.golden.requests().seqs.get(seq)).map(|s| s.id.clone());
        let scenario = seq.and_then(|seq| walk.setup.scenarios.get(seq)).cloned();
        (scenario.unwrap_or_default(), sequence.unwrap_or_default())
    };
    let named = |term: &derive::Term| {
        let (scenario, sequence) = names(&term.seq);
        DerivationRow { scenario, sequence, ..term.row.clone() }
    };
    let first = lanes.predicted.and_then(|p| p.of(0));
    first.iter().flat_map(|p| &p.terms).map(named).collect()
}

/// Compares every numeric tap of a block that candidate `i` showed. `open`: positions of a sequence at which nobody knows what
/// it decided, and noise may have changed that.
pub(crate) fn compare_block<'o>(
    walk: &Walk<'_, '_>,
    i: usize,
    block: Block,
    lanes: &Lanes<'_>,
    open: &dyn Fn(u32) -> Option<&'o BTreeSet<u32>>,
) -> Result<Part> {
    let setup = walk.setup;
    let candidate = &setup.candidates[i];
    let ratio = match block {
        Block::Layer(l) => setup.facts.layer(l).ratio,
        _ => None,
    };
    let mut part = Part::default();
    let inputs = input_errors(walk, i)?;
    let none = BTreeMap::new();
    for (site, seq) in walk.sites(i, block) {
        if !walk.wants(site) {
            continue;
        }
        let (Some(theirs), Some(golden)) = (walk.runners[i].seen.get(site, seq), lanes.on_x.get(site, seq)) else {
            let site = Site { block: place::named(site.block, walk.blocks()), ..site };
            part.notes.push(format!("{}: {site}: golden has no such tap", candidate.path.name()));
            continue;
        };
        let input = inputs.get(&seq).unwrap_or(&none);
        let on_x2 = lanes.on_x2.get(&i).and_then(|r| r.get(site, seq));
        let splittable = !follows_slots(site.tap) || same_slots(walk, i, block, seq, lanes);
        let floor = lanes.floor.and_then(|f| f.get(site, seq)).filter(|_| i == 0 || !follows_slots(site.tap));
        let scenario = setup.scenarios.get(seq as usize).map_or("", String::as_str);
        let sequence = &setup.golden.requests().seqs[seq as usize].id;
        let place = Place { candidate, scenario, sequence, layers: walk.blocks() };
        let predicted = lanes.predicted.and_then(|p| p.of(i));
        let open = open(seq).filter(|_| outputs::follows_decisions(site.tap));
        let at = Context { candidate, place: &place, ratio, input, predicted, open };
        // The floor was measured on the first candidate's x': for the others it is a size, compared with golden's there.
        let again = rerun::shown(walk, i, site, seq);
        let seen = Seen { candidate: theirs, on_x2, golden, floor: floor.filter(|_| i == 0), again, splittable };
        let rows = compare::tap(&at, site, seen)?;
        part.taps.extend(rows.into_iter().map(|row| at_stated_floor(row, setup.golden.floor())));
    }
    Ok(part)
}

/// A judged row with a floor of at least what golden states of its products: a tolerance under ten of it proves nothing. A run in
/// f64 measures golden as it was computed, wherever that was, so that one has what the products cost in it already.
fn at_stated_floor(mut row: TapRow, stated: f64) -> TapRow {
    let is_relative = [Measure::RelL2, Measure::MaxOverMax].iter().any(|measure| row.gate == measure.name());
    if row.tolerance.is_some() && is_relative && stated > 0.0 {
        row.floor = Some(row.floor.map_or(stated, |measured| measured.max(stated)));
    }
    row
}

/// True when R(x) chose the candidate's experts in the candidate's slots.
fn same_slots(walk: &Walk<'_, '_>, i: usize, block: Block, seq: u32, lanes: &Lanes<'_>) -> bool {
    let site = Site { block, tap: Tap::FfnIdx };
    match (lanes.on_x.get(site, seq), walk.runners[i].seen.get(site, seq)) {
        (Some(a), Some(b)) => a.tensor == b.tensor && a.rows.len() == b.rows.len(),
        _ => false,
    }
}

/// Moments of x against x', by sequence and by the candidate's phase. One pass over all rows, whatever their number.
fn input_errors(walk: &Walk<'_, '_>, i: usize) -> Result<BTreeMap<u32, BTreeMap<Phase, Sums>>> {
    let runner = &walk.runners[i];
    let Some(x2) = &runner.x_golden_rows else { return Ok(BTreeMap::new()) };
    let path = walk.setup.candidates[i].path;
    let class = |r: &RowId| 2 * r.seq + path.phase_of(*r) as u32;
    let x = walk.x.values()?;
    let grid = Grid::of(&x.data).classes(x.rows.iter().map(class).collect())?;
    let measured = measure("layer input", &x.data, &x2.data, Storage::F32, &grid)?;
    let mut all: BTreeMap<u32, BTreeMap<Phase, Sums>> = BTreeMap::new();
    for row in x.rows.iter() {
        let of_sequence = all.entry(row.seq).or_default();
        if of_sequence.is_empty() {
            for phase in [Phase::Prefill, Phase::Decode] {
                of_sequence.insert(phase, measured.class(2 * row.seq + phase as u32).sums);
            }
        }
    }
    Ok(all)
}
