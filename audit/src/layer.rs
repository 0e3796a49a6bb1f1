//! One layer of the lockstep loop.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Instant;

use karat_diff::{Grid, Storage, Sums, measure};
use karat_seam::{
    Block, Choices, Error as SeamError, Lane, Layer, Phase, Recorder, Routing, RowId, Site, Streams, Tap,
};
use rayon::prelude::*;

use crate::candidate::Candidate;
use crate::compare::{self, Context, Seen};
use crate::facts::LayerFacts;
use crate::lockstep::{Walk, follows_slots};
use crate::part::Part;
use crate::place::Place;
use crate::progress::Steps;
use crate::{Result, align, choices, decisions, own_error};

/// Runs layer `l` on every path and compares it.
pub(crate) fn run(walk: &mut Walk<'_, '_>, l: u16, steps: &mut Steps<'_>) -> Result<()> {
    let facts = walk.setup.facts.layer(l);
    let next = run_candidates(walk, l, &facts, steps)?;
    steps.next(&format!("golden layer {l}"))?;
    let setup = walk.setup;
    let golden = setup.golden.layer(l)?;
    let (on_x, on_x2, x, ()) = walk.golden_lanes(|lanes| Ok(golden.run(lanes)?))?;
    walk.passes += 1 + on_x2.len() as u64;
    let floor = run_floor(walk, l)?;
    let start = Instant::now();
    let lanes = Lanes { on_x: &on_x, on_x2: &on_x2, floor: floor.as_ref() };
    let parts = compare_layer(walk, l, golden.as_ref(), &facts, &lanes)?;
    walk.take(parts);
    walk.out.wall[2] += start.elapsed().as_secs_f64();
    if let Some(x) = x {
        walk.x = x;
    }
    for (runner, next) in walk.runners.iter_mut().zip(next) {
        runner.x_golden_rows = next.as_ref().and_then(|s| align::streams(s, &walk.x.rows));
        runner.x = next;
    }
    Ok(())
}

/// Runs every candidate's layer on its own x'; gives the streams that leave it where they are known.
fn run_candidates(
    walk: &mut Walk<'_, '_>,
    l: u16,
    facts: &LayerFacts,
    steps: &mut Steps<'_>,
) -> Result<Vec<Option<Streams>>> {
    let mut next = Vec::new();
    for (candidate, runner) in walk.setup.candidates.iter().zip(&mut walk.runners) {
        steps.next(&format!("{} layer {l}", candidate.patch_set))?;
        let start = Instant::now();
        runner.seen = Recorder::new(|site| !site.tap.is_state());
        let input = input(candidate, runner.x.as_ref(), &walk.x);
        let mut lanes = [Lane::new(&input, &mut runner.seen)];
        let ran = candidate.path.layer(l).and_then(|layer| layer.run(&mut lanes));
        let streams = lanes[0].out.take().map(|out| out.streams);
        match ran {
            Ok(()) => walk.passes += 1,
            Err(SeamError::Unsupported { .. }) => {}
            Err(other) => return Err(other.into()),
        }
        if streams.is_none() {
            let who = candidate.path.name();
            walk.out.notes.push(format!("{who}: no layers.{l}.out: what layer {} injects is not judged", l + 1));
        }
        next.push(streams);
        runner.choices = choices::of(l, &runner.seen, walk.setup.golden.requests(), facts);
        walk.out.wall[1] += start.elapsed().as_secs_f64();
    }
    Ok(next)
}

/// What goes into a candidate's block: its own streams; for a trace any streams with the rows that it holds.
pub(crate) fn input<'a>(candidate: &Candidate<'_>, own: Option<&'a Streams>, golden: &'a Streams) -> Cow<'a, Streams> {
    match (&candidate.holds, own) {
        (Some(rows), _) if *rows != golden.rows => {
            let picked = align::gather(&golden.rows, &golden.data, rows);
            picked.map_or(Cow::Borrowed(golden), |data| {
                Cow::Owned(Streams { rows: rows.clone(), data: data.into_owned() })
            })
        }
        (_, own) => Cow::Borrowed(own.unwrap_or(golden)),
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
}

