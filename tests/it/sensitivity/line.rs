//! One row of the table: numbers of one candidate against golden.

use std::collections::BTreeMap;

use karat_audit::{Heard, Inputs};
use karat_bundle::RecallRow;
use karat_bundle::judge::recall::{candidate_is_right, counts, golden_is_right};
use serde_json::{Value, json};

/// Names of the lengths, by the position where the answer begins.
pub(super) const LENGTHS: [(&str, u64); 4] =
    [("to 511", 512), ("512 to 1,023", 1024), ("1,024 to 2,047", 2048), ("2,048 to 4,095", 4096)];
/// Names of the strata of golden's margin that a right answer can be in.
pub(super) const STRATA: [&str; 5] = ["0-0.5", "0.5-1", "1-2", "2-4", "4+"];
/// Strata whose answers noise of stock's size doesn't change: what is lost there is lost to something else.
pub(super) const SURE: [&str; 2] = ["2-4", "4+"];

/// Answers that golden gives, and how many of them the candidate gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) asked: u64,
    pub(super) kept: u64,
}

/// What one candidate does.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Line {
    /// stock, a patch's name or a fault's id.
    pub(super) name: String,
    /// Answers that golden gives.
    pub(super) all: Kept,
    /// Answers that only the candidate gives.
    pub(super) gained: u64,
    pub(super) by_length: BTreeMap<String, Kept>,
    pub(super) by_stratum: BTreeMap<String, Kept>,
    /// Tokens of all answers, and those whose most likely id is not golden's.
    pub(super) answer_tokens: u64,
    pub(super) answer_flips: u64,
    /// Mean KL from golden over those tokens, nats.
    pub(super) answer_kl: f64,
    /// All positions, those whose most likely id is not golden's, and the mean KL, nats.
    pub(super) positions: u64,
    pub(super) flips: u64,
    pub(super) kl: f64,
    /// How lost answers look, the most frequent first.
    pub(super) looks: String,
}

impl Line {
    /// From what was heard of a candidate over these conversations.
    pub(super) fn of(name: &str, heard: &Heard, inputs: &Inputs) -> Self {
        let mut line = Self { name: name.into(), ..Self::default() };
        let mut looks: BTreeMap<&str, u64> = BTreeMap::new();
        for row in heard.rows.iter().filter(|r| counts(r)) {
            line.add(row);
            if golden_is_right(row) && !candidate_is_right(row) {
                *looks.entry(&row.symptom).or_default() += 1;
            }
        }
        let mut looks: Vec<(u64, &str)> = looks.into_iter().map(|(name, n)| (n, name)).collect();
        looks.sort_by_key(|look| std::cmp::Reverse(look.0));
        line.looks = looks.iter().map(|(n, name)| format!("{n} {name}")).collect::<Vec<_>>().join(", ");
        let is_answer = |seq: u32, pos: u32| inputs.asks[seq as usize].iter().any(|a| a.answer.contains(&(pos + 1)));
        let (mut kl, mut answer_kl) = (0.0, 0.0);
        for (row, p) in &heard.positions {
            let flip = u64::from(p.top1_golden != p.top1_candidate);
            (kl, line.positions, line.flips) = (kl + p.kl, line.positions + 1, line.flips + flip);
            if is_answer(row.seq, row.pos) {
                answer_kl += p.kl;
                line.answer_tokens += 1;
                line.answer_flips += flip;
            }
        }
        line.kl = kl / line.positions as f64;
        line.answer_kl = answer_kl / line.answer_tokens as f64;
        line
    }

    fn add(&mut self, row: &RecallRow) {
        if !golden_is_right(row) {
            self.gained += u64::from(candidate_is_right(row));
            return;
        }
        let length = LENGTHS.iter().find(|(_, end)| row.context_tokens < *end).expect("no answer begins later").0;
        let cells = [
            &mut self.all,
            self.by_length.entry(length.into()).or_default(),
            self.by_stratum.entry(row.margin_stratum.clone()).or_default(),
        ];
        for cell in cells {
            cell.asked += 1;
            cell.kept += u64::from(candidate_is_right(row));
        }
    }

    /// Answers lost of which golden is sure.
    pub(super) fn lost_sure(&self) -> u64 {
        SURE.iter().filter_map(|s| self.by_stratum.get(*s)).map(|k| k.asked - k.kept).sum()
    }

    pub(super) fn to_json(&self) -> Value {
        let cells = |map: &BTreeMap<String, Kept>| -> Value {
            map.iter()
                .map(|(name, k)| (name.clone(), json!([k.asked, k.kept])))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        json!({
            "name": self.name, "all": [self.all.asked, self.all.kept], "gained": self.gained,
            "by_length": cells(&self.by_length), "by_stratum": cells(&self.by_stratum),
            "answer_tokens": self.answer_tokens, "answer_flips": self.answer_flips,
            // A NaN has no number in JSON: as text it comes back as itself.
            "answer_kl": self.answer_kl.to_string(), "kl": self.kl.to_string(),
            "positions": self.positions, "flips": self.flips, "looks": self.looks,
        })
    }

    pub(super) fn from_json(v: &Value) -> Option<Self> {
        let kept = |v: &Value| Some(Kept { asked: v[0].as_u64()?, kept: v[1].as_u64()? });
        let cells = |v: &Value| -> Option<BTreeMap<String, Kept>> {
            v.as_object()?.iter().map(|(name, v)| Some((name.clone(), kept(v)?))).collect()
        };
        let float = |v: &Value| v.as_str()?.parse().ok();
        Some(Self {
            name: v["name"].as_str()?.into(),
            all: kept(&v["all"])?,
            gained: v["gained"].as_u64()?,
            by_length: cells(&v["by_length"])?,
            by_stratum: cells(&v["by_stratum"])?,
            answer_tokens: v["answer_tokens"].as_u64()?,
            answer_flips: v["answer_flips"].as_u64()?,
            answer_kl: float(&v["answer_kl"])?,
            positions: v["positions"].as_u64()?,
            flips: v["flips"].as_u64()?,
            kl: float(&v["kl"])?,
            looks: v["looks"].as_str()?.into(),
        })
    }
}
