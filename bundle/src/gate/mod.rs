//! The gate: a bundle, a policy and a baseline make a verdict. It reads no clock, no file and no other run.

mod detect;
mod patches;
mod table;

use crate::judge::limits::{Limits, limits};
use crate::lock::{self, Comparison, Lock};
use crate::{Bundle, Date, Finding, FirstBad, Policy, Report, Suspect, judge, row_verdict};

pub use detect::{Detectable, Tensors};
pub use table::Line;

/// What the gate found beside the verdict, which stands in the bundle.
#[derive(Debug, Clone, PartialEq)]
pub struct Gated {
    /// The limits of the policy.
    pub limits: Limits,
    /// One line a patch set: its verdict and what is nearest to a limit.
    pub table: Vec<Line>,
    /// The smallest effects that this run could have seen.
    pub detectable: Detectable,
    /// The run against the baseline, when there is one.
    pub baseline: Option<Comparison>,
}

/// Judges the bundle anew: verdicts of rows and patches, the policy in `run`, and the verdict of the whole all follow
/// from its tables, the policy, the baseline and the day. Whatever was judged before leaves no trace.
pub fn gate(bundle: &mut Bundle, policy: &Policy, baseline: Option<&Lock>, today: Date) -> Gated {
    bundle.run.policy = policy.clone();
    if let Some(partition) = &mut bundle.run.partition {
        partition.today = Some(today);
    }
    let baseline = baseline.map(|lock| lock::compare(lock, bundle));
    let extra = baseline.as_ref().map(Comparison::findings).unwrap_or_default();
    settle(bundle, Some(today), &extra);
    let limits = limits(&bundle.evidence(), policy);
    let table = table::lines(bundle, &limits, baseline.as_ref());
    let detectable = detect::detectable(bundle, &limits);
    Gated { limits, table, detectable, baseline }
}

/// Fills in all that follows from the bundle's tables and the policy in `run`: what patches add to stock, the verdicts of
/// rows and patches, and that of the whole. `extra`: what else bears on it.
pub fn settle(bundle: &mut Bundle, today: Option<Date>, extra: &[Finding]) {
    let policy = bundle.run.policy.clone();
    for row in &mut bundle.taps {
        row.verdict = row_verdict(row, &policy);
    }
    patches::fill(bundle, today);
    let findings: Vec<Finding> = bundle.run.findings.iter().chain(extra).cloned().collect();
    let mut evidence = bundle.evidence();
    (evidence.findings, evidence.today) = (&findings, today);
    let judged = judge(&evidence, &policy);
    let before = std::mem::take(&mut bundle.verdict);
    bundle.verdict = Report { forward_equivalents: before.forward_equivalents, ..judged };
    // A closer look stays with the place that it was taken at.
    let place = |bad: &FirstBad| bad.place().map(str::to_string);
    let is_there = before.first_bad.as_ref().map(place) == bundle.verdict.first_bad.as_ref().map(place);
    if before.examination.is_some() && is_there {
        let Report { signature, examination, next_step, .. } = before;
        rank(&mut bundle.verdict.suspects, &before.suspects);
        bundle.verdict = Report { signature, examination, next_step, ..std::mem::take(&mut bundle.verdict) };
    }
}

/// Suspects in the order of their effect, which the examination found; those that it did not know last.
fn rank(suspects: &mut [Suspect], known: &[Suspect]) {
    let key = |s: &Suspect| (s.patch_set.clone(), s.layer.clone(), s.op.clone(), s.tap.clone());
    let known: Vec<_> = known.iter().map(key).collect();
    suspects.sort_by_key(|s| known.iter().position(|k| *k == key(s)).unwrap_or(usize::MAX));
}

#[cfg(test)]
mod tests;
