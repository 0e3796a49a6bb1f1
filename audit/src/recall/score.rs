//! From logits to a row of `recall.csv`.

use karat_bundle::RecallRow;
use karat_diff::logits::positions;
use karat_model::prompt::Tokenizer;
use karat_scenarios::{Ask, Blind, Looks, Symptom, symptom};
use karat_seam::Tensor;

use super::answers::Answer;
use crate::Result;

/// Golden with and without the history must differ by this Jensen-Shannon divergence (nats, mean over the answer) before
/// a candidate can be nearer to one of them.
const TOLD_APART: f64 = 0.02;

/// What a row says beside the logits.
pub(crate) struct Named<'a> {
    pub(crate) scenario: &'a str,
    pub(crate) variant: &'a str,
    pub(crate) conversation: &'a str,
    pub(crate) history: &'a str,
    pub(crate) patch_set: &'a str,
    pub(crate) phase: &'a str,
    pub(crate) finish_reason: &'a str,
}

/// One token of an answer under one path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Token {
    /// Most likely id (the lowest of several); 0 when no logit is a number.
    pub(crate) said: u32,
    /// Logit of the expected id less the largest other; NaN when one is.
    pub(crate) margin: f64,
}

/// What a path says at each row of `logits` `[n,V]` where `expected` should stand.
pub(crate) fn tokens(logits: &Tensor, expected: &[u32]) -> Result<Vec<Token>> {
    let (width, values) = (logits.width(), logits.as_f32("logits")?);
    let one = |(row, id): (&[f32], &u32)| {
        let mut best: Option<usize> = None;
        let mut other = f64::NEG_INFINITY;
        let mut broken = false;
        for (i, &v) in row.iter().enumerate() {
            broken |= v.is_nan();
            if !v.is_nan() && best.is_none_or(|b| v > row[b]) {
                best = Some(i);
            }
            if i != *id as usize {
                other = other.max(f64::from(v));
            }
        }
        let own = f64::from(row.get(*id as usize).copied().unwrap_or(f32::NAN));
        let margin = if broken { f64::NAN } else { own - other };
        Token { said: best.unwrap_or(0) as u32, margin }
    };
    Ok(values.chunks_exact(width.max(1)).zip(expected).map(one).collect())
}

/// True when the whole answer was given.
pub(crate) fn right(tokens: &[Token]) -> bool {
    !tokens.is_empty() && tokens.iter().all(|t| t.margin > 0.0)
}

/// Bucket of a margin, nats.
pub(crate) fn stratum(margin: f64) -> &'static str {
    match margin {
        m if m >= 4.0 => "4+",
        m if m >= 2.0 => "2-4",
        m if m >= 1.0 => "1-2",
        m if m >= 0.5 => "0.5-1",
        m if m > 0.0 => "0-0.5",
        _ => "wrong",
    }
}

fn slice(t: &Tensor, from: usize, to: usize) -> Result<Tensor> {
    let (to, width) = (to.min(t.rows()), t.width());
    let from = from.min(to);
    Ok(Tensor::f32([to - from, width], t.as_f32("logits")?[from * width..to * width].to_vec()))
}

/// Natural log-probability of `id` under row `r` of logits.
fn log_prob(logits: &Tensor, r: usize, id: u32) -> Result<f64> {
    let width = logits.width();
    let row = &logits.as_f32("logits")?[r * width..(r + 1) * width];
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|&v| f64::from(v - max).exp()).sum();
    Ok(f64::from(row[id as usize] - max) - sum.ln())
}

/// Mean KL of two logits tensors over their rows, and mean Jensen-Shannon divergence.
fn distance(a: &Tensor, b: &Tensor) -> Result<(f64, f64)> {
    let found = positions(a, b, &vec![None; a.rows()], 1)?;
    let n = found.len() as f64;
    Ok((found.iter().map(|p| p.kl).sum::<f64>() / n, found.iter().map(|p| p.js).sum::<f64>() / n))
}

/// Nearness to golden without the history, 0 to 1: d / (d + KL(alone, candidate)), where d is the lesser of
/// KL(golden, candidate) and half of KL(alone, golden). Over 0.5 the candidate is nearer to golden without the history than
/// to golden with it, and nearer by half than golden with it is. The second condition tells a confident wrong value from a
/// lost history: without history golden takes many values for as likely, so whatever is sure of one of them is far from
/// that, the right value as far as a wrong one. `None` where golden is the same with and without, or a logit of the
/// candidate is no number.
pub(crate) fn amnesia(golden: &Tensor, candidate: &Tensor, alone: &Tensor) -> Result<Option<f64>> {
    let (between, apart) = distance(alone, golden)?;
    let ((whole, _), (last, _)) = (distance(golden, candidate)?, distance(alone, candidate)?);
    let near = if whole > between / 2.0 { between / 2.0 } else { whole };
    let share = near / (near + last);
    // A NaN divergence is told apart from nothing.
    Ok((apart >= TOLD_APART && share.is_finite()).then_some(share))
}

