//! The end of the lockstep loop: head taps, logits, most likely ids.

use std::collections::BTreeMap;
use std::time::Instant;

use karat_bundle::{FlipRow, TapRow, TokenRow};
use karat_diff::logits::{Position, expected_choice_change, expected_flip_probability, positions};
use karat_seam::{Block, Data, Lane, Phase, Recorder, RowId, Site, SpanKind, Tap, Tensor};
use rayon::prelude::*;

use crate::compare::Context;
use crate::flow::Known;
use crate::layer::{Lanes, Made, compare_block};
use crate::lockstep::Walk;
use crate::part::Part;
use crate::pass::{self, Group};
use crate::place::Place;
use crate::progress::Steps;
use crate::record::{Noise, Record};
use crate::{Result, align, decisions, head_flips, recall, rerun};

/// Ids whose overlap is measured.
const TOP_K: usize = 10;
/// So many standard deviations may the changes of a patch differ from those of stock.
const SIGMAS: f64 = 4.0;

/// Compared logits of one sequence under one patch set.
struct Compared {
    rows: Vec<RowId>,
    positions: Vec<Position>,
    next: Vec<Option<u32>>,
    /// Golden's logits of these rows.
    golden: Tensor,
}

/// Runs every path's head and compares logits: C(x') against R(x) for tokens, against R(x') for what the head injects.
pub(crate) fn run(walk: &mut Walk<'_, '_>, steps: &mut Steps<'_>) -> Result<()> {
    let setup = walk.setup;
    let known = walk.look_up(Block::Head);
    let missing = known.missing();
    if !known.is_all() {
        walk.hold(&missing, walk.blocks() == 0)?;
    }
    let mut made = run_candidates(walk, steps, &missing)?;
    steps.next("golden head")?;
    if !missing.is_empty() {
        let on_x = known.golden_taps(setup.cache);
        let golden = walk.golden_lanes(&missing, on_x, |_, lanes| {
            setup.golden.head(lanes)?;
            Ok(())
        })?;
        if golden.ran {
            walk.keep_golden(&known, &golden.on_x, &[0; 32]);
        }
        let floor = if missing.contains(&0) { run_floor(walk)? } else { None };
        let start = Instant::now();
        let lanes =
            Lanes { on_x: &golden.on_x, on_x2: &golden.on_x2, floor: floor.as_ref(), predicted: None, apart: None };
        let all = missing.par_iter();
        let parts: Vec<Result<Part>> = all.map(|i| compare_block(walk, *i, Block::Head, &lanes, &|_| None)).collect();
        for (made, part) in made.iter_mut().zip(parts) {
            made.record.part.extend(part?);
            if let Some(on_x2) = golden.on_x2.get(&made.i) {
                made.record.injected = injected_flips(walk, Block::Head, made.i, on_x2)?;
            }
            made.record.asked = recall::kept(walk, made.i, &golden.on_x);
        }
        compare_logits(walk, &golden.on_x, &known, &mut made)?;
        walk.out.wall[2] += start.elapsed().as_secs_f64();
    }
    // The tables have the taps of all candidates first, then their own changes of ids, then their logits.
    let (injected, logits): (Vec<Part>, Vec<Part>) = walk.advance(known, made).into_iter().unzip();
    for parts in [injected, logits] {
        for (candidate, part) in setup.candidates.iter().zip(parts) {
            walk.out.take_part(&candidate.patch_set, part);
        }
    }
    Ok(())
}

