//! What the gate prints: verdict, one line a patch set, what could have been seen.

use std::path::Path;

use karat_bundle::Bundle;
use karat_bundle::gate::{Gated, Line};
use karat_bundle::lock::Comparison;
use serde_json::{Value, json as object};

use super::page;
use crate::output::{Style, json_number};

/// The gate's result for people.
pub(crate) fn text(bundle: &Bundle, gated: &Gated, note: Option<&str>, out: Option<&Path>, style: Style) -> String {
    let mut last = baseline(gated.baseline.as_ref());
    last.extend(note.map(str::to_owned));
    page(bundle, &[table(&gated.table, style), seen(bundle, gated, style), last], out, style)
}

fn short(value: Option<f64>) -> String {
    value.map_or("-".to_string(), |v| if v == 0.0 { "0".to_string() } else { format!("{v:.1e}") })
}

fn table(lines: &[Line], style: Style) -> Vec<String> {
    if lines.is_empty() {
        return Vec::new();
    }
    let name = lines.iter().map(|l| l.patch_set.chars().count() + 2).fold(18, usize::max).min(34);
    let metric = 34.min(lines.iter().map(|l| l.limiting.chars().count() + 2).fold(24, usize::max));
    let mut out = vec![style.bold(&format!(
        "{:<name$}{:<10}{:<metric$}{:>9}{:>9}{:>9}",
        "patch set", "verdict", "nearest to its limit", "value", "limit", "baseline"
    ))];
    for line in lines {
        let verdict = format!("{:<10}", line.verdict.name());
        out.push(format!(
            "{:<name$}{}{:<metric$}{:>9}{:>9}{:>9}",
            line.patch_set,
            style.verdict(line.verdict.exit_code(), &verdict),
            line.limiting,
            short(line.value),
            short(line.limit),
            short(line.baseline),
        ));
    }
    out
}

/// The smallest effects that the run could have seen.
fn seen(bundle: &Bundle, gated: &Gated, style: Style) -> Vec<String> {
    let seen = &gated.detectable;
    let mut out = vec![style.bold("smallest effect that this run could have seen")];
    for t in &seen.tensors {
        let (low, high) = (short(Some(t.tolerance.0)), short(Some(t.tolerance.1)));
        let floors = t.floors.map_or("floors not measured".to_string(), |f| format!("from {f:.0} floors on"));
        out.push(format!("  {:<24}{low} to {high} in {} rows, {floors}", t.unit, t.rows));
    }
    for (limit, n, found) in &seen.means {
        out.push(format!("  {limit:<24}{found:.1e}, four times in five, with {n} samples"));
    }
    if let Some((n, loss)) = seen.recall {
        out.push(format!("  {:<24}{n} answers rule out a loss of {:.1} % at best", "recall", 100.0 * loss));
    }
    let (tests, delta) = (gated.limits.tests, bundle.run.policy.delta);
    if tests > 0 {
        out.push(format!("{tests} tests on samples; a good run fails by chance with {delta:.0e} at most (Holm)"));
    }
    out
}

fn baseline(compared: Option<&Comparison>) -> Vec<String> {
    let Some(c) = compared else { return Vec::new() };
    let worse = c.changes.iter().filter(|c| c.is_worse).count();
    let better = c.changes.len() - worse;
    let new = if c.added.is_empty() { String::new() } else { format!(", {} not in it", c.added.len()) };
    vec![format!("baseline: {} metrics compared, {worse} worse, {better} better{new}", c.compared)]
}

/// The same for programs.
pub(crate) fn json(bundle: &Bundle, gated: &Gated) -> Value {
    let mut value = super::json(bundle);
    let Some(all) = value.as_object_mut() else { return value };
    let number = |v: Option<f64>| v.map(json_number);
    let line = |l: &Line| {
        object!({
            "patch_set": l.patch_set, "verdict": l.verdict.name(), "limiting": l.limiting, "value": number(l.value),
            "limit": number(l.limit), "baseline": number(l.baseline),
        })
    };
    let limits = gated.limits.judged.iter().map(|j| {
        object!({
            "limit": j.limit, "metric": j.metric, "patch_set": j.patch_set, "value": json_number(j.value),
            "bound": json_number(j.bound), "upper": number(j.upper), "n": j.n, "p": number(j.p),
            "detectable": number(j.detectable), "verdict": j.verdict.name(), "allowed": j.allowed, "place": j.place,
        })
    });
    let seen = &gated.detectable;
    let tensors = seen.tensors.iter().map(|t| {
        object!({
            "unit": t.unit, "rows": t.rows, "tightest": json_number(t.tolerance.0),
            "loosest": json_number(t.tolerance.1), "floors": number(t.floors),
        })
    });
    let means =
        seen.means.iter().map(|(limit, n, found)| object!({"limit": limit, "n": n, "found": json_number(*found)}));
    all.insert("table".to_string(), gated.table.iter().map(line).collect());
    all.insert("limits".to_string(), limits.collect());
    all.insert("tests".to_string(), object!({"number": gated.limits.tests, "delta": bundle.run.policy.delta}));
    all.insert(
        "detectable".to_string(),
        object!({
            "tensors": tensors.collect::<Vec<_>>(), "means": means.collect::<Vec<_>>(),
            "recall": seen.recall.map(|(n, loss)| object!({"answers": n, "loss": json_number(loss)})),
        }),
    );
    if let Some(c) = &gated.baseline {
        let changes = c.changes.iter().map(|c| {
            object!({
                "metric": c.name, "old": json_number(c.old.value), "new": json_number(c.new.value), "worse": c.is_worse,
            })
        });
        let compared = object!({
            "compared": c.compared, "changes": changes.collect::<Vec<_>>(), "missing": c.missing, "added": c.added,
        });
        all.insert("baseline".to_string(), compared);
    }
    value
}
