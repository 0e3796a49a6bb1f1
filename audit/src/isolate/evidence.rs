//! What the steps measured, as data: the synthesis follows from it alone.

use std::collections::BTreeMap;

use karat_bundle::Verdict;
use karat_seam::Phase;
use serde::Serialize;

use super::broken::Broken;
use crate::bisect::{Distance, Metric, Stage};
use crate::job::Inputs;

/// One run's logits against golden's.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Logits {
    pub(super) positions: usize,
    /// Mean KL, nats: of all positions, of prefill, of decode (where there are such).
    pub(super) kl: f64,
    pub(super) prefill: Option<f64>,
    pub(super) decode: Option<f64>,
    /// The largest, and where.
    pub(super) worst: f64,
    pub(super) worst_at: String,
    pub(super) flips: usize,
    /// Answers that golden gives, and those of them that are lost.
    pub(super) given: usize,
    pub(super) lost: Vec<String>,
}

impl Logits {
    pub(super) fn of(distance: &Distance, inputs: &Inputs) -> Self {
        let phase = |phase| {
            let some = distance.spots.iter().any(|s| s.phase == phase);
            some.then(|| distance.mean_kl(|s| s.phase == phase))
        };
        let worst = distance.spots.iter().max_by(|a, b| a.kl.total_cmp(&b.kl));
        let name = |seq: u32| inputs.requests.seqs.get(seq as usize).map_or("", |s| s.id.as_str());
        Self {
            positions: distance.spots.len(),
            kl: distance.value(Metric::Kl),
            prefill: phase(Phase::Prefill),
            decode: phase(Phase::Decode),
            worst: worst.map_or(f64::NAN, |s| s.kl),
            worst_at: worst.map_or(String::new(), |s| format!("{} position {}", name(s.row.seq), s.row.pos)),
            flips: distance.value(Metric::Flips) as usize,
            given: distance.recall.given,
            lost: distance.recall.lost.iter().map(|(_, expected)| expected.clone()).collect(),
        }
    }
}

/// Recall over the quick set.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Recalled {
    pub(super) conversations: usize,
    pub(super) answers: u64,
    pub(super) lost: u64,
    pub(super) gained: u64,
    /// Upper 95 % bound of the net loss.
    pub(super) upper: f64,
    /// How lost answers look, and at which layer they are lost where that is known.
    pub(super) symptoms: BTreeMap<String, usize>,
    pub(super) layers: BTreeMap<u64, usize>,
}

/// The audit.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Audited {
    pub(super) verdict: Verdict,
    pub(super) reason: String,
    pub(super) judged: usize,
    /// Layer, op and tap of the first bad place.
    pub(super) first_bad: Option<(String, String, String)>,
    /// Patch, state, verdict.
    pub(super) patches: Vec<(String, String, Option<Verdict>)>,
}

/// Patches that act in decode only, off and on.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Decode {
    pub(super) patches: Vec<String>,
    pub(super) with: Logits,
    pub(super) without: Logits,
}

/// Generated positions, decoded against prefilled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Phases {
    pub(super) rows: usize,
    /// Mean KL and changed top ids, with all patches.
    pub(super) all: (f64, usize),
    /// The same of stock.
    pub(super) stock: (f64, usize),
}

/// One history.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Served {
    pub(super) name: String,
    /// The first difference.
    pub(super) differs: Option<String>,
    /// Why it is no evidence.
    pub(super) lacks: Option<String>,
    /// What it does to the conversation; measured for the first that differs.
    pub(super) broken: Option<Broken>,
}

/// Everything; a step that failed left nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Evidence {
    pub(super) recall: Option<Recalled>,
    pub(super) decode: Option<Decode>,
    /// With all patches, and stock.
    pub(super) logits: Option<(Logits, Logits)>,
    pub(super) phases: Option<Phases>,
    /// Without each patch.
    pub(super) reverts: Option<Vec<(String, Logits)>>,
    pub(super) histories: Option<Vec<Served>>,
    pub(super) audit: Option<Audited>,
    pub(super) layer: Option<Stage>,
    pub(super) op: Option<Stage>,
    /// The smallest bad patch set, where something is bad.
    pub(super) smallest: Option<Stage>,
}