/// Runs the head of every candidate that has to on its own x'.
fn run_candidates(walk: &mut Walk<'_, '_>, steps: &mut Steps<'_>, missing: &[usize]) -> Result<Vec<Made>> {
    let ran = pass::run(walk, missing, "head", steps, Recorder::all, |group, lanes| match group {
        Group::Together(together, members) => together.head(members, lanes),
        Group::Alone(path) => path.head(lanes).map(|_| ()),
    })?;
    for ran in &ran {
        rerun::block(walk, ran.i, Recorder::all(), |path, lanes| path.head(lanes).map(|_| ()))?;
    }
    let made = |ran: pass::Ran| {
        let candidate = &walk.setup.candidates[ran.i];
        let mut record = Record::default();
        if !ran.is_supported {
            record.part.notes.push(format!("{}: no logits: they are not judged", candidate.path.name()));
        }
        record.count(&ran.before, candidate.calls());
        Made { i: ran.i, next: None, record }
    };
    Ok(ran.into_iter().map(made).collect())
}

/// Changes of the most likely id that a head itself makes: the model's or an MTP block's.
pub(crate) fn injected_flips(walk: &Walk<'_, '_>, block: Block, i: usize, on_x2: &Recorder) -> Result<Part> {
    let setup = walk.setup;
    let candidate = &setup.candidates[i];
    let mut part = Part::default();
    if !walk.wants(Site { block, tap: Tap::Logits }) {
        return Ok(part);
    }
    for (seq, sequence) in setup.golden.requests().seqs.iter().enumerate() {
        let scenario = setup.scenarios.get(seq).map_or("", String::as_str);
        let place = Place { candidate, scenario, sequence: &sequence.id, layers: walk.blocks() };
        let at =
            Context { candidate, place: &place, ratio: None, input: &BTreeMap::new(), predicted: None, open: None };
        part.taps.extend(head_flips::rows(&at, (block, seq as u32), on_x2, &walk.runners[i].seen)?);
    }
    Ok(part)
}

fn run_floor(walk: &mut Walk<'_, '_>) -> Result<Option<Recorder>> {
    let Some(path) = walk.setup.floor else { return Ok(None) };
    let Some(x) = walk.runners.first().and_then(|r| r.x_golden_rows.as_ref()) else { return Ok(None) };
    let start = Instant::now();
    let x = align::wide(x);
    let mut seen = Recorder::all();
    path.head(&mut [Lane::new(&x, &mut seen)])?;
    walk.out.wall[0] += start.elapsed().as_secs_f64();
    Ok(Some(seen))
}

fn compare_logits(walk: &mut Walk<'_, '_>, golden: &Recorder, known: &Known, made: &mut [Made]) -> Result<()> {
    // What stock's formats cost by (sequence, position): a patch is judged by what it adds to that.
    let mut stock: BTreeMap<(u32, u32), StockRow> = BTreeMap::new();
    if let Some(Some(before)) = known.records.first() {
        stock = stock_rows(golden, &before.noise);
    }
    let several = walk.runners.len() > 1;
    for made in made {
        let i = made.i;
        let before = std::mem::take(&mut walk.out);
        for seq in 0..walk.setup.golden.requests().seqs.len() as u32 {
            let Some(compared) = compare_sequence(walk, golden, i, seq)? else { continue };
            if i == 0 {
                let noise = |p: &Position| Noise { rms: p.delta_logit_rms, flipped: p.is_flip() };
                let rows = compared.rows.iter().zip(&compared.positions);
                made.record.noise.extend(rows.map(|(r, p)| ((seq, r.pos), noise(p))));
            }
            let noise = |row: RowId| (i > 0).then(|| stock.get(&(seq, row.pos)).copied()).flatten();
            table(walk, i, seq, &compared, &noise);
        }
        if i == 0 && several {
            stock = stock_rows(golden, &made.record.noise);
        }
        let out = std::mem::replace(&mut walk.out, before);
        made.record.logits = Part { taps: out.taps, tokens: out.tokens, flips: out.flips, ..Part::default() };
    }
    Ok(())
}

