//! The limits of a policy against the tables: which are kept, which are broken for certain, which show nothing.
//!
//! A mean (KL, flips, answers) has a sampling error, so breaking its limit is a test: one-sided, and over all such limits
//! of the run together (Holm), so that a good run fails by chance with probability `delta` at most.

mod recall;
mod tokens;

use crate::judge::stats;
use crate::policy::{Limit, Metric, Policy, Table, patch_of};
use crate::{Evidence, Finding, Verdict};

/// What one limit says of one patch set.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The limit's name.
    pub limit: String,
    /// What it bounds.
    pub metric: &'static str,
    /// Of which patch set.
    pub patch_set: String,
    /// The metric's value.
    pub value: f64,
    /// The limit.
    pub bound: f64,
    /// One-sided 95 % bound of the value, where it is a sample's.
    pub upper: Option<f64>,
    /// Rows, positions or answers behind it.
    pub n: u64,
    /// Chance of such a value or a worse one if the limit were just kept, where it is a sample's.
    pub p: Option<f64>,
    /// Standard error, where it is a sample's.
    pub error: Option<f64>,
    /// Smallest excess over the limit that this run would have found four times in five.
    pub detectable: Option<f64>,
    /// What the limit alone leads to.
    pub verdict: Verdict,
    /// True when an allowance covers the failure.
    pub allowed: bool,
    /// Where the worst row stands, for metrics of rows.
    pub place: String,
    /// More about it for people.
    pub detail: String,
}

/// All limits of a policy on a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// One entry a limit and patch set.
    pub judged: Vec<Judged>,
    /// Limits that met no row, by name, with what they look for.
    pub idle: Vec<(String, String)>,
    /// Tests that share `delta`.
    pub tests: usize,
}

/// A value with what its sample says about it.
pub(super) struct Sample {
    pub(super) value: f64,
    pub(super) upper: Option<f64>,
    pub(super) n: u64,
    pub(super) p: Option<f64>,
    /// Standard error and degrees of freedom.
    pub(super) spread: Option<(f64, f64)>,
    pub(super) place: String,
    pub(super) detail: String,
}

impl Sample {
    /// A number that is what it is.
    fn exact(value: f64, n: u64, place: String) -> Self {
        Self { value, upper: None, n, p: None, spread: None, place, detail: String::new() }
    }
}

/// Every limit of the policy against the evidence.
pub fn limits(evidence: &Evidence<'_>, policy: &Policy) -> Limits {
    let sets = patch_sets(evidence);
    let mut out = Limits::default();
    let mut found: Vec<(&Limit, String, Sample)> = Vec::new();
    let margin = policy.recall_margin.map(recall::margin);
    for limit in policy.limit.iter().chain(&margin) {
        let before = found.len();
        for set in sets.iter().copied().filter(|set| limit.on.fits_set(set)) {
            if limit.metric.is_added() && set == "stock" && limit.name != recall::MARGIN {
                continue;
            }
            found.extend(value(evidence, limit, set).map(|v| (limit, set.to_string(), v)));
        }
        if found.len() == before && !limit.if_present {
            let on = limit.on.to_string();
            let on = if on.is_empty() { String::new() } else { format!(" where {on}") };
            out.idle.push((limit.name.clone(), format!("{}{on}", limit.metric.name())));
        }
    }
    let p: Vec<f64> = found.iter().filter_map(|(.., v)| v.p).collect();
    out.tests = p.len();
    let mut rejected = stats::holm(&p, policy.delta).into_iter();
    for (limit, set, v) in found {
        let is_rejected = v.p.and_then(|_| rejected.next());
        out.judged.push(judged(limit, set, v, is_rejected, policy, p.len()));
    }
    out
}

/// Patch sets of the tables in the order in which they come.
pub(crate) fn patch_sets<'a>(evidence: &Evidence<'a>) -> Vec<&'a str> {
    let mut sets: Vec<&str> = Vec::new();
    let taps = evidence.taps.iter().map(|r| r.patch_set.as_str());
    let tokens = evidence.tokens.iter().map(|r| r.patch_set.as_str());
    for set in taps.chain(tokens).chain(evidence.recall.iter().map(|r| r.patch_set.as_str())) {
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    sets
}

