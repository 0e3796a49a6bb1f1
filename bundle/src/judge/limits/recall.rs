//! Answers lost: against stock (`recall_lost`), and against golden (the policy's margin).

use std::collections::BTreeMap;

use super::{Judged, Sample};
use crate::judge::recall::{Counts, bounds, candidate_is_right, counts, p_value, paired};
use crate::policy::{Limit, Metric, RECALL_MARGIN};
use crate::{RecallRow, Verdict};

pub(super) const MARGIN: &str = RECALL_MARGIN;

/// The policy's margin as a limit: (lost - gained) against golden, to be proved.
pub(super) fn margin(margin: f64) -> Limit {
    Limit { name: MARGIN.to_string(), metric: Metric::RecallLost, max: Some(margin), prove: true, ..Limit::default() }
}

pub(super) fn value(rows: &[RecallRow], limit: &Limit, set: &str) -> Option<Sample> {
    let of_set = rows.iter().filter(|r| r.patch_set == set);
    let conversations = match limit.name == MARGIN {
        true => {
            let all: Vec<&RecallRow> = of_set.collect();
            if all.is_empty() {
                return None;
            }
            paired(all)
        }
        false => against_stock(rows, of_set)?,
    };
    let b = bounds(&conversations);
    let detail = format!(
        "{} lost, {} gained of {} answers in {} conversations",
        b.lost,
        b.gained,
        b.answers,
        conversations.len()
    );
    let degrees = conversations.len().saturating_sub(1).max(1) as f64;
    Some(Sample {
        value: b.mean,
        // Without an answer the bound is no number, and proves nothing.
        upper: Some(b.upper),
        n: b.answers,
        p: (b.answers > 0).then(|| p_value(&conversations, limit.bound())),
        spread: (b.spread > 0.0).then_some((b.spread, degrees)),
        place: String::new(),
        detail,
    })
}

/// Answers that stock gives and the patch does not, and the reverse, by conversation.
fn against_stock<'a>(all: &'a [RecallRow], of_set: impl Iterator<Item = &'a RecallRow>) -> Option<Vec<Counts>> {
    let key = |r: &'a RecallRow| (&r.scenario, &r.conversation, &r.history, r.question);
    let stock: BTreeMap<_, &RecallRow> =
        all.iter().filter(|r| r.patch_set == "stock" && counts(r)).map(|r| (key(r), r)).collect();
    let mut by: BTreeMap<_, Counts> = BTreeMap::new();
    for row in of_set.filter(|r| counts(r)) {
        let Some(other) = stock.get(&key(row)) else { continue };
        let one = by.entry((&row.scenario, &row.conversation, &row.history)).or_default();
        let (before, now) = (candidate_is_right(other), candidate_is_right(row));
        one.answers += 1;
        one.lost += u64::from(before && !now);
        one.gained += u64::from(!before && now);
    }
    (!by.is_empty()).then(|| by.into_values().collect())
}

/// Why the margin is broken or not proved.
pub(super) fn sentence(j: &Judged) -> String {
    let percent = |v: f64| format!("{:.2} %", 100.0 * v);
    let (set, seen, margin) = (&j.patch_set, &j.detail, percent(j.bound));
    match j.verdict {
        Verdict::Fail => format!("{set}: {seen}: more than {margin} are lost, and more than chance explains"),
        _ => {
            let upper = percent(j.upper.unwrap_or(f64::NAN));
            format!("{set}: {seen}: a loss of up to {upper} can't be ruled out, {margin} may")
        }
    }
}
