//! What a suite's rows say of a server beside what any bundle's rows do: the conversation is the unit, whatever happened in it.

use std::collections::BTreeMap;

use karat_bundle::judge::recall::{Counts, bounds, candidate_is_right, counts, golden_is_right, paired};
use karat_bundle::{Finding, RecallRow, Verdict};

use crate::recall::Found;

/// Chance that `k` or more of independent events happen, which have these chances.
pub(crate) fn at_least(k: usize, chances: &[f64]) -> f64 {
    // By how many happened so far.
    let mut of = vec![1.0];
    for p in chances {
        of.push(0.0);
        for i in (0..of.len()).rev() {
            of[i] = of[i] * (1.0 - p) + if i > 0 { of[i - 1] * p } else { 0.0 };
        }
    }
    of.iter().skip(k).sum::<f64>().min(1.0)
}

/// Chance of losses in so many conversations, or more, if each answer were lost with chance `margin` at most. A conversation
/// of n answers loses one with chance n·margin at most, however its answers hang together.
fn by_chance(conversations: &[Counts], margin: f64) -> f64 {
    let chances: Vec<f64> = conversations.iter().map(|c| (c.answers as f64 * margin).min(1.0)).collect();
    at_least(conversations.iter().filter(|c| c.lost > 0).count(), &chances)
}

/// Answers of each conversation that the control gives.
fn conversations(rows: &[RecallRow]) -> Vec<Counts> {
    let mut by: BTreeMap<(&str, &str), Counts> = BTreeMap::new();
    for row in rows.iter().filter(|r| counts(r) && golden_is_right(r)) {
        let one = by.entry((&row.scenario, &row.conversation)).or_default();
        one.answers += 1;
        one.lost += u64::from(!candidate_is_right(row));
    }
    by.into_values().collect()
}

/// What no cache can have lost: a failure where answers are given with what told them beside the question, and not behind the
/// whole conversation, of which the server says nothing; in more conversations than chance explains
/// (`delta`) if each answer were lost with chance `margin` at most.
pub fn forgotten(found: &Found, margin: f64, delta: f64) -> Option<Finding> {
    let name = found.rows.first().map_or("endpoint", |r| r.patch_set.as_str());
    let mut by: BTreeMap<(&str, &str), Counts> = BTreeMap::new();
    for (row, forgotten) in found.rows.iter().zip(&found.forgotten).filter(|(row, _)| counts(row)) {
        if *forgotten || golden_is_right(row) {
            let one = by.entry((&row.scenario, &row.conversation)).or_default();
            one.answers += 1;
            one.lost += u64::from(*forgotten);
        }
    }
    let of: Vec<Counts> = by.into_values().collect();
    let (answers, lost): (u64, u64) = of.iter().fold((0, 0), |(a, l), c| (a + c.answers, l + c.lost));
    let chance = by_chance(&of, margin);
    (lost > 0 && chance <= delta).then(|| {
        let hit = of.iter().filter(|c| c.lost > 0).count();
        Finding::new(
            Verdict::Fail,
            format!(
                "{name}: {lost} of {answers} answers are given when what told them stands beside the question, and not from the \
                 whole conversation, cold either, of which nothing is said: it does not reach the model, or the model can't use \
                 it (in {hit} of {} conversations, by chance {chance:.0e})",
                of.len()
            ),
        )
    })
}

/// Findings on what was lost: a failure where losses lie in more conversations than chance explains (`delta`) if each answer
/// were lost with chance `margin` at most, and `unproven` where the control gives too few answers to tell.
pub fn lost(found: &Found, margin: f64, delta: f64) -> Vec<Finding> {
    let name = found.rows.first().map_or("endpoint", |r| r.patch_set.as_str());
    let of = conversations(&found.rows);
    let (answers, lost): (u64, u64) = of.iter().fold((0, 0), |(a, l), c| (a + c.answers, l + c.lost));
    let mut out = Vec::new();
    let chance = by_chance(&of, margin);
    if lost > 0 && chance <= delta {
        let hit = of.iter().filter(|c| c.lost > 0).count();
        let behind: Vec<&RecallRow> =
            found.rows.iter().filter(|r| counts(r) && golden_is_right(r) && !candidate_is_right(r)).collect();
        let abort = behind.iter().filter(|r| r.history == "after-abort").count();
        let first = behind.first().map_or(String::new(), |r| {
            let said: String = r.said.chars().take(60).collect();
            format!(", first {:?} of {} (said {said:?})", r.expected, r.conversation)
        });
        out.push(Finding::new(
            Verdict::Fail,
            format!(
                "{name}: {lost} of {answers} answers that the control gives are lost, in {hit} of {} conversations, {abort} of them \
                 next behind a stream that was closed (by chance {chance:.0e}){first}",
                of.len()
            ),
        ));
    }
    // Answers that the control doesn't give either can't be lost: they must not make the bound look narrower than it is.
    let proved = bounds(&of);
    let all = bounds(&paired(&found.rows));
    if proved.answers < all.answers && (proved.upper.is_nan() || proved.upper > margin) {
        let upper = if proved.upper.is_nan() { 1.0 } else { proved.upper };
        out.push(Finding::new(
            Verdict::Unproven,
            format!(
                "{name}: only {} of {} answers are given by the control: a loss of up to {:.2} % of those can't be ruled out",
                proved.answers,
                all.answers,
                100.0 * upper
            ),
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_by_hand() {
        // 2 or 3 of 3 with a half each: 4 of 8 outcomes.
        assert!((at_least(2, &[0.5; 3]) - 0.5).abs() < 1e-12);
        assert_eq!((at_least(0, &[0.1; 3]), at_least(1, &[])), (1.0, 0.0));
        // One or more of chances 0.1 and 0.5: 1 - 0.9·0.5; both: 0.05.
        assert!((at_least(1, &[0.1, 0.5]) - 0.55).abs() < 1e-12 && (at_least(2, &[0.1, 0.5]) - 0.05).abs() < 1e-12);
        let counts = |answers, lost| Counts { answers, lost, gained: 0 };
        // Two conversations of 10 and 5 answers, both hit, 1 % an answer: 0.1 times 0.05 at most.
        assert!((by_chance(&[counts(10, 3), counts(5, 1)], 0.01) - 0.005).abs() < 1e-12);
        assert_eq!(by_chance(&[counts(10, 0)], 0.01), 1.0);
        assert_eq!(by_chance(&[], 0.01), 1.0);
    }
}
