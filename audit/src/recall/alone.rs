//! Golden with the last turn only: what a model says that has lost the history.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karat_scenarios::Ask;
use karat_seam::{Requests, Sequence, Tensor};

use super::score::{right, tokens};
use super::{Asked, pass};
use crate::Result;
use crate::job::Job;

/// Tokens of one pass at most.
const TOKENS: usize = 8192;

/// Golden's logits `[answer,V]` without the history, for the last question of each sequence and for every answer that a
/// candidate does not give, by (sequence, question).
pub(super) fn measure(job: &Job<'_>, asked: &[Asked]) -> Result<BTreeMap<(usize, usize), Tensor>> {
    let mut wanted: BTreeSet<(usize, usize)> = BTreeSet::new();
    for asked in asked {
        let mut last: BTreeMap<usize, usize> = BTreeMap::new();
        for answer in &asked.answers {
            last.insert(answer.seq, answer.question);
            let ask = &job.inputs.asks[answer.seq][answer.question];
            let ids = &job.inputs.requests.seqs[answer.seq].ids[ask.turn.start as usize..ask.turn.end as usize];
            let (from, to) = (ask.answer.start - ask.turn.start, ask.answer.end - ask.turn.start);
            let given = tokens(&answer.candidate, ids)?;
            let given = given.get(from as usize..to as usize).unwrap_or_default();
            if !right(given) {
                wanted.insert((answer.seq, answer.question));
            }
        }
        wanted.extend(last);
    }
    let mut out = BTreeMap::new();
    let mut batch: Vec<((usize, usize), &Ask)> = Vec::new();
    let mut tokens = 0;
    for key in wanted {
        let ask = &job.inputs.asks[key.0][key.1];
        if tokens + ask.alone.len() > TOKENS && !batch.is_empty() {
            run(job, &batch, &mut out)?;
            batch.clear();
            tokens = 0;
        }
        tokens += ask.alone.len();
        batch.push((key, ask));
    }
    run(job, &batch, &mut out)?;
    Ok(out)
}

fn run(job: &Job<'_>, batch: &[((usize, usize), &Ask)], out: &mut BTreeMap<(usize, usize), Tensor>) -> Result<()> {
    if batch.is_empty() {
        return Ok(());
    }
    let name = |i: usize| format!("alone-{i}");
    let seqs =
        batch.iter().enumerate().map(|(i, (_, ask))| Sequence::prompt(name(i), Arc::from(&*ask.alone))).collect();
    let golden = job.golden(Requests { seqs })?;
    let (rows, logits) = pass::whole(&golden, job.stop, None)?;
    let (width, values) = (logits.width(), logits.as_f32("logits")?);
    for (i, (key, ask)) in batch.iter().enumerate() {
        let answer = ask.answer_alone();
        let before = |pos: u32| (answer.start..answer.end).contains(&(pos as usize + 1));
        let mine = rows.iter().enumerate().filter(|(_, r)| r.seq as usize == i && before(r.pos));
        let picked: Vec<f32> = mine.flat_map(|(r, _)| values[r * width..(r + 1) * width].iter().copied()).collect();
        out.insert(*key, Tensor::f32([picked.len() / width.max(1), width], picked));
    }
    Ok(())
}
