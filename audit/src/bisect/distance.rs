//! How far logits are from golden's: what a search measures.

use karat_diff::logits::positions;
use karat_model::Error as Message;
use karat_seam::{Phase, RowId};
use serde::Serialize;

use super::rig::Logits;
use crate::job::Inputs;
use crate::recall::{Lost, lost};
use crate::{Result, align};

/// A measure of a whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Mean KL(golden ‖ candidate) over all positions, nats.
    Kl,
    /// Positions whose most likely id is another than golden's.
    Flips,
    /// Answers that golden gives and the candidate does not.
    Recall,
}

impl Metric {
    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kl => "kl",
            Self::Flips => "flips",
            Self::Recall => "recall",
        }
    }

    /// What a value is, for people.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Kl => "mean KL",
            Self::Flips => "changed top ids",
            Self::Recall => "lost answers",
        }
    }
}

impl std::str::FromStr for Metric {
    type Err = karat_model::Error;

    fn from_str(text: &str) -> karat_model::Result<Self> {
        let all = [Self::Kl, Self::Flips, Self::Recall];
        let unknown = || Message::usage("unknown metric").at("--metric").expected("kl, flips or recall").found(text);
        all.into_iter().find(|m| m.name() == text).ok_or_else(unknown)
    }
}

/// One position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spot {
    pub(crate) row: RowId,
    pub(crate) phase: Phase,
    pub(crate) kl: f64,
    pub(crate) flip: bool,
}

/// All positions that both have, in order of sequence and position.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Distance {
    pub(crate) spots: Vec<Spot>,
    pub(crate) recall: Lost,
}

impl Distance {
    /// Compares logits with golden's.
    pub(crate) fn of(
        inputs: &Inputs,
        golden: &Logits,
        candidate: &Logits,
        phase: impl Fn(RowId) -> Phase,
    ) -> Result<Self> {
        let mut spots = Vec::new();
        for (seq, ours) in golden {
            let Some(theirs) = candidate.get(seq) else { continue };
            let rows = align::common(&ours.rows, &theirs.rows);
            let a = align::gather(&ours.rows, &ours.tensor, &rows);
            let (Some(a), Some(b)) = (a, align::gather(&theirs.rows, &theirs.tensor, &rows)) else { continue };
            let found = positions(&a, &b, &vec![None; rows.len()], 1)?;
            let one = |(row, p): (&RowId, &karat_diff::logits::Position)| Spot {
                row: *row,
                phase: phase(*row),
                kl: p.kl,
                flip: p.is_flip(),
            };
            spots.extend(rows.iter().zip(&found).map(one));
        }
        Ok(Self { spots, recall: lost(inputs, golden.values(), candidate.values())? })
    }

    /// The measure over all positions.
    pub(crate) fn value(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Kl => self.mean_kl(|_| true),
            Metric::Flips => self.spots.iter().filter(|s| s.flip).count() as f64,
            Metric::Recall => self.recall.lost.len() as f64,
        }
    }

    /// Mean KL of some positions; NaN when there is none, or when one is not a number.
    pub(crate) fn mean_kl(&self, of: impl Fn(&Spot) -> bool) -> f64 {
        let kl: Vec<f64> = self.spots.iter().filter(|s| of(s)).map(|s| s.kl).collect();
        kl.iter().sum::<f64>() / kl.len() as f64
    }

    /// The measure over the first `n` positions: the largest KL, the number of changed ids, the number of lost answers.
    pub(crate) fn prefix(&self, metric: Metric, n: usize) -> f64 {
        let some = &self.spots[..n.min(self.spots.len())];
        match metric {
            Metric::Kl => {
                some.iter().map(|s| s.kl).fold(0.0, |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) })
            }
            Metric::Flips => some.iter().filter(|s| s.flip).count() as f64,
            Metric::Recall => {
                let is_in = |row: &RowId| some.iter().any(|s| (s.row.seq, s.row.pos) == (row.seq, row.pos));
                self.recall.lost.iter().filter(|(row, _)| is_in(row)).count() as f64
            }
        }
    }
}
