//! Golden's part of a recall, kept for any number of candidates.

use std::collections::BTreeMap;

use karat_bundle::RecallRow;
use karat_diff::logits::{Position, positions};
use karat_reference::Golden;
use karat_seam::{RowId, Tensor};

use super::answers::{Picked, answers};
use super::{Asked, Search, last_row, pass, rows, takeover};
use crate::job::Job;
use crate::{Candidate, Result};

/// Golden over the conversations of a job.
pub struct Kept<'a> {
    job: &'a Job<'a>,
    golden: Golden,
    logits: pass::Logits,
    picked: Picked,
}

/// What one candidate recalls, and how far its distributions are from golden's.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    /// Rows of `recall.csv`; at which layer an answer is lost was not looked for.
    pub rows: Vec<RecallRow>,
    /// Every row that both computed, in golden's order: the next id's distribution.
    pub positions: Vec<(RowId, Position)>,
}

impl<'a> Kept<'a> {
    /// Runs golden.
    ///
    /// # Errors
    /// Those of a path.
    pub fn of(job: &'a Job<'a>) -> Result<Self> {
        let golden = job.golden(job.inputs.requests.clone())?;
        let logits = pass::whole(&golden, job.stop, None)?;
        let mut picked = Picked::default();
        picked.take(&logits.0, &logits.1, &job.inputs.asks);
        Ok(Self { job, golden, logits, picked })
    }

    /// Runs a candidate, whose path has the job's conversations.
    ///
    /// # Errors
    /// Those of a path.
    pub fn hear(&self, candidate: &Candidate<'_>) -> Result<Heard> {
        let (ids, theirs) = pass::whole(candidate.path, self.job.stop, None)?;
        let rows = self.rows(candidate, (&ids, &theirs), &|_, _, _| Ok(Vec::new()))?;
        // Of a row that was computed again the last pass counts: it comes later.
        let at: BTreeMap<(u32, u32), usize> = ids.iter().enumerate().map(|(i, r)| ((r.seq, r.pos), i)).collect();
        let both = self.logits.0.iter().enumerate().filter_map(|(i, r)| Some((*r, i, *at.get(&(r.seq, r.pos))?)));
        let both: Vec<(RowId, usize, usize)> = both.collect();
        let width = self.logits.1.width();
        let gather = |t: &Tensor, which: &mut dyn Iterator<Item = usize>| -> Result<Tensor> {
            let values = t.as_f32("logits")?;
            let picked: Vec<f32> = which.flat_map(|i| values[i * width..(i + 1) * width].iter().copied()).collect();
            Ok(Tensor::f32([both.len(), width], picked))
        };
        let ours = gather(&self.logits.1, &mut both.iter().map(|b| b.1))?;
        let theirs = gather(&theirs, &mut both.iter().map(|b| b.2))?;
        let found = positions(&ours, &theirs, &vec![None; both.len()], 1)?;
        Ok(Heard { rows, positions: both.into_iter().map(|b| b.0).zip(found).collect() })
    }

    /// The same without distributions, but with the layers at which answers are lost, where the job has one conversation:
    /// only then can the paths at hand be run once more.
    pub(super) fn searched(&self, candidate: &Candidate<'_>) -> Result<Vec<RecallRow>> {
        let (ids, theirs) = pass::whole(candidate.path, self.job.stop, None)?;
        let search = |_: &str, _: usize, asks: &[karat_scenarios::Ask]| match self.job.inputs.requests.seqs.len() {
            1 => takeover::lost_at(&self.golden, candidate.path, asks, self.job.stop),
            _ => Ok(Vec::new()),
        };
        self.rows(candidate, (&ids, &theirs), &search)
    }

    fn rows(
        &self,
        candidate: &Candidate<'_>,
        (ids, theirs): (&[RowId], &Tensor),
        search: &Search<'_>,
    ) -> Result<Vec<RecallRow>> {
        let asks = &self.job.inputs.asks;
        let mut picked = Picked::default();
        picked.take(ids, theirs, asks);
        let answers = answers(asks, &self.picked, &picked);
        let phases = answers.iter().map(|a| candidate.path.phase_of(last_row(asks, a))).collect();
        let (patch_set, history) = (candidate.patch_set.clone(), candidate.history.clone());
        rows(self.job, &[Asked { patch_set, history, answers, phases }], search)
    }
}
