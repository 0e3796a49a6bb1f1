//! Recall: whether the candidate still knows what the conversation told it.
//!
//! Teacher-forced: the ids of the scenario are given, and at every position of an answer the most likely id must be the
//! expected one. With greedy decoding this is the same as generating the answer.

mod alone;
mod answers;
mod free;
mod kept;
mod lost;
mod pass;
mod run;
mod score;
mod takeover;

use std::collections::BTreeMap;

use karat_bundle::judge::recall::SEARCHED;
use karat_bundle::{RecallRow, judge};
use karat_model::prompt::Tokenizer;
use karat_optimized::{Optimized, Plan};
use karat_scenarios::Ask;
use karat_seam::{Path, Phase, Recorder, Requests, RowId, Site, Tap};

pub(crate) use self::answers::Answer;
use self::answers::{Picked, answers};
pub(crate) use self::lost::{Lost, lost, told};
use self::score::Named;
use crate::cache::{Hash, Kind, Reader, Writer};
use crate::job::Job;
use crate::lockstep::Walk;
use crate::record::{read_rows, rows as write_rows};
use crate::{Candidate, Lockstep, Result};

pub use kept::{Heard, Kept};
pub use run::{recall, recall_until};

/// A pass over all rows of a path's requests, without taps.
pub(crate) fn whole_pass(path: &dyn Path, stop: &std::sync::atomic::AtomicBool) -> Result<pass::Logits> {
    pass::whole(path, stop, None)
}

/// Answers of one candidate as a run left them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    pub(crate) patch_set: String,
    pub(crate) history: String,
    pub(crate) answers: Vec<Answer>,
    /// Phase of the answer's last token, by answer.
    pub(crate) phases: Vec<Phase>,
}

/// The logits of all answers of candidate `i`, at the end of a lockstep run; `None` when nothing is asked.
pub(crate) fn kept(walk: &Walk<'_, '_>, i: usize, golden: &Recorder) -> Option<Asked> {
    let Lockstep { asks, candidates, .. } = walk.setup;
    if asks.iter().all(Vec::is_empty) {
        return None;
    }
    let candidate = &candidates[i];
    let answers = answers(asks, &picked(golden, asks), &picked(&walk.runners[i].seen, asks));
    let phases = answers.iter().map(|a: &Answer| candidate.path.phase_of(last_row(asks, a))).collect();
    let (patch_set, history) = (candidate.patch_set.clone(), candidate.history.clone());
    Some(Asked { patch_set, history, answers, phases })
}

/// [`rows`], those of each patch set from the cache where an earlier run made them. `key` names a patch set's path.
pub(crate) fn rows_cached(
    job: &Job<'_>,
    asked: &[Asked],
    key: &dyn Fn(&str) -> Option<Hash>,
    search: &Search<'_>,
) -> Result<Vec<RecallRow>> {
    let Some(cache) = job.cache else { return rows(job, asked, search) };
    let inputs = &job.inputs;
    // What was said is told in text.
    let tokenizer = job.checkpoint.side_file("tokenizer.json").ok().flatten().unwrap_or_default();
    let name = |asked: &Asked| {
        let mut name =
            cache.key("recall").part("path", &key(&asked.patch_set)?).part("set", asked.patch_set.as_bytes());
        name = name.shown("history", &asked.history).shown("asks", &inputs.asks).shown("scenarios", &inputs.scenarios);
        Some(
            name.shown("variants", &inputs.variants)
                .shown("requests", &inputs.requests)
                .part("tokenizer", &tokenizer)
                .finish(),
        )
    };
    let names: Vec<Option<Hash>> = asked.iter().map(name).collect();
    let known = |name: &Option<Hash>| {
        cache.get(Kind::Other, name.as_ref()?, |bytes| {
            let mut from = Reader::new(bytes);
            read_rows::<RecallRow>(&mut from).filter(|_| from.is_done())
        })
    };
    let mut all: Vec<Option<Vec<RecallRow>>> = names.iter().map(known).collect();
    let missing: Vec<Asked> = asked.iter().zip(&all).filter(|(_, k)| k.is_none()).map(|(a, _)| a.clone()).collect();
    let made = if missing.is_empty() { Vec::new() } else { rows(job, &missing, search)? };
    for ((asked, name), slot) in asked.iter().zip(&names).zip(&mut all).filter(|(_, slot)| slot.is_none()) {
        let own: Vec<RecallRow> = made.iter().filter(|r| r.patch_set == asked.patch_set).cloned().collect();
        if let Some(name) = name {
            let mut to = Writer::default();
            write_rows(&mut to, &own);
            cache.put(name, &to.0);
        }
        *slot = Some(own);
    }
    Ok(all.into_iter().flatten().flatten().collect())
}