/// What noise of stock's size does to golden's logits, position by position.
fn stock_rows(golden: &Recorder, noise: &BTreeMap<(u32, u32), Noise>) -> BTreeMap<(u32, u32), StockRow> {
    let site = Site { block: Block::Head, tap: Tap::Logits };
    let mut out = BTreeMap::new();
    for (_, recorded) in golden.taps.iter().filter(|((at, _), _)| *at == site) {
        let one = |(r, row): (usize, &RowId)| {
            let noise = noise.get(&(row.seq, row.pos))?;
            let changes = expected_choice_change(row_values(&recorded.tensor, r), noise.rms);
            Some(((row.seq, row.pos), StockRow { noise: noise.rms, flipped: noise.flipped, changes }))
        };
        let rows: Vec<_> = recorded.rows.par_iter().enumerate().map(one).collect();
        out.extend(rows.into_iter().flatten());
    }
    out
}

fn compare_sequence(walk: &Walk<'_, '_>, golden: &Recorder, i: usize, seq: u32) -> Result<Option<Compared>> {
    let site = Site { block: Block::Head, tap: Tap::Logits };
    let (Some(ours), Some(theirs)) = (golden.get(site, seq), walk.runners[i].seen.get(site, seq)) else {
        return Ok(None);
    };
    let rows = align::common(&ours.rows, &theirs.rows);
    let ours = align::gather(&ours.rows, &ours.tensor, &rows);
    let (Some(a), Some(b)) = (ours, align::gather(&theirs.rows, &theirs.tensor, &rows)) else { return Ok(None) };
    let ids = &walk.setup.golden.requests().seqs[seq as usize].ids;
    let next: Vec<Option<u32>> = rows.iter().map(|r| ids.get(r.pos as usize + 1).copied()).collect();
    let positions = positions(&a, &b, &next, TOP_K)?;
    let golden = a.into_owned();
    Ok(Some(Compared { rows, positions, next, golden }))
}

/// Rows of tokens.csv and flips.csv, and one gated row a phase where flips can be judged.
fn table(walk: &mut Walk<'_, '_>, i: usize, seq: u32, compared: &Compared, stock: &dyn Fn(RowId) -> Option<StockRow>) {
    let setup = walk.setup;
    let candidate = &setup.candidates[i];
    let sequence = &setup.golden.requests().seqs[seq as usize];
    let scenario = setup.scenarios.get(seq as usize).map_or("", String::as_str);
    let place = Place { candidate, scenario, sequence: &sequence.id, layers: walk.blocks() };
    let spans = sequence.spans();
    let mut gates: BTreeMap<Phase, Gate> = BTreeMap::new();
    let vocabulary = compared.golden.width();
    for ((row, p), next) in compared.rows.iter().zip(&compared.positions).zip(&compared.next) {
        let phase = candidate.path.phase_of(*row);
        let stock = stock(*row);
        let s = stock.map(|stock| stock.noise);
        let changes = stock.map(|stock| stock.changes);
        let generated =
            spans.iter().any(|s| s.kind == SpanKind::Generated && s.start <= row.pos + 1 && row.pos + 1 < s.end);
        walk.out.tokens.push(TokenRow {
            scenario: scenario.to_string(),
            sequence: sequence.id.clone(),
            position: u64::from(row.pos),
            phase: phase.name().to_string(),
            history: candidate.history.clone(),
            kl: p.kl,
            js: p.js,
            delta_logit_rms: p.delta_logit_rms,
            top1_golden: u64::from(p.top1_golden),
            top1_candidate: u64::from(p.top1_candidate),
            margin_golden: p.margin_golden,
            expected_flip_probability: changes,
            top_k_overlap: p.top_k_overlap,
            target_rank: p.target_rank.map(u64::from),
            stratum: if next.is_none() {
                "end"
            } else if generated {
                "generated"
            } else {
                "prompt"
            }
            .to_string(),
            patch_set: candidate.patch_set.clone(),
            target_logprob_golden: p.target_log_prob_golden,
            target_logprob_candidate: p.target_log_prob,
        });
        if p.is_flip() {
            walk.out.flips.push(FlipRow {
                scenario: scenario.to_string(),
                sequence: sequence.id.clone(),
                history: candidate.history.clone(),
                layer: "head".to_string(),
                kind: "argmax".to_string(),
                position: u64::from(row.pos),
                golden: i64::from(p.top1_golden),
                candidate: i64::from(p.top1_candidate),
                margin: p.flip_margin,
                predicted_noise: s,
                expected_probability: s.map(|s| expected_flip_probability(p.flip_margin, s)),
                patch_set: candidate.patch_set.clone(),
                phase: phase.name().to_string(),
            });
        }
        let Some(stock) = stock else { continue };
        let gate = gates.entry(phase).or_default();
        gate.rows += 1;
        gate.nonfinite += p.nonfinite;
        gate.expected += changes.unwrap_or(0.0);
        gate.new += u64::from(p.is_flip() && !stock.flipped);
        gate.gone += u64::from(!p.is_flip() && stock.flipped);
        gate.largest_noise = gate.largest_noise.max(stock.noise);
        if p.is_flip() && gate.worst.is_none_or(|(worst, _)| p.flip_margin > worst) {
            gate.worst = Some((p.flip_margin, row.pos));
        }
        gate.compared += vocabulary as u64;
    }
    let site = Site { block: Block::Head, tap: Tap::Logits };
    if !walk.wants(site) {
        return;
    }
    for (phase, gate) in gates {
        let row = gate.row(place.row(site, phase));
        walk.out.taps.push(row);
    }
}