/// Compares every candidate in layer `l`, several at a time: none needs what another leaves.
fn compare_layer(
    walk: &Walk<'_, '_>,
    l: u16,
    golden: &dyn Layer,
    facts: &LayerFacts,
    lanes: &Lanes<'_>,
) -> Result<Vec<Part>> {
    let all = (0..walk.runners.len()).into_par_iter();
    let parts: Vec<Result<Part>> = all.map(|i| compare_candidate(walk, (i, l), golden, facts, lanes)).collect();
    parts.into_iter().collect()
}

fn compare_candidate(
    walk: &Walk<'_, '_>,
    (i, l): (usize, u16),
    golden: &dyn Layer,
    facts: &LayerFacts,
    lanes: &Lanes<'_>,
) -> Result<Part> {
    let mut part = compare_block(walk, i, Block::Layer(l), lanes)?;
    let Some(on_x2) = lanes.on_x2.get(&i) else { return Ok(part) };
    let setup = walk.setup;
    let candidate = &setup.candidates[i];
    let seen = &walk.runners[i].seen;
    let x = input(candidate, walk.runners[i].x.as_ref(), &walk.x);
    for (seq, sequence) in setup.golden.requests().seqs.iter().enumerate() {
        let scenario = setup.scenarios.get(seq).map_or("", String::as_str);
        let place = Place { candidate, scenario, sequence: &sequence.id, layers: walk.blocks() };
        let at = Context { candidate, place: &place, ratio: facts.ratio, input: &BTreeMap::new() };
        let (rows, flips) = decisions::compare(&at, (l, seq as u32), golden, on_x2, seen, facts)?;
        let wanted = |tap: &str| Tap::from_name(tap).is_some_and(|tap| (setup.taps)(Site::layer(l, tap)));
        part.taps.extend(rows.into_iter().filter(|r| wanted(&r.tap)));
        part.flips.extend(flips);
        for patch in &candidate.patches {
            let error = own_error::of(candidate, patch, golden, (l, seq as u32), Some(&x), seen)?;
            error.iter().for_each(|e| part.own_error(&patch.name, *e));
        }
    }
    Ok(part)
}

/// Compares every numeric tap of a block that candidate `i` showed.
pub(crate) fn compare_block(walk: &Walk<'_, '_>, i: usize, block: Block, lanes: &Lanes<'_>) -> Result<Part> {
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
        let at = Context { candidate, place: &place, ratio, input };
        // The floor was measured on the first candidate's x': for the others it is a size, compared with golden's there.
        let seen = Seen { candidate: theirs, on_x2, golden, floor: floor.filter(|_| i == 0), splittable };
        part.taps.extend(compare::tap(&at, site, seen)?);
    }
    Ok(part)
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
    let grid = Grid::of(&walk.x.data).classes(walk.x.rows.iter().map(class).collect())?;
    let measured = measure("layer input", &walk.x.data, &x2.data, Storage::F32, &grid)?;
    let mut all: BTreeMap<u32, BTreeMap<Phase, Sums>> = BTreeMap::new();
    for row in walk.x.rows.iter() {
        let of_sequence = all.entry(row.seq).or_default();
        if of_sequence.is_empty() {
            for phase in [Phase::Prefill, Phase::Decode] {
                of_sequence.insert(phase, measured.class(2 * row.seq + phase as u32).sums);
            }
        }
    }
    Ok(all)
}

/// Compares the embeddings: nothing comes in before them.
pub(crate) fn compare_embed(walk: &mut Walk<'_, '_>, golden: &Recorder) -> Result<()> {
    for i in 0..walk.runners.len() {
        let mut on_x2 = Recorder::all();
        on_x2.taps.clone_from(&golden.taps);
        let on_x2 = [(i, on_x2)].into();
        let part = compare_block(walk, i, Block::Embed, &Lanes { on_x: golden, on_x2: &on_x2, floor: None })?;
        walk.out.take(&walk.setup.candidates[i].patch_set, part);
        walk.runners[i].choices = Choices::default();
    }
    Ok(())
}
