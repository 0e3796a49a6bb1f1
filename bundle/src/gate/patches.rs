//! What the tables say of each patch: what it adds to stock, and its own verdict.

use std::collections::BTreeSet;

use crate::judge::limits::limits;
use crate::judge::{misapplied, not_exercised, recall};
use crate::{Bundle, Date, FlipRow, PatchRow, PatchUse, RecallRow, TapRow, TokenRow, Verdict, row_verdict};

/// Fills in the columns of patches.csv that follow from other tables, and `run.patches`.
pub(super) fn fill(bundle: &mut Bundle, today: Option<Date>) {
    let mut patches = bundle.patches.clone();
    let policy = &bundle.run.policy;
    let mut evidence = bundle.evidence();
    evidence.today = today;
    let limits = limits(&evidence, policy);
    let failing = |r: &&TapRow| {
        row_verdict(r, policy) == Some(Verdict::Fail) && !policy.allow.iter().any(|allow| allow.covers_tap(r))
    };
    let stock: BTreeSet<_> = bundle.taps.iter().filter(|r| r.patch_set == "stock").filter(failing).map(key).collect();
    for row in &mut patches {
        let set = format!("stock+{}", row.patch);
        row.added_kl = mean_kl(&bundle.tokens, &set).zip(mean_kl(&bundle.tokens, "stock")).map(|(a, b)| a - b);
        row.added_flips =
            (!bundle.tokens.is_empty()).then(|| flips(&bundle.flips, &set) - flips(&bundle.flips, "stock"));
        row.recall_lost = wrong(&bundle.recall, &set).zip(wrong(&bundle.recall, "stock")).map(|(a, b)| a - b);
        let of_set = || bundle.taps.iter().filter(|r| r.patch_set == set);
        let breaks = |set: &str, limit: &str| {
            let fails = |j: &&crate::judge::limits::Judged| j.verdict == Verdict::Fail && !j.allowed;
            limits.judged.iter().filter(fails).any(|j| j.patch_set == set && j.limit == limit)
        };
        let over = of_set().filter(failing).any(|r| !stock.contains(&key(r)))
            || limits.judged.iter().any(|j| breaks(&set, &j.limit) && !breaks("stock", &j.limit));
        row.verdict = Some(if over || misapplied(row).is_some() {
            Verdict::Fail
        } else if not_exercised(row).is_some() {
            Verdict::Unproven
        } else {
            Verdict::Pass
        });
    }
    bundle.run.patches = patches.iter().map(used).collect();
    bundle.patches = patches;
}

/// Names the place of a row, whatever the patch set.
fn key(row: &TapRow) -> (&str, &str, u64, &str, &str) {
    (&row.scenario, &row.sequence, row.order, &row.phase, &row.part)
}

fn used(patch: &PatchRow) -> PatchUse {
    PatchUse {
        patch: patch.patch.clone(),
        requested: true,
        observed_calls: patch.calls_prefill + patch.calls_decode,
        state: patch.state.clone(),
    }
}

fn mean_kl(tokens: &[TokenRow], set: &str) -> Option<f64> {
    let kl: Vec<f64> = tokens.iter().filter(|t| t.patch_set == set).map(|t| t.kl).collect();
    (!kl.is_empty()).then(|| kl.iter().sum::<f64>() / kl.len() as f64)
}

fn flips(flips: &[FlipRow], set: &str) -> i64 {
    flips.iter().filter(|f| f.kind == "argmax" && f.patch_set == set).count() as i64
}

/// Answers that the set does not give; `None` where nothing was asked.
fn wrong(rows: &[RecallRow], set: &str) -> Option<i64> {
    let of_set: Vec<&RecallRow> = rows.iter().filter(|r| r.patch_set == set && recall::counts(r)).collect();
    (!of_set.is_empty()).then(|| of_set.iter().filter(|r| !recall::candidate_is_right(r)).count() as i64)
}
