//! One flat csv of everything that was judged, for spreadsheets. The bundle's own tables have all the rest.

use karat_bundle::{Bundle, Verdict, history_verdict};

use crate::facts::{as_judged, gated, place};
use crate::text::cell;

/// Columns of [`csv`].
pub(crate) const COLUMNS: [&str; 13] = [
    "kind",
    "scenario",
    "sequence",
    "patch_set",
    "history",
    "phase",
    "layer",
    "place",
    "unit",
    "value",
    "predicted",
    "allowed",
    "verdict",
];

/// Everything that was judged: rows of taps, patches, limits and histories, in that order.
pub fn csv(bundle: &Bundle) -> String {
    let judged = gated(bundle).limits.judged;
    let bundle = &*as_judged(bundle);
    let mut out = COLUMNS.join(",") + "\n";
    let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:?}"));
    let mut line = |cells: [&str; 13]| {
        let cells: Vec<String> = cells.iter().map(|c| cell(c)).collect();
        out.push_str(&cells.join(","));
        out.push('\n');
    };
    for r in bundle.taps.iter().filter(|r| r.verdict.is_some()) {
        let part = if r.part.is_empty() { String::new() } else { format!("#{}", r.part) };
        let tap = format!("{}{part}", place(&r.layer, &r.tap));
        let (value, predicted, allowed) = (number(r.value), number(r.predicted), number(r.tolerance));
        let word = r.verdict.map_or("", Verdict::name);
        line([
            "tap",
            &r.scenario,
            &r.sequence,
            &r.patch_set,
            &r.history,
            &r.phase,
            &r.layer,
            &tap,
            &r.gate,
            &value,
            &predicted,
            &allowed,
            word,
        ]);
    }
    for p in &bundle.patches {
        let (measured, claimed) = (number(p.measured_error), number(Some(p.claimed_error)));
        let set = format!("stock+{}", p.patch);
        let word = p.verdict.map_or("", Verdict::name);
        line(["patch", "", "", &set, "", &p.phases, "", &p.patch, "rel_l2", &measured, &claimed, "", word]);
    }
    for j in judged {
        let (value, bound) = (number(Some(j.value)), number(Some(j.bound)));
        line(["limit", "", "", &j.patch_set, "", "", "", &j.limit, j.metric, &value, "", &bound, j.verdict.name()]);
    }
    for r in &bundle.histories {
        let Some(verdict) = history_verdict(r, &bundle.run.policy) else { continue };
        let at = format!("{}: {}", r.against, r.what);
        let (value, allowed) = (number(r.value), number(r.tolerance));
        line([
            "history",
            &r.scenario,
            &r.sequence,
            "",
            &r.history,
            "",
            &r.layer,
            &at,
            &r.gate,
            &value,
            "",
            &allowed,
            verdict.name(),
        ]);
    }
    out
}
