//! Searches along layers, ops and positions, by takeovers of golden: what a run is worth when the candidate computes its
//! first layers (or the first ops of one) and golden the rest.

use std::sync::Arc;

use karat_seam::{Block, Op, OpSpec, Part, Recorder, Requests, RowId, Sequence, Span, Streams, Tap, Turn as Exchange};

use super::desk::Desk;
use super::distance::{Distance, Metric};
use super::replay::{Measured, Seen};
use super::rig::Rig;
use super::search::Turn;
use super::stage::{Axis, Ended, Over, Stage, axis};
use super::visit::Swap;
use crate::job::Job;
use crate::{Error, Result};

/// A metric, and the largest value that is good, where one was given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measure {
    pub(super) metric: Metric,
    pub(super) limit: Option<f64>,
}

impl Measure {
    fn criterion(self, limit: f64) -> String {
        match self.limit {
            Some(limit) => format!("{} over {limit:.3e}", self.metric.unit()),
            None => format!("{} over {limit:.3e}, half of what it is in all", self.metric.unit()),
        }
    }

    fn stage(self, over: Over, axis: &Axis, ended: Ended, found: Vec<String>, sentence: String) -> Stage {
        let criterion = self.criterion(axis.limit);
        let share = match (&axis.turn, ended) {
            (Some(Turn::At(k)), Ended::Found) if *k > 0 => Some(axis.share(*k)).filter(|s| s.is_finite()),
            _ => None,
        };
        Stage { over, ended, found, sentence, criterion, is_absolute: self.limit.is_some(), share }
    }
}

fn measured(value: f64, cost: f64) -> Measured {
    Measured { seen: Seen::Value(value), note: String::new(), cost }
}

/// The candidate's streams, once they are needed.
struct Entering<'s> {
    set: &'s [String],
    streams: Option<(Vec<Streams>, Distance)>,
}

impl Entering<'_> {
    fn get<'x>(&'x mut self, rig: &mut Rig<'_>) -> Result<&'x (Vec<Streams>, Distance)> {
        if self.streams.is_none() {
            let (streams, logits) = rig.entering(self.set)?;
            self.streams = Some((streams, rig.distance(&logits)?));
        }
        self.streams.as_ref().ok_or(Error::CacheGap)
    }
}

/// Layers that a search can name: the model's, and the head behind them.
pub(super) fn layer_name(layers: u16, l: u16) -> String {
    if l < layers { format!("layer {l}") } else { "the head".to_string() }
}

/// The first layer with which the run is bad when the candidate computes everything up to it, and golden everything after.
pub(super) fn layers(
    desk: &mut Desk<'_>,
    rig: &mut Rig<'_>,
    set: &[String],
    by: Measure,
) -> Result<(Stage, Option<u16>)> {
    let layers = rig.layers();
    let mut entering = Entering { set, streams: None };
    let last = usize::from(layers) + 1;
    // Point k: the candidate computes its first k blocks; the head is the last.
    let found = axis(
        desk,
        last,
        by.limit,
        |k| format!("layers {k}"),
        |k| {
            let before = rig.work();
            let value = if k == last {
                entering.get(rig)?.1.value(by.metric)
            } else {
                let x = entering.get(rig)?.0[k].clone();
                let logits = rig.golden_from(k as u16, &x, None)?;
                rig.distance(&logits)?.value(by.metric)
            };
            Ok(measured(value, rig.work() - before))
        },
    )?;
    let unit = by.metric.unit();
    Ok(match &found.turn {
        None => {
            let sentence =
                format!("{unit} is {:.3e} with every layer the candidate's: nothing to look for", found.at(last));
            (by.stage(Over::Layers, &found, Ended::Nothing, vec![], sentence), None)
        }
        Some(Turn::At(0)) => {
            let sentence =
                format!("golden's layers on the candidate's embedding are bad already: {unit} {:.3e}", found.at(0));
            (by.stage(Over::Layers, &found, Ended::Found, vec!["embed".into()], sentence), None)
        }
        Some(Turn::At(k)) => {
            let l = *k as u16 - 1;
            let name = layer_name(layers, l);
            let sentence = format!(
                "{name}: {unit} goes from {:.3e} to {:.3e} when the candidate computes it ({:.0} % of the whole)",
                found.before(*k),
                found.at(*k),
                100.0 * found.share(*k),
            );
            (by.stage(Over::Layers, &found, Ended::Found, vec![name], sentence), Some(l))
        }
        Some(Turn::Among(range)) => {
            let names: Vec<String> = range.clone().map(|k| layer_name(layers, k as u16 - 1)).collect();
            let sentence = format!("one of {}", names.join(", "));
            (by.stage(Over::Layers, &found, Ended::Undecided, names, sentence), None)
        }
    })
}

