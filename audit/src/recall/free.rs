//! Free-running answers: the last turn is generated greedily, each path going on from its own words.
//!
//! Paths run all rows layer by layer, so one token a pass would be slow. Instead a draft is checked: every position's most
//! likely id is right as far as all drafted ids before it are, so a pass settles the draft up to its first difference,
//! which it also corrects. What is settled is exactly what greedy decoding gives, whatever the draft was; the draft only
//! decides how many passes it takes.

use std::sync::Arc;

use karat_bundle::RecallRow;
use karat_model::prompt::{Tokenizer, special};
use karat_optimized::{Optimized, Plan};
use karat_scenarios::{Ask, Blind, Looks, Symptom, symptom};
use karat_seam::{Path, Requests, Sequence, Span, SpanKind, Turn};

use super::pass;
use super::score::tokens;
use crate::Result;
use crate::job::Job;

/// Passes of one path over one conversation at most.
const ROUNDS: usize = 32;

/// What a path says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Said {
    /// Settled ids.
    pub(crate) ids: Vec<u32>,
    /// It ended with the end token.
    pub(crate) finished: bool,
}

/// Tokens that a free-running answer may have beyond the expected one.
const BEYOND: usize = 64;

/// Has golden and the candidate (golden itself without a plan) generate the answers of the conversations that run freely,
/// and scores their rows by what was said.
pub(super) fn run(job: &Job<'_>, rows: &mut [RecallRow], plan: Option<&Plan>) -> Result<()> {
    let tokenizer = Tokenizer::of(&job.checkpoint).ok();
    let end = end_token(tokenizer.as_ref());
    let golden = |requests| -> Result<Box<dyn Path>> { Ok(Box::new(job.golden(requests)?)) };
    for (seq, sequence) in job.inputs.requests.seqs.iter().enumerate() {
        if !job.inputs.free.get(seq).copied().unwrap_or_default() {
            continue;
        }
        let Some(first) = start(sequence) else { continue };
        let most = (end, sequence.ids.len() - first + BEYOND);
        let ours = generate(&golden, sequence, most, job)?;
        let theirs = match plan {
            None => ours.clone(),
            Some(plan) => {
                let make = |requests| -> Result<Box<dyn Path>> {
                    Ok(Box::new(Optimized::new(job.checkpoint.clone(), requests, plan.clone(), job.threads)?))
                };
                generate(&make, sequence, most, job)?
            }
        };
        let mine = rows.iter_mut().filter(|r| r.conversation == sequence.id);
        let vocabulary = job.checkpoint.config().vocab_size;
        score(mine, (&sequence.ids, &job.inputs.asks[seq]), (&ours, &theirs), vocabulary, tokenizer.as_ref())?;
    }
    Ok(())
}

/// Where the last generated span of a sequence begins.
pub(crate) fn start(sequence: &Sequence) -> Option<usize> {
    let spans = sequence.spans();
    spans.iter().rev().find(|s| s.kind == SpanKind::Generated).map(|s| s.start as usize)
}

/// Generates the last turn of a sequence, with the scenario's own answer as the first draft. `limit`: most tokens.
pub(crate) fn generate(
    make: &dyn Fn(Requests) -> Result<Box<dyn Path>>,
    sequence: &Sequence,
    (end, limit): (Option<u32>, usize),
    job: &Job<'_>,
) -> Result<Said> {
    let Some(first) = start(sequence) else { return Ok(Said { ids: Vec::new(), finished: false }) };
    let prompt = &sequence.ids[..first];
    let mut draft = sequence.ids[first..].to_vec();
    let mut settled = 0;
    for _ in 0..ROUNDS {
        draft.truncate(limit);
        let ids: Arc<[u32]> = [prompt, &draft].concat().into();
        let span = |kind, start: usize, end: usize| Span { kind, start: start as u32, end: end as u32 };
        let spans = vec![span(SpanKind::Prompt, 0, first), span(SpanKind::Generated, first, ids.len())];
        let turns = vec![Turn { spans, interrupted: false }];
        let requests = Requests { seqs: vec![Sequence { id: sequence.id.clone(), ids: ids.clone(), turns }] };
        let (rows, logits) = pass::whole(make(requests)?.as_ref(), job.stop, None)?;
        let says = tokens(&logits, &vec![0; rows.len()])?;
        let said: Vec<u32> = says[first - 1..].iter().map(|t| t.said).collect();
        let same = draft.iter().zip(&said).take_while(|(a, b)| a == b).count();
        // One more than agrees: the first difference is corrected by an id whose past is settled.
        settled = (same + 1).min(limit);
        let next = said[..settled.min(said.len())].to_vec();
        if let Some(at) = next.iter().position(|id| Some(*id) == end) {
            return Ok(Said { ids: next[..=at].to_vec(), finished: true });
        }
        let rest = said.get(settled..).unwrap_or_default();
        draft = [&next, continued(&next, &sequence.ids[first..]).unwrap_or(rest)].concat();
        if settled == limit {
            break;
        }
    }
    draft.truncate(settled);
    Ok(Said { ids: draft, finished: false })
}

