//! The three tables of the summary: layers, patches, logits.

use std::collections::BTreeMap;

use karat_bundle::{Bundle, PatchRow, TapRow, TokenRow, Verdict};

use crate::output::Style;

/// A number in nine columns.
fn short(value: Option<f64>) -> String {
    value.map_or("-".to_string(), |v| if v == 0.0 { "0".to_string() } else { format!("{v:.1e}") })
}

/// Value over tolerance: how near to failing a row is. Only for errors; counts of flips have their own lines.
fn nearness(row: &TapRow) -> f64 {
    match (row.value, row.tolerance) {
        _ if row.nonfinite > 0 => f64::INFINITY,
        (Some(value), Some(tolerance)) if tolerance > 0.0 => value / tolerance,
        (Some(value), Some(_)) if value > 0.0 => f64::INFINITY,
        _ => 0.0,
    }
}

/// True for what a layer hands on. An MTP block also embeds, and has a head of its own.
fn leaves(row: &TapRow) -> bool {
    matches!((row.layer.as_str(), row.tap.as_str()), ("embed", "embed") | (_, "out") | ("head", "logits"))
}

/// For each layer what came in and what went out of it under the last patch set, and the row nearest to its tolerance
/// under any.
pub(super) fn layers(bundle: &Bundle, style: Style) -> Vec<String> {
    let mut places: Vec<(u64, &str)> = Vec::new();
    for row in &bundle.taps {
        if !places.iter().any(|(_, layer)| *layer == row.layer) {
            places.push((row.order, &row.layer));
        }
    }
    places.sort_unstable();
    if places.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![style.bold(&format!(
        "{:<5}{:>9}{:>9}  {:<22}{:<29}{:>8}{:>8}{:>8}",
        "layer", "inherit", "inject", "nearest to tolerance", "patch set, phase", "error", "predict", "allowed"
    ))];
    for (_, layer) in places {
        let rows: Vec<&TapRow> = bundle.taps.iter().filter(|r| r.layer == layer && r.part.is_empty()).collect();
        let Some(worst) = worst(&rows) else { continue };
        let last = rows.iter().rev().find(|r| leaves(r));
        let of_last = |f: fn(&TapRow) -> Option<f64>| {
            let set = last.map(|l| (&l.patch_set, &l.tap));
            let same = |r: &&&TapRow| Some((&r.patch_set, &r.tap)) == set;
            rows.iter()
                .filter(same)
                .filter_map(|r| f(r))
                .fold(None, |m: Option<f64>, v| Some(m.map_or(v, |m| m.max(v))))
        };
        lines.push(layer_line(layer, of_last(|r| r.inherited), of_last(|r| r.injected), worst, style));
    }
    if let Some(set) = bundle.run.candidate.patch_sets.last() {
        lines.push(format!(
            "inherit, inject: rel-L2 of what leaves the layer, under {set}, in the worse phase and sequence"
        ));
    }
    lines
}

fn worst<'a>(rows: &[&'a TapRow]) -> Option<&'a TapRow> {
    let gated = rows.iter().filter(|r| r.verdict.is_some());
    gated.fold(None, |best: Option<&TapRow>, row| match best {
        Some(b) if nearness(b) >= nearness(row) => Some(b),
        _ => Some(row),
    })
}

fn layer_line(layer: &str, inherited: Option<f64>, injected: Option<f64>, worst: &TapRow, style: Style) -> String {
    let at_floor = worst.floor.zip(worst.value).is_some_and(|(floor, value)| value <= floor);
    let is_count = worst.gate.contains("flips");
    let number = |v: Option<f64>| if is_count { v.map_or("-".to_string(), |v| format!("{v:.0}")) } else { short(v) };
    let error = if at_floor { "<= floor".to_string() } else { number(worst.value) };
    let mut place = format!("{}, {}", worst.patch_set, worst.phase);
    if place.len() > 28 {
        // Every patch but the whole set stands on stock.
        place = place.replacen("stock+", "", 1);
    }
    // A long name takes its room from the tap's column.
    let tap = 22 + 29 - place.len().max(28) - 1;
    let line = format!(
        "{layer:<5}{:>9}{:>9}  {:<tap$}{place:<29}{error:>8}{:>8}{:>8}",
        short(inherited),
        short(injected),
        worst.tap,
        number(worst.predicted),
        number(worst.tolerance),
    );
    if worst.verdict == Some(Verdict::Fail) { style.verdict(1, &line) } else { line }
}

