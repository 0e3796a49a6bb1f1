//! What the histories say about a run: one that is not the path's own cold run, one that is too far from golden, and one
//! that never did what it is named after.

use crate::judge::Policy;
use crate::{Finding, HistoryRow, Verdict};

/// The verdict of one row of `histories.csv`; `None` when it is reported only. A value that is not a number fails. A
/// comparison of nothing, or one in a history that never did what it is named after, proves nothing.
pub fn history_verdict(row: &HistoryRow, policy: &Policy) -> Option<Verdict> {
    let (value, tolerance) = (row.value?, row.tolerance? * policy.tolerance_scale);
    if value.is_nan() || tolerance.is_nan() || value > tolerance {
        return Some(Verdict::Fail);
    }
    Some(if row.compared == 0 || !row.missing.is_empty() { Verdict::Unproven } else { Verdict::Pass })
}

/// What bears on the verdict: the first failing row of each history and comparison, and what a history lacks, once.
pub(super) fn findings(rows: &[HistoryRow], policy: &Policy) -> Vec<Finding> {
    let mut out: Vec<Finding> = Vec::new();
    let mut told: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let Some(verdict) = history_verdict(row, policy) else { continue };
        let (key, reason) = match verdict {
            Verdict::Fail => ((row.history.as_str(), row.against.as_str()), over(row)),
            Verdict::Unproven if row.missing.is_empty() => {
                ((row.history.as_str(), "nothing"), format!("history {}: no {} to compare", row.history, row.what))
            }
            Verdict::Unproven => ((row.history.as_str(), ""), format!("history {}: {}", row.history, row.missing)),
            _ => continue,
        };
        if !told.contains(&key) {
            told.push(key);
            out.push(Finding::new(verdict, reason));
        }
    }
    out
}

fn over(row: &HistoryRow) -> String {
    let place = place(row);
    let (history, sequence) = (&row.history, &row.sequence);
    let start = format!("history {history}, sequence {sequence}");
    match row.against.as_str() {
        "cold run" => {
            let (differs, compared) = (row.differs, row.compared);
            format!("{start}: not the path's own cold run: {differs} of {compared} {}, first at {place}", row.what)
        }
        "owners" => format!("{start}: {place} holds {}, not {}", row.owner_found, row.owner_expected),
        _ => {
            let (value, tolerance) = (row.value.unwrap_or(f64::NAN), row.tolerance.unwrap_or(f64::NAN));
            let gate = &row.gate;
            format!("{start}: {} are {value:.3e} from golden, tolerance {tolerance:.3e} ({gate})", row.what)
        }
    }
}

/// Layer, tensor, position and page, as far as there are.
fn place(row: &HistoryRow) -> String {
    let layer = match row.layer.as_str() {
        "" => String::new(),
        number if number.bytes().all(|b| b.is_ascii_digit()) => format!("layer {number}, "),
        other => format!("{other}, "),
    };
    let tensor = if row.tensor.is_empty() { &row.what } else { &row.tensor };
    let position = row.position.map(|p| format!(", position {p}")).unwrap_or_default();
    let page = row.page.map(|p| format!(", {} page {p}", row.pool)).unwrap_or_default();
    format!("{layer}{tensor}{position}{page}")
}

#[cfg(test)]
mod tests;
