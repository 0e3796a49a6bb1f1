//! Rows of patches.csv over parts, and what is searched for in the first lost conversations only.

use std::collections::{BTreeMap, BTreeSet};

use crate::judge::recall::{SEARCHED, candidate_is_right, counts, golden_is_right};
use crate::{PatchRow, RecallRow};

/// The rows of all parts. What follows from other tables is filled in later.
pub(super) fn combine<'a>(parts: impl Iterator<Item = &'a [PatchRow]>) -> Vec<PatchRow> {
    let mut out: Vec<PatchRow> = Vec::new();
    for row in parts.flatten() {
        match out.iter_mut().find(|known| known.patch == row.patch) {
            Some(known) => add(known, row),
            None => out.push(row.clone()),
        }
    }
    out
}

fn add(to: &mut PatchRow, row: &PatchRow) {
    to.state = state(to, row);
    to.calls_prefill += row.calls_prefill;
    to.calls_decode += row.calls_decode;
    to.largest_prefill = to.largest_prefill.max(row.largest_prefill);
    to.measured_error = worse(to.measured_error, row.measured_error);
    to.speedup = match (to.speedup, row.speedup) {
        // The slower of two counts: a speed-up that only one part has is none.
        (Some(a), Some(b)) => Some(if a.is_nan() || a <= b { a } else { b }),
        (a, b) => a.or(b),
    };
}

/// A part in which the patch ran says more than one in which only the effect probe did; that it changed something
/// anywhere is enough.
fn state(a: &PatchRow, b: &PatchRow) -> String {
    let ran = |row: &PatchRow| row.calls_prefill + row.calls_decode > 0;
    // Not active is what the probe found (the same in each part), else what the rows show: inert before unknown.
    let rank = |row: &PatchRow| match row.state.as_str() {
        "active" => 4,
        "lossless" => 3,
        "inert" => 2,
        "unknown" => 1,
        _ => 5,
    };
    let best = match (ran(a), ran(b)) {
        (true, false) => a,
        (false, true) => b,
        _ if rank(b) > rank(a) => b,
        _ => a,
    };
    best.state.clone()
}

/// The larger; a NaN must not vanish in a maximum.
fn worse(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a.is_nan() || a > b { a } else { b }),
        (a, b) => a.or(b),
    }
}

/// A run searches the first [`SEARCHED`] conversations that a patch set loses for the layer that loses them; each part did
/// so for its own. The rows are in the order of `conversations`.
pub(super) fn search_limit(rows: &mut [RecallRow], conversations: &[(String, String)]) {
    let place: BTreeMap<(&str, &str), usize> = conversations
        .iter()
        .enumerate()
        .map(|(i, (scenario, sequence))| ((scenario.as_str(), sequence.as_str()), i))
        .collect();
    let mut lost: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for row in rows.iter_mut() {
        let at = place.get(&(row.scenario.as_str(), row.conversation.as_str())).copied().unwrap_or(usize::MAX);
        let is_lost = counts(row) && golden_is_right(row) && !candidate_is_right(row);
        let found = lost.entry(row.patch_set.clone()).or_default();
        if is_lost && found.len() < SEARCHED {
            found.insert(at);
        }
        if !found.contains(&at) {
            row.lost_at_layer = None;
        }
    }
}
