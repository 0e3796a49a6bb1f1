//! What moved between two bundles, on the terminal.

use karat_bundle::lock::Entry;
use karat_reports::Moved;
use serde_json::{Value, json as object};

use super::wrap;
use crate::output::{Style, json_number};

/// Changes that are shown.
const MOST: usize = 40;

/// For people.
pub(crate) fn text(moved: &Moved, style: Style) -> String {
    let word = moved.verdict.name();
    let mut lines = wrap(&format!("{word}: {}", moved.sentence()), "");
    lines[0] = lines[0].replacen(word, &style.verdict(moved.verdict.exit_code(), word), 1);
    lines.push(format!("verdicts: {} before, {} after", moved.verdicts.0.name(), moved.verdicts.1.name()));
    lines.extend(moved.unlike.iter().skip(1).flat_map(|why| wrap(why, "  ")));
    let head = |title: &str| style.bold(&format!("{title:<58}{:>10}{:>10}{:>10}  {}", "before", "after", "by", ""));
    if !moved.changes.is_empty() {
        lines.extend([String::new(), head("moved beyond noise").trim_end().to_string()]);
        for c in moved.changes.iter().take(MOST) {
            let end = if c.is_worse { style.verdict(1, "worse") } else { style.verdict(0, "better") };
            lines.extend(line(&c.name, &c.old, &c.new, &end));
        }
        let more = moved.changes.len().saturating_sub(MOST);
        if more > 0 {
            lines.push(format!("and {more} more (--json has all)"));
        }
    }
    if !moved.within.is_empty() {
        lines.extend([String::new(), head("moved most within noise").trim_end().to_string()]);
        lines.extend(moved.within.iter().flat_map(|(name, old, new)| line(name, old, new, "")));
    }
    for (patch, old, new) in &moved.speed {
        let show = |v: &Option<f64>| v.map_or("-".to_string(), |v| format!("{v:.2}"));
        lines.push(format!("speed-up of {patch}: {} before, {} after", show(old), show(new)));
    }
    for (names, whose) in [(&moved.only.0, "only before"), (&moved.only.1, "only after")] {
        if let Some(first) = names.first() {
            lines.extend(wrap(&format!("{whose}: {} metrics, first {first}", names.len()), ""));
        }
    }
    lines.join("\n")
}

fn line(name: &str, old: &Entry, new: &Entry, end: &str) -> Vec<String> {
    let short = |v: f64| if v == 0.0 { "0".to_string() } else { format!("{v:.2e}") };
    let numbers = format!("{:>10}{:>10}{:>+10.1e}  {end}", short(old.value), short(new.value), new.value - old.value);
    let numbers = numbers.trim_end();
    match name.chars().count() {
        0..58 => vec![format!("{name:<58}{numbers}")],
        // A long name has a line of its own.
        _ => vec![name.to_string(), format!("{:<58}{numbers}", "")],
    }
}

/// For programs.
pub(crate) fn json(moved: &Moved) -> Value {
    let entry = |e: &Entry| object!({"value": json_number(e.value), "n": e.n, "low": json_number(e.interval.0), "high": json_number(e.interval.1)});
    let changes = moved
        .changes
        .iter()
        .map(|c| object!({"metric": c.name, "before": entry(&c.old), "after": entry(&c.new), "worse": c.is_worse}));
    let speed = moved.speed.iter().map(|(patch, old, new)| object!({"patch": patch, "before": old, "after": new}));
    object!({
        "verdict": moved.verdict.name(), "exit_code": moved.verdict.exit_code(), "sentence": moved.sentence(),
        "before": moved.verdicts.0.name(), "after": moved.verdicts.1.name(), "unlike": moved.unlike,
        "compared": moved.compared, "changes": changes.collect::<Vec<_>>(), "only_before": moved.only.0,
        "only_after": moved.only.1, "speedup": speed.collect::<Vec<_>>(),
    })
}
