//! The smallest effects that a run could have seen: a gate that passes says how much it would have let through.

use std::collections::BTreeMap;

use crate::judge::limits::Limits;
use crate::judge::recall::{can_rule_out, counts};
use crate::policy::RECALL_MARGIN;
use crate::{Bundle, Verdict};

/// Gated rows of one unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensors {
    /// Unit of the gate.
    pub unit: String,
    /// Rows.
    pub rows: u64,
    /// The tightest and the loosest tolerance: errors from there on are seen.
    pub tolerance: (f64, f64),
    /// The smallest tolerance over floor, where floors are known.
    pub floors: Option<f64>,
}

/// What could have been seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Detectable {
    /// Tensors, by unit.
    pub tensors: Vec<Tensors>,
    /// Limits on means: name, samples, and the smallest true value that is found four times in five, for the patch set
    /// for which that is largest.
    pub means: Vec<(String, u64, f64)>,
    /// Answers of a patch set, and the smallest loss that so many can rule out when none is lost.
    pub recall: Option<(u64, f64)>,
}

pub(super) fn detectable(bundle: &Bundle, limits: &Limits) -> Detectable {
    let mut tensors: BTreeMap<&str, Tensors> = BTreeMap::new();
    for row in &bundle.taps {
        let (Some(tolerance), Some(_)) = (row.tolerance, row.verdict) else { continue };
        let tolerance = tolerance * bundle.run.policy.scale(row);
        let all = tensors.entry(&row.gate).or_insert_with(|| Tensors {
            unit: row.gate.clone(),
            rows: 0,
            tolerance: (f64::INFINITY, 0.0),
            floors: None,
        });
        all.rows += 1;
        all.tolerance = (all.tolerance.0.min(tolerance), all.tolerance.1.max(tolerance));
        if let Some(floor) = row.floor.filter(|f| *f > 0.0 && row.verdict != Some(Verdict::Fail)) {
            all.floors = Some(all.floors.map_or(tolerance / floor, |f| f.min(tolerance / floor)));
        }
    }
    let mut means: Vec<(String, u64, f64)> = Vec::new();
    for j in limits.judged.iter().filter(|j| j.limit != RECALL_MARGIN) {
        let Some(found) = j.detectable.map(|d| d + j.bound) else { continue };
        match means.iter_mut().find(|m| m.0 == j.limit) {
            Some(mean) if mean.2 >= found => {}
            Some(mean) => *mean = (j.limit.clone(), j.n, found),
            None => means.push((j.limit.clone(), j.n, found)),
        }
    }
    let mut answers: BTreeMap<&str, u64> = BTreeMap::new();
    for row in bundle.recall.iter().filter(|r| counts(r)) {
        *answers.entry(&row.patch_set).or_default() += 1;
    }
    let recall = answers.into_values().min().map(|n| (n, can_rule_out(n)));
    Detectable { tensors: tensors.into_values().collect(), means, recall }
}