/// Ops of a block in op order: those of the head where `l` is the number of layers.
fn ops_of(job: &Job<'_>, l: u16) -> Vec<&'static OpSpec> {
    let config = job.checkpoint.config();
    let Some(kind) = config.layers.get(usize::from(l)) else {
        return OpSpec::graph().iter().filter(|spec| spec.part == Part::Head).collect();
    };
    let is_there = |spec: &&OpSpec| match spec.op {
        Op::CompressProject | Op::CompressPool | Op::Select => kind.ratio().is_some(),
        Op::IndexProject | Op::IndexPool | Op::IndexQuery | Op::IndexWeights | Op::IndexScore => kind.has_indexer(),
        _ => spec.part != Part::Head,
    };
    OpSpec::graph().iter().filter(is_there).collect()
}

/// The first op of layer `l` with which the run is bad when the candidate computes everything up to it: its tensors are put
/// into golden's layer, which goes on from them.
pub(super) fn ops(
    desk: &mut Desk<'_>,
    rig: &mut Rig<'_>,
    set: &[String],
    l: u16,
    by: Measure,
) -> Result<(Stage, Option<Op>)> {
    let (layers, ops) = (rig.layers(), ops_of(rig.job, l));
    let block = if l < layers { Block::Layer(l) } else { Block::Head };
    let mut entering = Entering { set, streams: None };
    let mut shown: Option<Recorder> = None;
    let last = ops.len();
    let found = axis(
        desk,
        last,
        by.limit,
        |k| format!("ops {l} {k}"),
        |k| {
            let before = rig.work();
            let x = entering.get(rig)?.0[usize::from(l)].clone();
            if shown.is_none() {
                shown = Some(rig.shown(set, block, &x)?);
            }
            let from = shown.as_ref().ok_or(Error::CacheGap)?;
            let taps: Vec<Tap> = ops[..k].iter().flat_map(|spec| spec.writes.iter().copied()).collect();
            let mut swap = Swap { from, taps };
            let logits = rig.golden_from(l, &x, Some(&mut swap))?;
            Ok(measured(rig.distance(&logits)?.value(by.metric), rig.work() - before))
        },
    )?;
    let place = layer_name(layers, l);
    let unit = by.metric.unit();
    Ok(match &found.turn {
        None => {
            let sentence = format!(
                "{unit} is {:.3e} with every op of {place} the candidate's: nothing to look for",
                found.at(last)
            );
            (by.stage(Over::Ops, &found, Ended::Nothing, vec![], sentence), None)
        }
        Some(Turn::At(0)) => {
            let sentence = format!("what enters {place} is bad already: {unit} {:.3e} with golden's ops", found.at(0));
            (by.stage(Over::Ops, &found, Ended::Found, vec!["input".into()], sentence), None)
        }
        Some(Turn::At(k)) => {
            let op = ops[k - 1];
            let sentence = format!(
                "{} of {place}: {unit} goes from {:.3e} to {:.3e} when the candidate computes it ({:.0} % of the layer's)",
                op.name,
                found.before(*k),
                found.at(*k),
                100.0 * found.share(*k),
            );
            (by.stage(Over::Ops, &found, Ended::Found, vec![op.name.to_string()], sentence), Some(op.op))
        }
        Some(Turn::Among(range)) => {
            let names: Vec<String> = range.clone().map(|k| ops[k - 1].name.to_string()).collect();
            let sentence = format!("one of {}", names.join(", "));
            (by.stage(Over::Ops, &found, Ended::Undecided, names, sentence), None)
        }
    })
}

/// The first position that shows it, and so the smallest prefix; then both paths run that prefix, and one token less, alone.
pub(super) fn tokens(desk: &mut Desk<'_>, rig: &mut Rig<'_>, set: &[String], by: Measure) -> Result<Stage> {
    let rows = rig.job.inputs.requests.rows();
    let by = match (by.metric, by.limit) {
        // Of changed ids and lost answers the first one counts.
        (Metric::Flips | Metric::Recall, None) => Measure { limit: Some(0.0), ..by },
        _ => by,
    };
    let mut whole: Option<Distance> = None;
    let found = axis(
        desk,
        rows.len(),
        by.limit,
        |n| format!("tokens {n}"),
        |n| {
            let before = rig.work();
            if whole.is_none() {
                let (logits, _) = rig.sets(&[set.to_vec()])?.remove(0);
                whole = Some(rig.distance(&logits)?);
            }
            let value = whole.as_ref().map_or(f64::NAN, |w| w.prefix(by.metric, n));
            Ok(measured(value, rig.work() - before))
        },
    )?;
    let unit = if by.metric == Metric::Kl { "largest KL" } else { by.metric.unit() };
    let Some(Turn::At(n)) = found.turn.clone().filter(|turn| *turn != Turn::At(0)) else {
        let sentence = format!("{unit} is {:.3e} over all positions: nothing to look for", found.at(rows.len()));
        return Ok(by.stage(Over::Tokens, &found, Ended::Nothing, vec![], sentence));
    };
    let row = rows[n - 1];
    let name = rig.job.inputs.requests.seqs[row.seq as usize].id.clone();
    let alone = match by.metric {
        // A cut conversation asks other questions.
        Metric::Recall => String::new(),
        metric => alone(desk, rig, set, row, (metric, found.limit))?,
    };
    let sentence = format!(
        "position {} of {name}: {unit} of the positions up to it goes from {:.3e} to {:.3e}{alone}",
        row.pos,
        found.before(n),
        found.at(n),
    );
    Ok(by.stage(Over::Tokens, &found, Ended::Found, vec![format!("{name}:{}", row.pos)], sentence))
}

/// Runs the prefix that ends with a row, and that without the row, as conversations of their own.
fn alone(desk: &mut Desk<'_>, rig: &mut Rig<'_>, set: &[String], row: RowId, by: (Metric, f64)) -> Result<String> {
    let (metric, limit) = by;
    let (all, job) = (rig.job.inputs.requests.rows().len() as f64, rig.job);
    let mut is_bad = Vec::new();
    for length in [row.pos + 1, row.pos] {
        if length == 0 {
            continue;
        }
        let question = format!("tokens {} alone, {length}", job.inputs.requests.seqs[row.seq as usize].id);
        let answers = desk.answers(&[question], limit, &mut |_| {
            let mut part = job.again();
            part.inputs.requests = cut(&job.inputs.requests.seqs[row.seq as usize], length);
            let mut small = rig.again(&part);
            let (logits, _) = small.sets(&[set.to_vec()])?.remove(0);
            let value = small.distance(&logits)?.prefix(metric, usize::MAX);
            // Its work in passes of the whole.
            Ok(vec![measured(value, small.work() * f64::from(length) / all)])
        })?;
        is_bad.push(answers.first() == Some(&super::search::Answer::Bad));
    }
    let n = row.pos + 1;
    Ok(match is_bad.as_slice() {
        [true, false] | [true] => format!("; the first {n} tokens alone show it, one less does not"),
        [true, true] => format!("; the first {n} tokens alone show it, and so does one less, served on its own"),
        _ => {
            format!("; the first {n} tokens alone do not show it: it takes what comes after, or how the rest is served")
        }
    })
}

/// The first `length` tokens of a sequence.
pub(super) fn cut(sequence: &Sequence, length: u32) -> Requests {
    let ids: Arc<[u32]> = sequence.ids[..length as usize].into();
    let turn = |t: &Exchange| {
        let some = t.spans.iter().filter(|s| s.start < length.min(s.end));
        let spans: Vec<Span> = some.map(|s| Span { end: s.end.min(length), ..*s }).collect();
        (!spans.is_empty()).then_some(Exchange { spans, interrupted: t.interrupted })
    };
    let turns = sequence.turns.iter().filter_map(turn).collect();
    Requests { seqs: vec![Sequence { id: sequence.id.clone(), ids, turns }] }
}
