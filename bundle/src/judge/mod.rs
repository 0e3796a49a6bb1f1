//! The verdict: a pure function of what a bundle holds and a policy.

pub(crate) mod first_bad;
mod histories;
pub mod limits;
pub mod recall;
pub(crate) mod stats;
pub(crate) mod words;

use crate::{Date, Finding, FlipRow, HistoryRow, PatchRow, Policy, RecallRow, Report, TapRow, TokenRow, Verdict};

pub use histories::history_verdict;

/// What the verdict is a function of.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evidence<'a> {
    /// Rows of `taps.csv`.
    pub taps: &'a [TapRow],
    /// Rows of `tokens.csv`.
    pub tokens: &'a [TokenRow],
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
    /// True for some parts of a partitioned run: what is not here may be in the others.
    pub is_part: bool,
    /// The day of the verdict, for allowances; an allowance counts for nothing without it.
    pub today: Option<Date>,
}

/// The verdict of one row of `taps.csv`; `None` when it is not gated.
///
/// An error at or under the floor passes whatever the tolerance. A value that is not a number fails.
pub fn row_verdict(row: &TapRow, policy: &Policy) -> Option<Verdict> {
    let (value, tolerance) = (row.value?, row.tolerance? * policy.scale(row));
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
    let mut failing: Vec<&TapRow> = with_verdict(evidence.taps, policy, Verdict::Fail);
    let limits = limits::limits(evidence, policy);
    findings.extend(allowances(evidence, policy, &failing, &limits));
    failing.retain(|row| !policy.allow.iter().any(|allow| allow.covers_tap(row)));
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
    findings.extend(recall::findings(evidence.recall));
    findings.extend(limits.findings(policy, !evidence.is_part));
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

/// An allowance must be in time and in use, else it is a failure of its own.
fn allowances(evidence: &Evidence<'_>, policy: &Policy, failing: &[&TapRow], limits: &limits::Limits) -> Vec<Finding> {
    let mut out = Vec::new();
    for allow in &policy.allow {
        let title = allow.title();
        let Some(today) = evidence.today else {
            out.push(Finding::new(Verdict::Unproven, format!("{title} can't be judged without a day")));
            continue;
        };
        let fails = |j: &&limits::Judged| j.verdict == Verdict::Fail && allow.covers_limit(&j.limit, &j.patch_set);
        let is_used = failing.iter().any(|row| allow.covers_tap(row)) || limits.judged.iter().any(|j| fails(&j));
        if allow.expires < today {
            let reason =
                format!("{title} expired on {} (today {today}): mend what it allows, or renew it", allow.expires);
            out.push(Finding::new(Verdict::Fail, reason));
        } else if !is_used && !evidence.is_part {
            out.push(Finding::new(Verdict::Fail, format!("{title} allows nothing that fails: remove it")));
        }
    }
    out
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
