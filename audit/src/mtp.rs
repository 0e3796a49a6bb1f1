//! The multi-token-prediction blocks (spec 2.14) in the lockstep loop: they run on the streams that enter the head.
//!
//! What a block drafts is verified before it counts, so no token of an answer depends on it; what is wrong in it costs
//! accepted drafts. Its input, its layer and its head are three steps, each on the streams that the step before left, on
//! golden's side and on the candidate's: so its layer is judged as every layer is, with the same derived tolerances. Taps of
//! that layer are those of a layer with the number that follows the last one's ([`crate::place::named`]).

use std::time::Instant;

use karat_seam::{Block, Lane, Path, Recorder, Requests, Result as SeamResult, RowId, Site, Streams, Tap, Tensor};

use crate::flow::Flow;
use crate::head::injected_flips;
use crate::layer::{self, Lanes, Made, compare_block, derivations};
use crate::lockstep::{Lockstep, Walk, not_state};
use crate::pass::{self, Group, Ran};
use crate::progress::Steps;
use crate::record::Record;
use crate::{Error, Result, align, derive, rerun};

/// Steps of a block on each path.
pub(crate) const STEPS: u64 = 3;

/// The streams that enter the head: golden's, and by candidate its own and its rerun's.
pub(crate) struct Inputs {
    x: Flow,
    own: Vec<(Option<Flow>, Option<Streams>)>,
}

impl Inputs {
    /// Before the head runs.
    pub(crate) fn of(walk: &Walk<'_, '_>) -> Self {
        let own = walk.runners.iter().map(|runner| (runner.x.clone(), runner.again.0.clone())).collect();
        Self { x: walk.x.clone(), own }
    }
}

/// True when some tap of block `i` is asked for.
pub(crate) fn wanted(setup: &Lockstep<'_>, i: u16) -> bool {
    Tap::ALL.iter().any(|tap| (setup.taps)(Site { block: Block::Mtp(i), tap: *tap }))
}

/// Runs block `i` on every path that has it and compares it, as far as no earlier run did.
pub(crate) fn run(walk: &mut Walk<'_, '_>, i: u16, inputs: &Inputs, steps: &mut Steps<'_>) -> Result<()> {
    walk.x = inputs.x.clone();
    for (runner, (x, again)) in walk.runners.iter_mut().zip(&inputs.own) {
        runner.x.clone_from(x);
        runner.again.0.clone_from(again);
    }
    input(walk, i, steps)?;
    let able: Vec<usize> = (0..walk.runners.len()).filter(|n| walk.runners[*n].x.is_some()).collect();
    // Nobody to compare with: golden's own result serves no one.
    if able.is_empty() {
        return Ok(());
    }
    layer::run(walk, walk.blocks() + i, &able, steps)?;
    head(walk, i, &able, steps)
}

