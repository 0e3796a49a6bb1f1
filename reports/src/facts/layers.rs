//! Layer, op, tap: who injected what, and how near to its tolerance it is.

use std::collections::BTreeMap;

use karat_bundle::{Bundle, TapRow, Verdict};

/// One tap of one layer over all sequences, phases and patch sets.
pub(crate) struct Tap<'a> {
    /// The judged row nearest to its tolerance; the first row where none is judged.
    pub(crate) worst: &'a TapRow,
    /// Rows.
    pub(crate) rows: u64,
    /// Rows over tolerance.
    pub(crate) failing: u64,
    /// Rows that prove nothing.
    pub(crate) unproven: u64,
}

/// One layer.
pub(crate) struct Layer<'a> {
    /// Number, or embed, head, mtp.N.
    pub(crate) name: &'a str,
    /// What leaves the layer under the last patch set: the row with the largest injected error.
    pub(crate) out: Option<&'a TapRow>,
    /// Its taps in op order.
    pub(crate) taps: Vec<Tap<'a>>,
    /// Rows over tolerance.
    pub(crate) failing: u64,
}

impl<'a> Layer<'a> {
    /// Predicted and allowed, where the unit of the gate is that of inherited and injected errors.
    pub(crate) fn band(&self) -> Option<(f64, f64)> {
        let row = self.out.filter(|r| r.gate == "rel_l2")?;
        Some((row.predicted?, row.tolerance?))
    }

    /// Golden's own noise, in the same unit.
    pub(crate) fn floor(&self) -> Option<f64> {
        self.out.filter(|r| r.gate == "rel_l2")?.floor
    }

    /// The verdict: fail when one row does, otherwise that of the row nearest to its tolerance.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        if self.failing > 0 { Some(Verdict::Fail) } else { self.worst().and_then(|r| r.verdict) }
    }

    /// The row nearest to its tolerance.
    pub(crate) fn worst(&self) -> Option<&'a TapRow> {
        let judged = self.taps.iter().map(|t| t.worst).filter(|r| r.verdict.is_some());
        judged.reduce(|a, b| if nearness(a) >= nearness(b) { a } else { b })
    }
}

/// Value over tolerance. Not a number counts as infinite; a count of flips that must be zero and is, as nothing.
pub(crate) fn nearness(row: &TapRow) -> f64 {
    match (row.value, row.tolerance) {
        _ if row.nonfinite > 0 => f64::INFINITY,
        (Some(value), _) if value.is_nan() => f64::INFINITY,
        (Some(value), Some(tolerance)) if tolerance > 0.0 => value / tolerance,
        (Some(value), Some(_)) if value > 0.0 => f64::INFINITY,
        _ => 0.0,
    }
}

/// `prefill`, `decode` or as the bundle has it.
pub(crate) fn phase_name(row: &TapRow) -> &str {
    if row.phase.is_empty() { "any phase" } else { &row.phase }
}

/// All layers in op order.
pub(crate) fn layers<'a>(bundle: &'a Bundle, last_set: Option<&str>) -> Vec<Layer<'a>> {
    let mut order: BTreeMap<&str, u64> = BTreeMap::new();
    let mut taps: BTreeMap<&str, BTreeMap<(u64, &str, &str), Tap<'a>>> = BTreeMap::new();
    let mut outs: BTreeMap<&str, &'a TapRow> = BTreeMap::new();
    for row in &bundle.taps {
        let first = order.entry(&row.layer).or_insert(row.order);
        *first = (*first).min(row.order);
        // The parts of a tap are other looks at the same error; those that are judged count.
        if row.part.is_empty() || row.verdict.is_some() {
            add(taps.entry(&row.layer).or_default().entry((row.order, &row.tap, &row.part)), row);
        }
        if Some(row.patch_set.as_str()) == last_set && row.part.is_empty() && leaves(row) {
            let out = outs.entry(&row.layer).or_insert(row);
            if row.order > out.order || (row.order == out.order && row.injected > out.injected) {
                *out = row;
            }
        }
    }
    let mut names: Vec<(u64, &str)> = order.into_iter().map(|(name, order)| (order, name)).collect();
    names.sort_unstable();
    let layer = |(_, name): (u64, &'a str)| {
        let taps: Vec<Tap<'a>> = taps.remove(name).unwrap_or_default().into_values().collect();
        let failing = taps.iter().map(|t| t.failing).sum();
        Layer { name, out: outs.get(name).copied(), taps, failing }
    };
    names.into_iter().map(layer).collect()
}

fn add<'a, K: Ord>(entry: std::collections::btree_map::Entry<'_, K, Tap<'a>>, row: &'a TapRow) {
    let tap = entry.or_insert(Tap { worst: row, rows: 0, failing: 0, unproven: 0 });
    tap.rows += 1;
    tap.failing += u64::from(row.verdict == Some(Verdict::Fail));
    tap.unproven += u64::from(row.verdict == Some(Verdict::Unproven));
    if (row.verdict.is_some(), nearness(row)) > (tap.worst.verdict.is_some(), nearness(tap.worst)) {
        tap.worst = row;
    }
}

/// True for what a layer hands on.
fn leaves(row: &TapRow) -> bool {
    matches!(row.tap.as_str(), "out" | "logits" | "embed")
}
