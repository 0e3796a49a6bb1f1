//! The multi-token-prediction blocks (spec 2.14) in the lockstep loop: they run on the streams that enter the head.
//!
//! What a block drafts is verified before it counts, so no token of an answer depends on it; what is wrong in it costs
//! accepted drafts. It is judged as a layer is, tap by tap and decision by decision, and then as a head is. Its taps are
//! those of a layer with the number that follows the last layer's ([`place::named`]), but for the ends.

use std::time::Instant;

use karat_seam::{Block, Error as SeamError, Lane, Layer, Path, Recorder, Requests, Routing, RowId, Site, Tap};

use crate::choices;
use crate::facts::LayerFacts;
use crate::flow::Flow;
use crate::head::injected_flips;
use crate::layer::{Lanes, Made, compare_block, compare_layer};
use crate::lockstep::{Lockstep, Walk, not_state};
use crate::pass::{self, Group};
use crate::progress::Steps;
use crate::record::Record;
use crate::{Result, align};

/// The streams that enter the head, by candidate.
pub(crate) struct Inputs(Vec<Option<Flow>>);

impl Inputs {
    /// Before the head runs.
    pub(crate) fn of(walk: &Walk<'_, '_>) -> Self {
        Self(walk.runners.iter().map(|runner| runner.x.clone()).collect())
    }
}

/// True when some tap of block `i` is asked for.
pub(crate) fn wanted(setup: &Lockstep<'_>, i: u16) -> bool {
    Tap::ALL.iter().any(|tap| (setup.taps)(Site { block: Block::Mtp(i), tap: *tap }))
}

/// Runs block `i` on every path and compares it, as far as no earlier run did.
pub(crate) fn run(walk: &mut Walk<'_, '_>, i: u16, inputs: &Inputs, steps: &mut Steps<'_>) -> Result<()> {
    let (setup, block, l) = (walk.setup, Block::Mtp(i), walk.blocks() + i);
    let facts = setup.facts.layer(l);
    for (runner, x) in walk.runners.iter_mut().zip(&inputs.0) {
        runner.x.clone_from(x);
    }
    let known = walk.look_up(block);
    let missing = known.missing();
    if !known.is_all() {
        walk.hold(&missing, walk.blocks() == 0)?;
    }
    let (mut made, able) = run_candidates(walk, i, &facts, steps, &missing)?;
    steps.next(&format!("golden mtp.{i}"))?;
    // Nobody to compare with: golden's own result serves no one.
    if !able.is_empty() {
        let on_x = known.golden_taps(setup.cache);
        let mut golden = walk.golden_lanes(&able, on_x, |lanes| {
            let Some(rows) = lanes.first().map(|lane| lane.x.rows.clone()) else { return Ok(()) };
            setup.golden.mtp(i, lanes, &next_ids(setup.golden.requests(), &rows)?)?;
            Ok(())
        })?;
        walk.passes += u64::from(golden.ran) + golden.on_x2.len() as u64;
        if golden.ran {
            walk.keep_golden(&known, &golden.on_x, &[0; 32]);
        }
        let floor = if able.contains(&0) { run_floor(walk, i)? } else { None };
        let start = Instant::now();
        as_layer(&mut golden.on_x, i, l);
        golden.on_x2.values_mut().for_each(|seen| as_layer(seen, i, l));
        let resident = resident(setup.golden, l)?;
        let lanes = Lanes { on_x: &golden.on_x, on_x2: &golden.on_x2, floor: floor.as_ref(), predicted: None };
        let parts = compare_layer(walk, l, resident.as_deref(), &facts, &lanes, &able)?;
        for (i, part) in able.iter().zip(parts) {
            let Some(made) = made.iter_mut().find(|made| made.i == *i) else { continue };
            made.record.part.extend(part);
            made.record.part.extend(compare_block(walk, *i, block, &lanes)?);
            if let Some(on_x2) = golden.on_x2.get(i) {
                made.record.part.extend(injected_flips(walk, block, *i, on_x2)?);
            }
        }
        walk.out.wall[2] += start.elapsed().as_secs_f64();
    }
    walk.advance(known, made);
    Ok(())
}

