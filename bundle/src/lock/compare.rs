//! A run against its baseline: worse, better, or neither beyond noise.

use std::fmt;

use super::{Entry, Lock, measure};
use crate::judge::stats;
use crate::{Bundle, Finding, Verdict};

/// Degrees of freedom from which Student's distribution is the normal.
const NORMAL: f64 = 1e7;
/// Changes that are named; the rest is counted.
const NAMED: usize = 5;

/// A metric that moved beyond noise.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The metric.
    pub name: String,
    /// The baseline's.
    pub old: Entry,
    /// This run's.
    pub new: Entry,
    /// Worse, or better.
    pub is_worse: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_worse { "worse" } else { "better" };
        write!(f, "{:.3e} was {:.3e}: {word} beyond noise", self.new.value, self.old.value)
    }
}

/// What comparing a run with a baseline found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Comparison {
    /// Why the two can't be compared, if so.
    pub unlike: Vec<String>,
    /// Metrics of the baseline that the run lacks.
    pub missing: Vec<String>,
    /// Metrics of the run that the baseline lacks.
    pub added: Vec<String>,
    /// What moved beyond noise, the worst first.
    pub changes: Vec<Change>,
    /// Metrics compared.
    pub compared: usize,
    lock: Lock,
}

/// Compares a bundle, under the policy in its `run`, with a baseline.
pub fn compare(old: &Lock, bundle: &Bundle) -> Comparison {
    let new = measure(bundle);
    let mut out = Comparison { lock: old.clone(), ..Comparison::default() };
    if bundle.run.is_part() {
        out.unlike.push("a part of a run has no baseline: merge the parts, then gate".to_string());
        return out;
    }
    for (name, hash) in &new.hashes {
        let before = old.hashes.get(name);
        // Kernels are what is tested: others are compared, not refused.
        if name != "kernels" && before != Some(hash) {
            let hint = if name == "policy" { "; see the diff and run --update-baseline" } else { "" };
            out.unlike.push(format!("the baseline is of another {name} (hash differs){hint}"));
        }
    }
    if out.unlike.is_empty() {
        out.missing = old.metrics.keys().filter(|n| !new.metrics.contains_key(*n)).cloned().collect();
        out.added = new.metrics.keys().filter(|n| !old.metrics.contains_key(*n)).cloned().collect();
        out.compared = new.metrics.len() - out.added.len();
        out.changes = changes(old, &new);
    }
    out
}

/// Metrics of both that moved beyond noise: Holm over all of them, once for worse and once for better.
pub(super) fn changes(old: &Lock, new: &Lock) -> Vec<Change> {
    let both: Vec<(&String, Entry, Entry)> =
        old.metrics.iter().filter_map(|(name, old)| Some((name, *old, *new.metrics.get(name)?))).collect();
    let mut out: Vec<(f64, Change)> = Vec::new();
    for is_worse in [true, false] {
        let z: Vec<f64> =
            both.iter().map(|(_, old, new)| moved(old, new) * if is_worse { 1.0 } else { -1.0 }).collect();
        let p: Vec<f64> = z.iter().map(|z| stats::student_tail(*z, NORMAL)).collect();
        let rejected = stats::holm(&p, DELTA);
        for (((name, old, new), z), _) in both.iter().zip(z).zip(rejected).filter(|(_, is)| *is) {
            out.push((z, Change { name: (*name).clone(), old: *old, new: *new, is_worse }));
        }
    }
    out.sort_by(|a, b| b.1.is_worse.cmp(&a.1.is_worse).then(b.0.total_cmp(&a.0)).then(a.1.name.cmp(&b.1.name)));
    out.into_iter().map(|(_, change)| change).collect()
}

/// Chance of one false change among all metrics.
const DELTA: f64 = 1e-3;

/// How many standard errors of the two the new value lies over the old.
fn moved(old: &Entry, new: &Entry) -> f64 {
    if new.value.is_nan() {
        return if old.value.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if old.value.is_nan() {
        return f64::NEG_INFINITY;
    }
    let (by, error) = (new.value - old.value, old.error().hypot(new.error()));
    if by == 0.0 || error.is_nan() { 0.0 } else { by / error }
}

impl Comparison {
    /// The baseline's value of a metric.
    pub fn old(&self, name: &str) -> Option<f64> {
        self.lock.metrics.get(name).map(|entry| entry.value)
    }

    /// What bears on the verdict.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut out: Vec<Finding> =
            self.unlike.iter().map(|why| Finding::new(Verdict::Unproven, why.clone())).collect();
        let mut some = |verdict, names: Vec<String>, what: &str| {
            let more = names.len().saturating_sub(NAMED);
            let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
            if !names.is_empty() {
                let reason = format!("{what}: {}{rest}", names[..names.len().min(NAMED)].join("; "));
                out.push(Finding::new(verdict, reason));
            }
        };
        some(Verdict::Unproven, self.missing.clone(), "the baseline has what this run lacks");
        for (verdict, is_worse, what) in [
            (Verdict::Regressed, true, "worse than the baseline"),
            (Verdict::Improved, false, "better than the baseline, which asks for a new one"),
        ] {
            let of_kind = self.changes.iter().filter(|c| c.is_worse == is_worse);
            some(verdict, of_kind.map(|c| format!("{} ({c})", c.name)).collect(), what);
        }
        out
    }
}