fn value(evidence: &Evidence<'_>, limit: &Limit, set: &str) -> Option<Sample> {
    match limit.metric.table() {
        Table::Taps => {
            let rows = evidence.taps.iter().filter(|r| r.patch_set == set && limit.on.fits_tap(r));
            let values = rows.filter_map(|r| Some((r, limit.metric.of_tap(r)?)));
            let worst = |a: &(_, f64), b: &(_, f64)| a.1.is_nan() || a.1 >= b.1;
            let mut n = 0;
            let (row, value) = values.inspect(|_| n += 1).reduce(|a, b| if worst(&a, &b) { a } else { b })?;
            let place = super::words::place(&row.layer, &row.tap);
            Some(Sample::exact(value, n, format!("{place}, {}", row.phase)))
        }
        Table::Tokens => tokens::value(evidence.tokens, limit, set),
        Table::Recall => recall::value(evidence.recall, limit, set),
        Table::Patches => {
            let row = evidence.patches.iter().find(|p| p.patch == patch_of(set))?;
            Some(Sample::exact(limit.metric.of_patch(row)?, 1, String::new()))
        }
    }
}

fn judged(limit: &Limit, set: String, v: Sample, rejected: Option<bool>, policy: &Policy, tests: usize) -> Judged {
    let bound = limit.bound();
    let broken = v.value.is_nan() || if limit.min.is_some() { v.value < bound } else { v.value > bound };
    let verdict = if rejected.unwrap_or(broken) || v.value.is_nan() && v.n > 0 {
        Verdict::Fail
    } else if limit.prove && !v.upper.is_none_or(|upper| upper <= bound) {
        Verdict::Unproven
    } else {
        Verdict::Pass
    };
    let covers = |allow: &&crate::policy::Allowance| allow.covers_limit(&limit.name, &set);
    let level = policy.delta / tests.max(1) as f64;
    let detectable = v.spread.map(|(error, degrees)| {
        error * (stats::student_quantile(level, degrees) + stats::student_quantile(0.2, degrees))
    });
    Judged {
        limit: limit.name.clone(),
        metric: limit.metric.name(),
        value: v.value,
        bound,
        upper: v.upper,
        n: v.n,
        p: v.p,
        error: v.spread.map(|(error, _)| error),
        detectable,
        verdict,
        allowed: verdict == Verdict::Fail && policy.allow.iter().any(|a| covers(&a)),
        place: v.place,
        detail: v.detail,
        patch_set: set,
    }
}

impl Limits {
    /// What bears on the verdict. `whole` is false for one part of a partitioned run: what is missing may be in another.
    pub(super) fn findings(&self, policy: &Policy, whole: bool) -> Vec<Finding> {
        let mut out = Vec::new();
        for j in self.judged.iter().filter(|j| !j.allowed && j.verdict != Verdict::Pass) {
            out.push(Finding::new(j.verdict, j.sentence(policy)));
        }
        for (limit, what) in self.idle.iter().filter(|_| whole) {
            let reason = format!("limit {limit} judged nothing: this run has no {what}");
            out.push(Finding::new(Verdict::Unproven, reason));
        }
        out
    }
}

impl Judged {
    /// One sentence on why it fails or is not proved.
    pub fn sentence(&self, policy: &Policy) -> String {
        if self.limit == recall::MARGIN {
            return recall::sentence(self);
        }
        let Self { limit, metric, patch_set, value, bound, n, .. } = self;
        let place = if self.place.is_empty() { String::new() } else { format!(" at {}", self.place) };
        let at = format!("{patch_set}: limit {limit}: {metric} is {value:.3e}{place}, {bound:.3e} may be");
        match (self.verdict, self.p, self.upper) {
            (Verdict::Fail, Some(p), _) => {
                format!("{at} (of {n}; by chance {p:.1e}, over all limits {:.0e} may be)", policy.delta)
            }
            (Verdict::Unproven, _, Some(upper)) => {
                format!("{at}; of {n}, up to {upper:.3e} can't be ruled out")
            }
            _ => at,
        }
    }

    /// Value over limit: how near it is; over 1 when it is broken.
    pub fn used(&self) -> f64 {
        let ratio =
            if self.metric == Metric::Speedup.name() { self.bound / self.value } else { self.value / self.bound };
        if ratio.is_nan() { f64::INFINITY } else { ratio }
    }
}

#[cfg(test)]
mod tests;
