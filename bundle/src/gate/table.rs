//! One line a patch set: its verdict, and what is nearest to a limit.

use crate::judge::first_bad::ratio;
use crate::judge::limits::{Limits, patch_sets};
use crate::judge::words::place;
use crate::lock::{Comparison, tap_name};
use crate::policy::patch_of;
use crate::{Bundle, TapRow, Verdict};

/// A patch set in the verdict table.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The patch set.
    pub patch_set: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// What is nearest to its limit, or furthest over it.
    pub limiting: String,
    /// Its value.
    pub value: Option<f64>,
    /// Its limit.
    pub limit: Option<f64>,
    /// The baseline's value of the same metric.
    pub baseline: Option<f64>,
}

/// What competes for being the limiting metric.
struct Rival {
    used: f64,
    name: String,
    value: f64,
    limit: f64,
    in_lock: String,
}

pub(super) fn lines(bundle: &Bundle, limits: &Limits, baseline: Option<&Comparison>) -> Vec<Line> {
    let evidence = bundle.evidence();
    let mut sets = patch_sets(&evidence);
    // A patch that ran nowhere has no row of its own there.
    let listed: Vec<String> = bundle.patches.iter().map(|p| format!("stock+{}", p.patch)).collect();
    for set in &listed {
        if !sets.contains(&set.as_str()) {
            sets.push(set);
        }
    }
    sets.into_iter().map(|set| line(bundle, limits, baseline, set)).collect()
}

fn line(bundle: &Bundle, limits: &Limits, baseline: Option<&Comparison>, set: &str) -> Line {
    let policy = &bundle.run.policy;
    let covered = |row: &TapRow| policy.allow.iter().any(|allow| allow.covers_tap(row));
    let rows = || bundle.taps.iter().filter(|r| r.patch_set == set && r.verdict.is_some());
    let of_row = |row: &TapRow| Rival {
        used: ratio(row, policy).max(0.0),
        name: format!("{}, {}", place(&row.layer, &row.tap), row.phase),
        value: row.value.unwrap_or(f64::NAN),
        limit: row.tolerance.unwrap_or(f64::NAN) * policy.scale(row),
        in_lock: tap_name(row),
    };
    let of_set = || limits.judged.iter().filter(|j| j.patch_set == set);
    let of_limit = |j: &crate::judge::limits::Judged| Rival {
        used: j.used(),
        name: j.limit.clone(),
        value: j.value,
        limit: j.bound,
        in_lock: format!("limit/{}/{set}", j.limit),
    };
    // Counts that must be zero and are have a limit of 0 and use none of it.
    let zero = |row: &&TapRow| row.value.is_some_and(|v| v <= 0.0);
    let rivals = rows().filter(|r| !zero(r) && !covered(r)).map(of_row);
    let rivals = rivals.chain(of_set().filter(|j| !j.allowed).map(of_limit));
    let worst = rivals.reduce(|a, b| if a.used.total_cmp(&b.used).is_ge() { a } else { b });
    let mut verdicts: Vec<Verdict> = rows().filter(|r| !covered(r)).filter_map(|r| r.verdict).collect();
    verdicts.extend(of_set().map(|j| if j.allowed { Verdict::Pass } else { j.verdict }));
    verdicts.extend(bundle.patches.iter().filter(|p| p.patch == patch_of(set)).filter_map(|p| p.verdict));
    Line {
        patch_set: set.to_string(),
        verdict: verdicts.into_iter().min().unwrap_or(Verdict::Unproven),
        limiting: worst.as_ref().map_or_else(String::new, |w| w.name.clone()),
        value: worst.as_ref().map(|w| w.value),
        limit: worst.as_ref().map(|w| w.limit),
        baseline: worst.and_then(|w| baseline?.old(&w.in_lock)),
    }
}