/// The row that predicts the answer's last id.
pub(crate) fn last_row(asks: &[Vec<Ask>], answer: &Answer) -> RowId {
    let end = asks[answer.seq][answer.question].answer.end;
    RowId::new(answer.seq as u32, end.saturating_sub(2))
}

fn picked(seen: &Recorder, asks: &[Vec<Ask>]) -> Picked {
    let site = Site { block: karat_seam::Block::Head, tap: Tap::Logits };
    let mut out = Picked::default();
    for seq in 0..asks.len() as u32 {
        if let Some(logits) = seen.get(site, seq) {
            out.take(&logits.rows, &logits.tensor, asks);
        }
    }
    out
}

/// Finds the layers at which a patch set loses answers of a sequence; nothing where its path can't be run again.
pub(crate) type Search<'a> = dyn Fn(&str, usize, &[Ask]) -> Result<Vec<Option<u64>>> + 'a;

/// Rows of `recall.csv` for what a run kept.
pub(crate) fn rows(job: &Job<'_>, asked: &[Asked], search: &Search<'_>) -> Result<Vec<RecallRow>> {
    let tokenizer = Tokenizer::of(&job.checkpoint).ok();
    let inputs = &job.inputs;
    let alone = alone::measure(job, asked)?;
    let mut out = Vec::new();
    for asked in asked {
        let mut lost: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (answer, phase) in asked.answers.iter().zip(&asked.phases) {
            let sequence = &inputs.requests.seqs[answer.seq];
            let ask = &inputs.asks[answer.seq][answer.question];
            let named = Named {
                scenario: inputs.scenarios.get(answer.seq).map_or("", String::as_str),
                variant: inputs.variants.get(answer.seq).map_or("file", String::as_str),
                conversation: &sequence.id,
                history: &asked.history,
                patch_set: &asked.patch_set,
                phase: phase.name(),
                finish_reason: "forced",
            };
            let alone = alone.get(&(answer.seq, answer.question));
            let row = score::row(&named, &sequence.ids, ask, answer, alone, tokenizer.as_ref())?;
            let counts = judge::recall::counts(&row) && judge::recall::golden_is_right(&row);
            if counts && !judge::recall::candidate_is_right(&row) {
                lost.entry(answer.seq).or_default().push(out.len());
            }
            out.push(row);
        }
        for (seq, which) in lost.into_iter().take(SEARCHED) {
            let question = |&i: &usize| inputs.asks[seq][out[i].question as usize].clone();
            let asks: Vec<Ask> = which.iter().map(question).collect();
            for (i, layer) in which.into_iter().zip(search(&asked.patch_set, seq, &asks)?) {
                out[i].lost_at_layer = layer;
            }
        }
    }
    Ok(out)
}

/// Runs the optimized path of a patch set once more, on the one sequence.
pub(crate) fn searcher<'a>(
    job: &'a Job<'_>,
    plans: Vec<(String, Plan)>,
) -> impl Fn(&str, usize, &[Ask]) -> Result<Vec<Option<u64>>> + 'a {
    move |set, seq, asks| {
        let Some((_, plan)) = plans.iter().find(|(name, _)| name == set) else { return Ok(Vec::new()) };
        let requests = Requests { seqs: vec![job.inputs.requests.seqs[seq].clone()] };
        let golden = job.golden(requests.clone())?;
        let candidate = Optimized::new(job.checkpoint.clone(), requests, plan.clone(), job.threads)?;
        takeover::lost_at(&golden, &candidate, asks, job.stop)
    }
}

/// What any candidate recalls of the job's conversations, which must be those of its path.
pub fn recall_of(job: &Job<'_>, candidate: &Candidate<'_>) -> Result<Vec<RecallRow>> {
    Kept::of(job)?.searched(candidate)
}