/// Runs the block of every candidate that has to; also which of them have one.
fn run_candidates(
    walk: &mut Walk<'_, '_>,
    i: u16,
    facts: &LayerFacts,
    steps: &mut Steps<'_>,
    missing: &[usize],
) -> Result<(Vec<Made>, Vec<usize>)> {
    let (setup, l) = (walk.setup, walk.blocks() + i);
    let requests = setup.golden.requests();
    let next = |lanes: &[Lane<'_>]| lanes.first().map_or(Ok(Vec::new()), |lane| next_ids(requests, &lane.x.rows));
    let ran = pass::run(walk, missing, &format!("mtp.{i}"), steps, not_state, |group, lanes| match group {
        Group::Together(together, members) => together.mtp(i, members, lanes, &next(lanes)?),
        Group::Alone(path) => path.mtp(i, lanes, &next(lanes)?).map(|_| ()),
    })?;
    let (mut made, mut able) = (Vec::new(), Vec::new());
    for ran in ran {
        let (candidate, runner) = (&setup.candidates[ran.i], &mut walk.runners[ran.i]);
        let mut record = Record::default();
        if ran.is_supported {
            walk.passes += 1;
            able.push(ran.i);
            as_layer(&mut runner.seen, i, l);
            runner.choices = choices::of(l, &runner.seen, requests, facts);
        } else {
            record
                .part
                .notes
                .push(format!("{}: no mtp.{i}: what the block drafts is not judged", candidate.path.name()));
        }
        record.count(&ran.before, candidate.calls());
        made.push(Made { i: ran.i, next: None, record });
    }
    Ok((made, able))
}

/// Golden in f64 on the first candidate's x', with the same decisions.
fn run_floor(walk: &mut Walk<'_, '_>, i: u16) -> Result<Option<Recorder>> {
    let Some(path) = walk.setup.floor else { return Ok(None) };
    let Some(runner) = walk.runners.first() else { return Ok(None) };
    let Some(x) = &runner.x_golden_rows else { return Ok(None) };
    let start = Instant::now();
    let (x, next) = (align::wide(x), next_ids(path.requests(), &x.rows)?);
    let mut seen = not_state();
    path.mtp(i, &mut [Lane { routing: Routing::Forced(&runner.choices), ..Lane::new(&x, &mut seen) }], &next)?;
    as_layer(&mut seen, i, walk.blocks() + i);
    walk.passes += 1;
    walk.out.wall[0] += start.elapsed().as_secs_f64();
    Ok(Some(seen))
}

/// Golden's block as a layer, whose ops are asked one by one; `None` where golden has it in one piece only.
fn resident(golden: &dyn Path, l: u16) -> Result<Option<Box<dyn Layer + '_>>> {
    match golden.layer(l) {
        Ok(layer) => Ok(Some(layer)),
        Err(SeamError::Unsupported { .. }) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// The id at the position after each row. Nothing comes after the last position of a sequence: there it is the first id,
/// as in the recorded oracle.
fn next_ids(requests: &Requests, rows: &[RowId]) -> karat_seam::Result<Vec<u32>> {
    let one = |row: &RowId| {
        let ids = &requests.seqs.get(row.seq as usize)?.ids;
        ids.get(row.pos as usize + 1).or_else(|| ids.first()).copied()
    };
    let missing = || SeamError::Request("rows of a sequence that was not asked for".into());
    rows.iter().map(|row| one(row).ok_or_else(missing)).collect()
}

/// Renames the block's taps, but for its ends, to those of layer `l`.
fn as_layer(seen: &mut Recorder, i: u16, l: u16) {
    let is_end = |tap| matches!(tap, Tap::Embed | Tap::HFinal | Tap::HeadCollapsed | Tap::Logits);
    let inner = |(site, _): &&(Site, u32)| site.block == Block::Mtp(i) && !is_end(site.tap);
    let keys: Vec<(Site, u32)> = seen.taps.keys().filter(inner).copied().collect();
    for (site, seq) in keys {
        if let Some(recorded) = seen.taps.remove(&(site, seq)) {
            seen.taps.insert((Site::layer(l, site.tap), seq), recorded);
        }
    }
}