/// The streams that enter the block. Golden's input op on a candidate's own streams stands in for an input that it does not
/// show. A candidate without the block is left without streams.
fn input(walk: &mut Walk<'_, '_>, i: u16, steps: &mut Steps<'_>) -> Result<()> {
    let (setup, block) = (walk.setup, Block::Mtp(i));
    let known = walk.look_up_part(block, " input");
    let missing = known.missing();
    if !known.is_all() {
        walk.hold(&missing, walk.blocks() == 0)?;
    }
    let requests = setup.golden.requests();
    let next = |lanes: &[Lane<'_>]| lanes.first().map_or(Ok(Vec::new()), |lane| next_ids(requests, &lane.x.rows));
    let ran = pass::run(walk, &missing, &format!("mtp.{i} input"), steps, not_state, |group, lanes| {
        let next = next(lanes)?;
        match group {
            Group::Together(together, members) => together.mtp_input(i, members, lanes, &next),
            Group::Alone(path) => path.mtp_input(i, lanes, &next),
        }
    })?;
    steps.next(&format!("golden mtp.{i} input"))?;
    let mut next_x = known.golden.map(Flow::known);
    let mut all = Vec::new();
    let mut before = known.records.iter().flatten();
    if before.all(|record| record.next.is_none()) && ran.iter().all(|ran| !ran.is_supported) {
        // No candidate has it, now or in an earlier run: golden's own input serves no one.
        for Ran { i: n, before, .. } in ran {
            let mut record = Record::default();
            record.part.notes.push(no_block(setup, n, i));
            record.count(&before, setup.candidates[n].calls());
            all.push(Made { i: n, next: None, record });
        }
        walk.advance(known, all);
        return Ok(());
    }
    if !known.is_all() {
        let golden = walk.golden_lanes(&missing, known.golden_taps(setup.cache), |_, lanes| {
            let next = next(lanes)?;
            Ok(setup.golden.mtp_input(i, lanes, &next)?)
        })?;
        let floor = floor(walk, &missing, |path, lanes| {
            let next = next(lanes)?;
            path.mtp_input(i, lanes, &next)
        })?;
        let after = next_ids(requests, &walk.x.values()?.rows)?;
        let predicted = derive::of_input(walk, i, &after, &golden.on_x, known.golden_key(), &missing)?;
        let start = Instant::now();
        let (floor, predicted) = (floor.as_ref(), Some(&predicted));
        let lanes = Lanes { on_x: &golden.on_x, on_x2: &golden.on_x2, floor, predicted, apart: None };
        for Ran { i: n, before, streams, is_supported } in ran {
            rerun::block(walk, n, not_state(), |path, lanes| {
                let next = next(lanes)?;
                path.mtp_input(i, lanes, &next)
            })?;
            let candidate = &setup.candidates[n];
            let mut record = Record::default();
            let stands_in = || entered(golden.on_x2.get(&n)?, block, walk.x.values().ok()?);
            let streams = streams.or_else(|| is_supported.then(stands_in).flatten());
            if streams.is_none() {
                record.part.notes.push(no_block(setup, n, i));
            }
            if n == 0 {
                record.part.derivations.extend(derivations(walk, &lanes));
            }
            record.part.extend(compare_block(walk, n, block, &lanes, &|_| None)?);
            let next = streams.map(|streams| Flow::made(setup, streams));
            record.next = next.as_ref().map(|flow| flow.hash);
            record.count(&before, candidate.calls());
            all.push(Made { i: n, next, record });
        }
        if let Some(next) = golden.next {
            let next = Flow::made(setup, next);
            walk.keep_golden(&known, &golden.on_x, &next.hash);
            next_x = Some(next);
        }
        walk.out.wall[2] += start.elapsed().as_secs_f64();
    }
    walk.x = next_x.ok_or(Error::CacheGap)?;
    walk.advance(known, all);
    Ok(())
}

/// Says that candidate `n` has no block `i`.
fn no_block(setup: &Lockstep<'_>, n: usize, i: u16) -> String {
    format!("{}: no mtp.{i}: what the block drafts is not judged", setup.candidates[n].path.name())
}

/// The block's head, on the streams that left its layer.
fn head(walk: &mut Walk<'_, '_>, i: u16, able: &[usize], steps: &mut Steps<'_>) -> Result<()> {
    let (setup, block) = (walk.setup, Block::Mtp(i));
    let known = walk.look_up_part(block, " head");
    let missing = known.missing_of(able);
    if !missing.is_empty() {
        walk.hold(&missing, false)?;
    }
    let ran = pass::run(walk, &missing, &format!("mtp.{i} head"), steps, Recorder::all, |group, lanes| match group {
        Group::Together(together, members) => together.mtp_head(i, members, lanes),
        Group::Alone(path) => path.mtp_head(i, lanes).map(|_| ()),
    })?;
    steps.next(&format!("golden mtp.{i} head"))?;
    let mut all = Vec::new();
    if !missing.is_empty() {
        let golden = walk.golden_lanes(&missing, known.golden_taps(setup.cache), |_, lanes| {
            setup.golden.mtp_head(i, lanes)?;
            Ok(())
        })?;
        if golden.ran {
            walk.keep_golden(&known, &golden.on_x, &[0; 32]);
        }
        let floor = floor(walk, &missing, |path, lanes| path.mtp_head(i, lanes).map(|_| ()))?;
        let start = Instant::now();
        let lanes =
            Lanes { on_x: &golden.on_x, on_x2: &golden.on_x2, floor: floor.as_ref(), predicted: None, apart: None };
        for Ran { i: n, before, is_supported, .. } in ran {
            rerun::block(walk, n, Recorder::all(), |path, lanes| path.mtp_head(i, lanes).map(|_| ()))?;
            let candidate = &setup.candidates[n];
            let mut record = Record::default();
            if !is_supported {
                let who = candidate.path.name();
                record.part.notes.push(format!("{who}: no mtp.{i}.logits: what the block drafts is not judged"));
            }
            record.part.extend(compare_block(walk, n, block, &lanes, &|_| None)?);
            if let Some(on_x2) = golden.on_x2.get(&n) {
                record.part.extend(injected_flips(walk, block, n, on_x2)?);
            }
            record.count(&before, candidate.calls());
            all.push(Made { i: n, next: None, record });
        }
        walk.out.wall[2] += start.elapsed().as_secs_f64();
    }
    walk.advance(known, all);
    Ok(())
}

/// Golden in f64 on the first candidate's x', where that candidate is compared and its x' is known.
fn floor(
    walk: &mut Walk<'_, '_>,
    missing: &[usize],
    run: impl FnOnce(&dyn Path, &mut [Lane<'_>]) -> SeamResult<()>,
) -> Result<Option<Recorder>> {
    let Some(path) = walk.setup.floor.filter(|_| missing.contains(&0)) else { return Ok(None) };
    let Some(x) = walk.runners.first().and_then(|runner| runner.x_golden_rows.as_ref()) else { return Ok(None) };
    let start = Instant::now();
    let x = align::wide(x);
    let mut seen = Recorder::all();
    run(path, &mut [Lane::new(&x, &mut seen)])?;
    walk.out.wall[0] += start.elapsed().as_secs_f64();
    Ok(Some(seen))
}

/// The streams that golden's input op made, in the order of the rows of `x`; `None` where it did not run.
fn entered(seen: &Recorder, block: Block, x: &Streams) -> Option<Streams> {
    let site = Site { block, tap: Tap::In };
    let (mut values, mut rows) = (Vec::new(), Vec::new());
    for ((_, seq), recorded) in seen.taps.iter().filter(|((at, _), _)| *at == site) {
        debug_assert!(recorded.rows.iter().all(|row| row.seq == *seq));
        values.extend_from_slice(recorded.tensor.as_f32("in").ok()?);
        rows.extend_from_slice(&recorded.rows);
    }
    let shape = std::iter::once(rows.len()).chain(x.data.shape.iter().skip(1).copied()).collect::<Vec<_>>();
    let made = Streams { rows: rows.into(), data: Tensor::f32(shape, values) };
    align::streams(&made, &x.rows)
}

/// The id at the position after each row. Nothing comes after the last position of a sequence: there it is the first id,
/// as in the recorded oracle.
///
/// # Errors
/// Request: a row of a sequence that the requests don't have.
pub fn next_ids(requests: &Requests, rows: &[RowId]) -> SeamResult<Vec<u32>> {
    let one = |row: &RowId| {
        let ids = &requests.seqs.get(row.seq as usize)?.ids;
        ids.get(row.pos as usize + 1).or_else(|| ids.first()).copied()
    };
    let missing = || karat_seam::Error::Request("rows of a sequence that was not asked for".into());
    rows.iter().map(|row| one(row).ok_or_else(missing)).collect()
}
