//! Which row is the first bad one, and which places are suspects.

use std::collections::BTreeMap;

use crate::{FirstBad, Policy, Suspect, TapRow};

const SUSPECTS: usize = 5;

/// The failing row that comes first in op order. At one tap a row of the whole tap stands before rows of its parts,
/// and the worst of several (sequences, phases, patch sets) before the others.
pub(super) fn first(failing: &[&TapRow], policy: &Policy) -> Option<FirstBad> {
    let place = |row: &TapRow| (row.order, !row.part.is_empty());
    let earliest = failing.iter().map(|row| place(row)).min()?;
    let row =
        failing.iter().filter(|row| place(row) == earliest).fold(None, |best: Option<&&TapRow>, row| match best {
            Some(b) if ratio(b, policy) >= ratio(row, policy) => Some(b),
            _ => Some(row),
        })?;
    Some(FirstBad {
        scenario: row.scenario.clone(),
        sequence: row.sequence.clone(),
        history: row.history.clone(),
        phase: row.phase.clone(),
        patch_set: row.patch_set.clone(),
        layer: row.layer.clone(),
        op: row.op.clone(),
        tap: row.tap.clone(),
        part: row.part.clone(),
        position: row.max_abs_position,
        gate: row.gate.clone(),
        injected: row.value.unwrap_or(f64::NAN),
        tolerance: row.tolerance.unwrap_or(f64::NAN) * policy.scale(row),
    })
}

/// The first failing tap of each layer and patch set (what follows it in the layer follows from it), the worst first.
pub(super) fn suspects(failing: &[&TapRow], policy: &Policy) -> Vec<Suspect> {
    let mut first: BTreeMap<(&str, &str), &TapRow> = BTreeMap::new();
    for row in failing {
        let best = first.entry((&row.patch_set, &row.layer)).or_insert(row);
        if (row.order, -ratio(row, policy)) < (best.order, -ratio(best, policy)) {
            *best = row;
        }
    }
    let mut rows: Vec<&TapRow> = first.into_values().collect();
    rows.sort_by(|a, b| ratio(b, policy).total_cmp(&ratio(a, policy)).then(a.order.cmp(&b.order)));
    rows.truncate(SUSPECTS);
    let suspect = |row: &TapRow| Suspect {
        patch_set: row.patch_set.clone(),
        layer: row.layer.clone(),
        op: row.op.clone(),
        tap: row.tap.clone(),
        over_tolerance: ratio(row, policy),
    };
    rows.into_iter().map(suspect).collect()
}

/// Value over tolerance; a value that is no number is the worst.
pub(crate) fn ratio(row: &TapRow, policy: &Policy) -> f64 {
    let (Some(value), Some(tolerance)) = (row.value, row.tolerance) else { return 0.0 };
    let ratio = value / (tolerance * policy.scale(row));
    if row.nonfinite > 0 || ratio.is_nan() { f64::INFINITY } else { ratio }
}
