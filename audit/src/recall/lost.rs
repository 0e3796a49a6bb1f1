//! Answers that golden gives and a candidate does not, from logits alone.

use karat_bundle::RecallRow;
use karat_seam::{Phase, Recorded, RowId};

use super::Asked;
use super::answers::{Picked, answers};
use super::score::{right, tokens};
use crate::Result;
use crate::job::{Inputs, Job};

/// Answers of a run against golden's.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Lost {
    /// Answers that golden gives.
    pub(crate) given: usize,
    /// Those of them that the candidate does not give: the row that predicts the answer's last id, and the expected text.
    pub(crate) lost: Vec<(RowId, String)>,
}

/// Compares the answers. Logits come sequence by sequence.
pub(crate) fn lost<'a>(
    inputs: &Inputs,
    golden: impl Iterator<Item = &'a Recorded>,
    candidate: impl Iterator<Item = &'a Recorded>,
) -> Result<Lost> {
    let asks = &inputs.asks;
    let (mut ours, mut theirs) = (Picked::default(), Picked::default());
    golden.for_each(|r| ours.take(&r.rows, &r.tensor, asks));
    candidate.for_each(|r| theirs.take(&r.rows, &r.tensor, asks));
    let mut out = Lost::default();
    for answer in answers(asks, &ours, &theirs) {
        let ask = &asks[answer.seq][answer.question];
        let turn = &inputs.requests.seqs[answer.seq].ids[ask.turn.start as usize..ask.turn.end as usize];
        let (from, to) = ((ask.answer.start - ask.turn.start) as usize, (ask.answer.end - ask.turn.start) as usize);
        let is_right = |logits| -> Result<bool> { Ok(tokens(logits, turn)?.get(from..to).is_some_and(right)) };
        if is_right(&answer.golden)? {
            out.given += 1;
            if !is_right(&answer.candidate)? {
                out.lost.push((super::last_row(asks, &answer), ask.expected.clone()));
            }
        }
    }
    Ok(out)
}

/// Rows of `recall.csv` from logits alone; the layers at which answers are lost stay unknown. Logits come sequence by
/// sequence.
pub(crate) fn told<'a>(
    job: &Job<'_>,
    golden: impl Iterator<Item = &'a Recorded>,
    candidate: impl Iterator<Item = &'a Recorded>,
    history: &str,
) -> Result<Vec<RecallRow>> {
    let asks = &job.inputs.asks;
    let (mut ours, mut theirs) = (Picked::default(), Picked::default());
    golden.for_each(|r| ours.take(&r.rows, &r.tensor, asks));
    candidate.for_each(|r| theirs.take(&r.rows, &r.tensor, asks));
    let answers = answers(asks, &ours, &theirs);
    let phases = vec![Phase::Decode; answers.len()];
    let asked = Asked { patch_set: "all".to_owned(), history: history.to_owned(), answers, phases };
    super::rows(job, &[asked], &|_, _, _| Ok(Vec::new()))
}