/// One line a speed patch.
pub(super) fn patches(bundle: &Bundle, style: Style) -> Vec<String> {
    if bundle.patches.is_empty() {
        return Vec::new();
    }
    // Long names and states take their room from between the numbers.
    let width =
        |of: fn(&PatchRow) -> &str, least| bundle.patches.iter().map(|p| of(p).len() + 1).fold(least, usize::max);
    let (name, state) = (width(|p| &p.patch, 16), width(|p| &p.state, 9));
    let [a, b, c, d, e, f] = if name + state > 25 { [8, 9, 8, 7, 9, 6] } else { [9, 10, 10, 9, 11, 7] };
    let mut lines = vec![style.bold(&format!(
        "{:<name$}{:>a$}{:>b$}{:>c$}{:>d$}{:>e$}{:>f$}  {:<state$}{}",
        "patch", "claimed", "measured", "prefill", "decode", "added KL", "flips", "state", "verdict"
    ))];
    for p in &bundle.patches {
        let flips = p.added_flips.map_or("-".to_string(), |f| format!("{f:+}"));
        let kl = p.added_kl.map_or("-".to_string(), |kl| format!("{kl:+.1e}"));
        let verdict = p.verdict.unwrap_or_default();
        lines.push(format!(
            "{:<name$}{:>a$}{:>b$}{:>c$}{:>d$}{kl:>e$}{flips:>f$}  {:<state$}{}",
            p.patch,
            short(Some(p.claimed_error)),
            short(p.measured_error),
            p.calls_prefill,
            p.calls_decode,
            p.state,
            style.verdict(verdict.exit_code(), verdict.name()),
        ));
    }
    for p in &bundle.patches {
        if let Some(other) = p.expected_verdict.filter(|e| Some(*e) != p.verdict) {
            lines.push(format!("{}: the committed table expects {}", p.patch, other.name()));
        }
    }
    lines.push("claimed and measured: injected rel-L2 at the patch's own ops; prefill, decode: executions".to_string());
    lines
}

/// One line a patch set: KL and changed most likely ids.
pub(super) fn logits(bundle: &Bundle, style: Style) -> Vec<String> {
    let mut sets: BTreeMap<usize, (&str, Vec<&TokenRow>)> = BTreeMap::new();
    for token in &bundle.tokens {
        let place = bundle.run.candidate.patch_sets.iter().position(|s| *s == token.patch_set).unwrap_or(usize::MAX);
        sets.entry(place).or_insert((&token.patch_set, Vec::new())).1.push(token);
    }
    if sets.is_empty() {
        return Vec::new();
    }
    let name = sets.values().map(|(set, _)| set.len() + 1).fold(24, usize::max);
    let mut lines = vec![style.bold(&format!(
        "{:<name$}{:>10}{:>10}{:>10}{:>22}",
        "logits", "mean KL", "max KL", "positions", "top ids changed"
    ))];
    for (set, tokens) in sets.values() {
        let mean = tokens.iter().map(|t| t.kl).sum::<f64>() / tokens.len() as f64;
        let max = tokens.iter().map(|t| t.kl).fold(f64::NEG_INFINITY, f64::max);
        let flips = tokens.iter().filter(|t| t.top1_golden != t.top1_candidate).count();
        let expected: Option<f64> = tokens.iter().map(|t| t.expected_flip_probability).sum();
        let expected = expected.map_or(String::new(), |e| format!(" (expected {e:.0})"));
        let changed = format!("{flips}{expected}");
        let (mean, max) = (short(Some(mean)), short(Some(max)));
        lines.push(format!("{set:<name$}{mean:>10}{max:>10}{:>10}{changed:>22}", tokens.len()));
    }
    lines
}