/// The row of one answer. `alone`: golden's logits of the answer `[answer,V]` with the last turn only, when measured.
pub(crate) fn row(
    named: &Named<'_>,
    ids: &[u32],
    ask: &Ask,
    answer: &Answer,
    alone: Option<&Tensor>,
    tokenizer: Option<&Tokenizer>,
) -> Result<RecallRow> {
    let (start, end) = (ask.turn.start as usize, ask.turn.end as usize);
    let (from, to) = (ask.positions().start - start, ask.positions().end - start);
    let turn = &ids[start..end];
    let golden = tokens(&answer.golden, turn)?;
    let candidate = tokens(&answer.candidate, turn)?;
    let truncated = candidate.len() < to;
    let of_answer = |t: &[Token]| t.get(from..to.min(t.len())).unwrap_or_default().to_vec();
    let (ours, theirs) = (of_answer(&golden), of_answer(&candidate));
    let said: Vec<u32> = candidate.iter().map(|t| t.said).collect();
    let (g, c) = (slice(&answer.golden, from, to)?, slice(&answer.candidate, from, to)?);
    let (mut answer_kl, mut nearness) = (f64::NAN, None);
    if !truncated {
        answer_kl = distance(&g, &c)?.0;
        nearness = alone.map(|alone| amnesia(&g, &c, alone)).transpose()?.flatten();
    }
    let looks = Looks {
        said: &said,
        expected: turn,
        mean_log_prob: mean_log_prob(answer, &said, from, alone)?,
        vocabulary: answer.golden.width(),
        right: right(&theirs) && !truncated,
        amnesia: nearness,
        truncated,
    };
    let decode = |ids: &[u32]| tokenizer.map_or_else(|| Ok(String::new()), |t| t.decode(ids));
    let blind = Blind::of(&decode(&said)?);
    let worse = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) };
    let worst = |t: &[Token]| t.iter().map(|t| t.margin).fold(f64::INFINITY, worse);
    let at = ask.answer.start;
    let matched = |t: &[Token]| t.iter().filter(|t| t.margin > 0.0).count() as u64;
    let seen = symptom(&looks);
    Ok(RecallRow {
        scenario: named.scenario.to_owned(),
        conversation: named.conversation.to_owned(),
        variant: named.variant.to_owned(),
        history: named.history.to_owned(),
        context_tokens: u64::from(at),
        depth: ask.told.map(|told| f64::from(told) / f64::from(at.max(1))),
        length_phase: [4, 128, 256, 8192].map(|n| (at % n).to_string()).join("|"),
        margin_stratum: stratum(worst(&ours)).to_owned(),
        expected: ask.expected.clone(),
        matched_golden: matched(&ours),
        matched_candidate: matched(&theirs),
        answer_kl,
        worst_margin_golden: worst(&ours),
        worst_margin_candidate: if truncated { f64::NAN } else { worst(&theirs) },
        amnesia: nearness,
        symptom: seen.name().to_owned(),
        lost_at_layer: None,
        finish_reason: if seen == Symptom::Truncated { "length" } else { named.finish_reason }.to_owned(),
        gzip_ratio: blind.gzip_ratio,
        unique_word_ratio: blind.unique_word_ratio,
        max_word_run: Some(blind.max_word_run),
        max_line_repeat: Some(blind.max_line_repeat),
        patch_set: named.patch_set.to_owned(),
        question: answer.question as u64,
        kind: ask.kind.to_owned(),
        answer_tokens: (to - from) as u64,
        phase: named.phase.to_owned(),
        said: decode(said.get(from..to.min(said.len())).unwrap_or_default())?.trim().to_owned(),
    })
}

/// Mean log-probability of what the candidate says, under golden with or without the history, whichever is more: a wrong
/// value of the right kind is likely without it, a salad never.
fn mean_log_prob(answer: &Answer, said: &[u32], from: usize, alone: Option<&Tensor>) -> Result<f64> {
    let mut sum = 0.0;
    for (i, &id) in said.iter().enumerate() {
        let mut best = log_prob(&answer.golden, i, id)?;
        if let Some(alone) = alone.filter(|a| i >= from && i - from < a.rows()) {
            best = best.max(log_prob(alone, i - from, id)?);
        }
        sum += best;
    }
    Ok(sum / said.len().max(1) as f64)
}

#[cfg(test)]
mod tests;
