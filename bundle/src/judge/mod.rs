//! The verdict: a pure function of what a bundle holds and a policy.

mod first_bad;
mod histories;
pub mod recall;
mod words;

use serde::{Deserialize, Serialize};

use crate::{Finding, FlipRow, HistoryRow, PatchRow, RecallRow, Report, TapRow, Verdict, json};

pub use histories::history_verdict;

/// How a verdict follows from the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Factor on every tolerance of the tables.
    #[serde(with = "json::number")]
    pub tolerance_scale: f64,
    /// A tolerance under this many floors proves nothing.
    #[serde(with = "json::number")]
    pub min_floors: f64,
    /// Share of answers whose loss must be ruled out; `null` when recall is reported, not tested for that.
    #[serde(default)]
    pub recall_margin: Option<f64>,
}

impl Default for Policy {
    fn default() -> Self {
        Self { tolerance_scale: 1.0, min_floors: 10.0, recall_margin: None }
    }
}

/// What the verdict is a function of.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evidence<'a> {
    /// Rows of `taps.csv`.
    pub taps: &'a [TapRow],
    /// Rows of `flips.csv`: named in the reasons.
    pub flips: &'a [FlipRow],
    /// Rows of `patches.csv`.
    pub patches: &'a [PatchRow],
    /// Rows of `recall.csv`.
    pub recall: &'a [RecallRow],
    /// Rows of `histories.csv`.
    pub histories: &'a [HistoryRow],
    /// What else was found out.
    pub findings: &'a [Finding],
}

/// The verdict of one row of `taps.csv`; `None` when it is not gated.
///
/// An error at or under the floor passes whatever the tolerance. A value that is not a number fails.
pub fn row_verdict(row: &TapRow, policy: &Policy) -> Option<Verdict> {
    let (value, tolerance) = (row.value?, row.tolerance? * policy.tolerance_scale);
    if row.nonfinite > 0 || value.is_nan() || tolerance.is_nan() || row.floor.is_some_and(f64::is_nan) {
        return Some(Verdict::Fail);
    }
    let floor = row.floor.unwrap_or(0.0);
    let floors = policy.min_floors * floor;
    if value <= floor {
        return Some(Verdict::Pass);
    }
    // A tolerance that golden's own noise could fill decides nothing, except about what that noise cannot explain.
    if value > tolerance && (tolerance >= floors || value > floors) {
        return Some(Verdict::Fail);
    }
    Some(if tolerance < floors { Verdict::Unproven } else { Verdict::Pass })
}

/// The verdict of a whole run. `signature`, `examination` and `forward_equivalents` are left for the caller: no row holds them.
pub fn judge(evidence: &Evidence<'_>, policy: &Policy) -> Report {
    let mut findings: Vec<Finding> = evidence.findings.to_vec();
    let failing: Vec<&TapRow> = with_verdict(evidence.taps, policy, Verdict::Fail);
    let first_bad = first_bad::first(&failing, policy);
    let suspects = first_bad::suspects(&failing, policy);
    if let Some(bad) = &first_bad {
        findings.push(Finding::new(Verdict::Fail, words::over_tolerance(bad, failing.len())));
        let unexplained = words::unexplained(evidence.flips, &failing);
        findings.extend(unexplained.map(|reason| Finding::new(Verdict::Fail, reason)));
    }
    let blind = with_verdict(evidence.taps, policy, Verdict::Unproven);
    if let Some(row) = blind.first() {
        findings.push(Finding::new(Verdict::Unproven, words::blind(row, blind.len(), policy)));
    }
    findings.extend(words::does_not_round(evidence.taps).map(|reason| Finding::new(Verdict::Unproven, reason)));
    for patch in evidence.patches {
        findings.extend(words::misapplied(patch).map(|reason| Finding::new(Verdict::Fail, reason)));
        findings.extend(words::not_exercised(patch).map(|reason| Finding::new(Verdict::Unproven, reason)));
    }
    findings.extend(recall::findings(evidence.recall, policy));
    findings.extend(histories::findings(evidence.histories, policy));
    let compares = evidence.histories.iter().any(|row| history_verdict(row, policy).is_some());
    if evidence.recall.is_empty() && !compares && !evidence.taps.iter().any(|row| row_verdict(row, policy).is_some()) {
        findings.push(Finding::new(Verdict::Unproven, "nothing was compared: no row of the candidate could be judged"));
    }
    findings.sort_by_key(|f| f.verdict);
    let verdict = findings.first().map_or(Verdict::Pass, |f| f.verdict);
    let next_step = words::next_step(verdict, first_bad.as_ref());
    let reasons = findings.into_iter().map(|f| f.reason).collect();
    let exit_code = verdict.exit_code();
    Report { verdict, exit_code, first_bad, suspects, reasons, next_step, ..Report::default() }
}

/// Why a patch that was asked for was not exercised, if so: what its own verdict and the run's rest on.
pub fn not_exercised(patch: &PatchRow) -> Option<String> {
    words::not_exercised(patch)
}

/// Why a patch is wrong whatever its error, if so: it is applied never or more than once.
pub fn misapplied(patch: &PatchRow) -> Option<String> {
    words::misapplied(patch)
}

fn with_verdict<'a>(rows: &'a [TapRow], policy: &Policy, verdict: Verdict) -> Vec<&'a TapRow> {
    rows.iter().filter(|row| row_verdict(row, policy) == Some(verdict)).collect()
}

#[cfg(test)]
mod tests;
