//! What recall says about a run: answers lost and gained against golden, with bounds, and conversations that were lost.

mod bounds;
pub mod sequential;

use std::collections::BTreeMap;

use self::sequential::Sequential;
use crate::{Finding, Policy, RecallRow, Verdict};

pub use bounds::{Bounds, Counts, bounds, can_rule_out, p_value};

/// So many conversations of a patch set are searched for the layer that loses them.
pub const SEARCHED: usize = 8;

/// An answer that golden holds by so many nats is not lost to rounding.
const HELD: f64 = 4.0;

/// True when the answer counts: a truncated one is neither right nor lost.
pub fn counts(row: &RecallRow) -> bool {
    row.symptom != "truncated"
}

/// True when golden gives the whole answer.
pub fn golden_is_right(row: &RecallRow) -> bool {
    row.matched_golden == row.answer_tokens
}

/// True when the candidate gives the whole answer.
pub fn candidate_is_right(row: &RecallRow) -> bool {
    row.matched_candidate == row.answer_tokens
}

/// Answers lost and gained by each conversation of one patch set.
pub fn paired<'a>(rows: impl IntoIterator<Item = &'a RecallRow>) -> Vec<Counts> {
    let mut by: BTreeMap<(&str, &str, &str), Counts> = BTreeMap::new();
    for row in rows.into_iter().filter(|r| counts(r)) {
        let one = by.entry((&row.scenario, &row.conversation, &row.history)).or_default();
        one.answers += 1;
        one.lost += u64::from(golden_is_right(row) && !candidate_is_right(row));
        one.gained += u64::from(!golden_is_right(row) && candidate_is_right(row));
    }
    by.into_values().collect()
}

/// The same in the order in which the conversations ran.
pub fn in_order<'a>(rows: impl IntoIterator<Item = &'a RecallRow>) -> Vec<Counts> {
    let rows: Vec<&RecallRow> = rows.into_iter().collect();
    let name = |r: &'a RecallRow| (&r.scenario, &r.conversation, &r.history);
    let mut order = Vec::new();
    let mut by: BTreeMap<_, Vec<&RecallRow>> = BTreeMap::new();
    for row in rows {
        let of = by.entry(name(row)).or_default();
        if of.is_empty() {
            order.push(name(row));
        }
        of.push(row);
    }
    order.iter().flat_map(|name| paired(by.get(name).into_iter().flatten().copied())).collect()
}

/// The largest loss that the answers can't rule out, by the test that the policy has for its margin.
pub fn upper(rows: &[&RecallRow], policy: &Policy) -> f64 {
    match policy.recall_margin.filter(|_| policy.recall_sequential) {
        Some(margin) => Sequential::of(&in_order(rows.iter().copied()), margin, policy.delta).upper,
        None => bounds(&paired(rows.iter().copied())).upper,
    }
}

/// Patch sets in the order of their first row.
pub fn patch_sets(rows: &[RecallRow]) -> Vec<&str> {
    let mut sets: Vec<&str> = Vec::new();
    for row in rows {
        if !sets.contains(&row.patch_set.as_str()) {
            sets.push(&row.patch_set);
        }
    }
    sets
}

/// What bears on the verdict beside the margin: lost conversations, and answers that were held and are lost.
pub(super) fn findings(rows: &[RecallRow]) -> Vec<Finding> {
    let mut out = Vec::new();
    for set in patch_sets(rows) {
        let of_set: Vec<&RecallRow> = rows.iter().filter(|r| r.patch_set == set).collect();
        let forgot: Vec<&&RecallRow> = of_set.iter().filter(|r| r.symptom == "amnesia").collect();
        if let Some(first) = forgot.first() {
            let reason = format!(
                "{set}: {} of {} answers are those of a model that saw the last turn only (amnesia), first {}, question {}",
                forgot.len(),
                of_set.len(),
                first.conversation,
                first.question,
            );
            out.push(Finding::new(Verdict::Fail, reason));
        }
        // A free-running answer may be wrong in golden too, whatever its margin is when it is given.
        let lost = |r: &RecallRow| counts(r) && golden_is_right(r) && !candidate_is_right(r);
        let held = |r: &&&RecallRow| lost(r) && r.worst_margin_golden >= HELD;
        let broken: Vec<&&RecallRow> = of_set.iter().filter(held).collect();
        if let Some(first) = broken.iter().max_by(|a, b| a.worst_margin_golden.total_cmp(&b.worst_margin_golden)) {
            let layer = first.lost_at_layer.map(|l| format!(", lost at layer {l}")).unwrap_or_default();
            let reason = format!(
                "{set}: {} answers that golden holds by {HELD} nats or more are lost, first {:?} of {} (held by {:.1}{layer})",
                broken.len(),
                first.expected,
                first.conversation,
                first.worst_margin_golden,
            );
            out.push(Finding::new(Verdict::Fail, reason));
        }
    }
    out
}

#[cfg(test)]
mod tests;