/// What stands in the scenario's answer behind the last words that were said: a line that is said twice or left out moves
/// all words behind it, and a draft that is not moved with them would be settled word by word.
fn continued<'a>(settled: &[u32], answer: &'a [u32]) -> Option<&'a [u32]> {
    (3..=8).rev().find_map(|n| {
        let last = settled.get(settled.len().checked_sub(n)?..)?;
        let at = answer.windows(n).rposition(|words| words == last)?;
        answer.get(at + n..)
    })
}

/// The end token of a tokenizer.
pub(crate) fn end_token(tokenizer: Option<&Tokenizer>) -> Option<u32> {
    tokenizer.and_then(|t| t.id(special::EOS))
}

/// How many of the answer's ids stand in what was said, each answer behind the one before: all or none.
fn found(said: &[u32], from: usize, answer: &[u32]) -> Option<usize> {
    let windows = said.get(from..)?.windows(answer.len().max(1));
    windows.into_iter().position(|w| w == answer).map(|at| from + at + answer.len())
}

/// Turns the rows of one conversation (in the order of its questions) into those of free-running answers.
pub(crate) fn score<'a>(
    rows: impl Iterator<Item = &'a mut RecallRow>,
    (ids, asks): (&[u32], &[Ask]),
    (golden, candidate): (&Said, &Said),
    vocabulary: usize,
    tokenizer: Option<&Tokenizer>,
) -> Result<()> {
    let text = tokenizer.map_or_else(|| Ok(String::new()), |t| t.decode(&candidate.ids))?;
    let blind = Blind::of(&text);
    let (mut ours, mut theirs) = (0, 0);
    for row in rows {
        let Some(ask) = asks.get(row.question as usize) else { continue };
        let answer = &ids[ask.positions()];
        let matched = |said: &Said, from: &mut usize| match found(&said.ids, *from, answer) {
            Some(behind) => {
                *from = behind;
                answer.len() as u64
            }
            None => 0,
        };
        row.matched_golden = matched(golden, &mut ours);
        row.matched_candidate = matched(candidate, &mut theirs);
        let right = row.matched_candidate == row.answer_tokens;
        let looks = Looks {
            said: &candidate.ids,
            expected: &golden.ids,
            // Golden's probability of words behind other words is not known here: a salad is not told from another fault.
            mean_log_prob: 0.0,
            vocabulary,
            right,
            amnesia: row.amnesia,
            truncated: !candidate.finished && !right && !karat_scenarios::repeats(&candidate.ids),
        };
        row.symptom = symptom(&looks).name().into();
        row.finish_reason = if candidate.finished { "stop" } else { "length" }.into();
        row.said = if right { row.expected.clone() } else { text.chars().take(200).collect() };
        row.gzip_ratio = blind.gzip_ratio;
        row.unique_word_ratio = blind.unique_word_ratio;
        row.max_word_run = Some(blind.max_word_run);
        row.max_line_repeat = Some(blind.max_line_repeat);
        if row.symptom == Symptom::Truncated.name() {
            row.answer_kl = f64::NAN;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
