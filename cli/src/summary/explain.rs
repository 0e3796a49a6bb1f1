//! How the tolerance of a row of taps.csv came about.

use std::collections::BTreeMap;

use karat_bundle::{Bundle, DerivationRow, TapRow};
use serde_json::{Value, json};

use crate::output::{Style, json_number};

/// The tap as people name it.
pub(crate) fn name(row: &TapRow) -> String {
    match row.layer.as_str() {
        l if l.bytes().all(|b| b.is_ascii_digit()) => format!("layers.{l}.{}", row.tap),
        l if l.starts_with("mtp.") => format!("{l}.{}", row.tap),
        _ => row.tap.clone(),
    }
}

/// Judged rows of a tap.
pub(crate) fn rows<'a>(bundle: &'a Bundle, tap: &str) -> Vec<&'a TapRow> {
    bundle.taps.iter().filter(|r| r.value.is_some() && name(r) == tap).collect()
}

fn terms<'a>(bundle: &'a Bundle, row: &TapRow) -> Vec<&'a DerivationRow> {
    let is_of =
        |t: &&DerivationRow| t.sequence.is_empty() || (&t.sequence, &t.scenario) == (&row.sequence, &row.scenario);
    bundle.derivations.iter().filter(|t| t.layer == row.layer && t.tap == row.tap).filter(is_of).collect()
}

/// Size of a term: so often one rounding.
fn size(term: &DerivationRow) -> f64 {
    term.cost * term.times.sqrt()
}

fn op_error(terms: &[&DerivationRow]) -> f64 {
    terms.iter().map(|t| size(t).powi(2)).sum::<f64>().sqrt()
}

/// Why the tolerance is what it is.
fn formula(row: &TapRow) -> String {
    match (row.basis.as_str(), row.gate.as_str()) {
        ("derived", _) => "1.5 x derived x exp(acosh(exp(4 / rows))) for chance, and never under 1e-5".into(),
        ("tighter", _) => "four one-rounding errors: tighter than 1.5 x derived".into(),
        ("raised", _) => "1.5 x derived x exp(acosh(exp(4 / rows))), from one row on 4 x derived at most".into(),
        (_, "max_over_max") => "1e-5 of the tap's largest value, or ten floors".into(),
        (_, "unexplained_flips") => "decisions that the formats' noise cannot have changed".into(),
        (_, "unexplained_rows") => "a row's format, and four times what sampled rows of the layer inherit".into(),
        (_, "flips_added_to_stock") => "four standard deviations of new less gone flips (McNemar)".into(),
        _ if row.patch_set.starts_with("stock+") && row.derived.is_some() => {
            "four one-rounding errors, or four claims of a patch that reaches the tap".into()
        }
        _ => "four one-rounding errors of the coarsest format on the way".into(),
    }
}

/// For people.
pub(crate) fn text(bundle: &Bundle, rows: &[&TapRow], style: Style) -> String {
    let mut lines = Vec::new();
    let first = rows[0];
    lines.push(style.bold(&format!("{}, written by {}", name(first), first.op)));
    let terms = terms(bundle, first);
    if terms.is_empty() {
        lines.push("nothing was derived here: no numeric plan is known, or the tap has no gated number".into());
    } else {
        lines.push(String::new());
        lines.push(style.bold(&format!(
            "{:<34}{:<26}{:>6}{:>8}{:>8}  {}",
            "rounding of stock's plan", "format", "times", "cost", "in all", "measured"
        )));
        for t in &terms {
            let how = match (t.basis.as_str(), t.sample_rows) {
                ("measured", n) if t.sequence.is_empty() => format!("on {n} rows"),
                ("measured", n) => format!("on {n} rows of {}", t.sequence),
                (other, _) => other.to_string(),
            };
            let all = size(t);
            lines.push(format!("{:<34}{:<26}{:>6}{:>8.1e}{all:>8.1e}  {how}", t.term, t.format, t.times, t.cost));
        }
        lines.push(format!("the op alone, root of the sum of squares: {:.2e}", op_error(&terms)));
        lines.push("derived: the same with what the layer's earlier roundings bring, golden with noise".into());
        lines.push("against golden on the same rows, decisions forced; rows: how many carry it".into());
    }
    lines.push(String::new());
    lines.push(style.bold(&format!(
        "{:<31}{:<8}{:>9}{:>9}{:>6}{:>9}{:>9}{:>7}  {}",
        "patch set, sequence", "phase", "error", "derived", "rows", "allowed", "floor", "ratio", "verdict"
    )));
    let short = |v: Option<f64>| v.map_or("-".to_string(), |v| format!("{v:.1e}"));
    let several = rows.iter().any(|r| r.sequence != first.sequence);
    let mut formulas: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows {
        let mut of = match several {
            true => format!("{}, {}", row.patch_set, row.sequence),
            false => row.patch_set.clone(),
        };
        if !row.part.is_empty() {
            of = format!("{of} ({})", row.part);
        }
        if of.chars().count() > 30 {
            // A long name has a line of its own.
            lines.push(of);
            of = String::new();
        }
        let ratio = row.value.zip(row.tolerance).map_or("-".to_string(), |(v, t)| format!("{:.2}", v / t));
        let carry = row.effective_rows.map_or("-".to_string(), |n| format!("{n:.0}"));
        let verdict = row.verdict.map_or("", karat_bundle::Verdict::name);
        lines.push(format!(
            "{of:<31}{:<8}{:>9}{:>9}{carry:>6}{:>9}{:>9}{ratio:>7}  {verdict}",
            row.phase,
            short(row.value),
            short(row.derived),
            short(row.tolerance),
            short(row.floor),
        ));
        *formulas.entry(format!("{} ({}): {}", row.basis, row.gate, formula(row))).or_default() += 1;
    }
    lines.push(String::new());
    for (formula, n) in formulas {
        let rows = if n == 1 { "row" } else { "rows" };
        lines.push(format!("{n} {rows}, {formula}"));
    }
    lines.join("\n")
}

/// For scripts.
pub(crate) fn json(bundle: &Bundle, rows: &[&TapRow]) -> Value {
    let terms = terms(bundle, rows[0]);
    let term = |t: &&DerivationRow| {
        json!({
            "term": t.term, "format": t.format, "shape": t.shape, "times": t.times, "cost": json_number(t.cost),
            "basis": t.basis, "sample_rows": t.sample_rows,
        })
    };
    let row = |r: &&TapRow| {
        json!({
            "patch_set": r.patch_set, "scenario": r.scenario, "sequence": r.sequence, "phase": r.phase, "part": r.part,
            "gate": r.gate, "basis": r.basis, "formula": formula(r), "value": r.value.map(json_number),
            "derived": r.derived.map(json_number), "effective_rows": r.effective_rows.map(json_number),
            "predicted": r.predicted.map(json_number),
            "tolerance": r.tolerance.map(json_number), "floor": r.floor.map(json_number),
            "verdict": r.verdict.map(karat_bundle::Verdict::name),
        })
    };
    json!({
        "tap": name(rows[0]), "op": rows[0].op, "op_error": json_number(op_error(&terms)),
        "roundings": terms.iter().map(term).collect::<Vec<_>>(), "rows": rows.iter().map(row).collect::<Vec<_>>(),
    })
}