/// What stock did at one position.
#[derive(Clone, Copy)]
struct StockRow {
    /// Δlogit RMS.
    noise: f64,
    /// Whether its most likely id is another than golden's.
    flipped: bool,
    /// Chance that noise of this size changes golden's most likely id: the same for every patch set.
    changes: f64,
}

/// Changes of the most likely id in one phase, against what stock changes.
#[derive(Default)]
struct Gate {
    rows: u64,
    nonfinite: u64,
    /// Changes that noise of stock's size is expected to make.
    expected: f64,
    /// Positions that only the patched candidate changes, and that only stock changes.
    new: u64,
    gone: u64,
    /// Logits compared.
    compared: u64,
    /// Stock's largest noise at any position. One changed expert or entry moves a whole row of logits, and rows that
    /// such a change hits under a patch need not be those that it hits under stock.
    largest_noise: f64,
    /// Largest margin among the changes, and its position.
    worst: Option<(f64, u32)>,
}

impl Gate {
    /// Judged as pairs: without an effect a position is as likely to be new as to be gone, so new - gone has variance
    /// new + gone (McNemar). One change that noise of stock's size cannot make (union bound over all logits compared)
    /// fails by itself: it is counted as if it were over tolerance.
    fn row(&self, mut row: TapRow) -> TapRow {
        row.part = "argmax".to_string();
        row.n = self.rows;
        row.rows = self.rows;
        row.nonfinite = self.nonfinite;
        row.gate = "flips_added_to_stock".to_string();
        let spread = ((self.new + self.gone) as f64).sqrt();
        let added = self.new as f64 - self.gone as f64;
        let limit = decisions::sigmas(self.compared as usize);
        let bound = limit * self.largest_noise * std::f64::consts::SQRT_2;
        let impossible = self.worst.is_some_and(|(margin, _)| margin > bound);
        row.tolerance = Some(SIGMAS * spread);
        row.value = Some(if impossible { f64::INFINITY } else { added });
        row.predicted = Some(spread);
        row.max_abs_position = self.worst.map(|(_, pos)| u64::from(pos));
        row
    }
}

/// The values of one row.
fn row_values(tensor: &Tensor, row: usize) -> Box<dyn Iterator<Item = f64> + '_> {
    let range = row * tensor.width()..(row + 1) * tensor.width();
    match &tensor.data {
        Data::F32(v) => Box::new(v[range].iter().map(|&v| f64::from(v))),
        Data::F64(v) => Box::new(v[range].iter().copied()),
        Data::I64(_) | Data::U8(_) => Box::new(std::iter::empty()),
    }
}
