//! The result of an audit on the terminal: at most 100 columns, verdict first.

pub(crate) mod bisect;
mod data;
pub(crate) mod endpoint;
pub(crate) mod explain;
pub(crate) mod gate;
pub(crate) mod histories;
pub(crate) mod isolate;
pub(crate) mod moved;
mod recall;
mod tables;

use std::path::Path;

use karat_bundle::judge::recall::{bounds, golden_is_right, paired, upper};
use karat_bundle::{Bundle, CacheUse, FirstBad, Verdict};

use crate::output::Style;

pub(crate) use data::json;

/// The summary of an audit.
pub(crate) fn text(bundle: &Bundle, out: Option<&Path>, style: Style) -> String {
    let tables = [
        examined(bundle, style),
        tables::layers(bundle, style),
        tables::patches(bundle, style),
        tables::logits(bundle, style),
        recall::short(bundle, style),
    ];
    page(bundle, &tables, out, style)
}

/// What the second look at the first bad place tested.
fn examined(bundle: &Bundle, style: Style) -> Vec<String> {
    let Some(found) = &bundle.verdict.examination else { return Vec::new() };
    let mut lines = Vec::new();
    if !found.effects.is_empty() {
        lines.push(
            style.bold(&format!("{:<12}{:>24}{:>26}", "layer", "KL gone with golden's", "KL of it alone in golden")),
        );
        for e in &found.effects {
            lines.push(format!("{:<12}{:>24.1e}{:>26.1e}", e.layer, e.removed, e.alone));
        }
    }
    if let Some(share) = found.routing_share {
        lines.push(format!("inherited by other decisions in that layer: {:.0} %", 100.0 * share));
    }
    if !found.signatures.is_empty() {
        let names: Vec<String> =
            found.signatures.iter().map(|s| format!("{}{}", if s.fits.is_some() { "*" } else { "" }, s.name)).collect();
        lines.extend(wrap(&format!("signatures tested (* fits): {}", names.join(", ")), ""));
    }
    lines
}

/// The summary of whatever run left the bundle.
pub(crate) fn of(bundle: &Bundle, out: Option<&Path>, style: Style) -> String {
    let is_recall = bundle.taps.is_empty() && !bundle.recall.is_empty();
    if is_recall { recall_text(bundle, out, style) } else { text(bundle, out, style) }
}

/// The summary of a recall run.
pub(crate) fn recall_text(bundle: &Bundle, out: Option<&Path>, style: Style) -> String {
    page(bundle, &[recall::tables(bundle, style)], out, style)
}

fn page(bundle: &Bundle, tables: &[Vec<String>], out: Option<&Path>, style: Style) -> String {
    let report = &bundle.verdict;
    let mut lines = vec![headline(bundle, style)];
    for reason in report.reasons.iter().skip(usize::from(report.first_bad.is_none())).take(3) {
        lines.extend(wrap(reason, "  "));
    }
    if report.next_step != "nothing" {
        lines.extend(wrap(&format!("next: {}", report.next_step), "  "));
    }
    lines.push(String::new());
    lines.extend(header(bundle));
    for table in tables.iter().filter(|t| !t.is_empty()) {
        lines.push(String::new());
        lines.extend(table.iter().cloned());
    }
    lines.push(String::new());
    lines.push(style.bold("not judged, and what this is no evidence for"));
    for note in &bundle.run.notes {
        lines.extend(wrap(note, "  "));
    }
    lines.push(String::new());
    lines.push(costs(bundle));
    lines.extend(from_cache(&bundle.run.cache).iter().flat_map(|line| wrap(line, "")));
    if let Some(out) = out {
        lines.push(format!("bundle: {}", out.display()));
    }
    lines.join("\n")
}

/// The verdict and one sentence.
pub(crate) fn headline(bundle: &Bundle, style: Style) -> String {
    let report = &bundle.verdict;
    let name = report.verdict.name();
    let lines = wrap(&format!("{name}: {}", sentence(bundle)), "").join("\n");
    lines.replacen(name, &style.verdict(report.exit_code, name), 1)
}

/// One sentence after the verdict.
fn sentence(bundle: &Bundle) -> String {
    let report = &bundle.verdict;
    match (&report.first_bad, report.verdict) {
        (Some(_), Verdict::Fail) if report.examination.is_some() => {
            report.examination.as_ref().map_or(String::new(), |e| e.summary.clone())
        }
        (Some(bad), Verdict::Fail) => {
            format!("{} is the first place over tolerance, in {} of {}", place(bad), bad.phase, bad.patch_set)
        }
        (_, Verdict::Pass) if bundle.taps.is_empty() => recalled(bundle),
        (_, Verdict::Pass) => {
            let gated = bundle.taps.iter().filter(|r| r.verdict.is_some()).count();
            // A failing row of a run that passes is one that the policy allows.
            match bundle.taps.iter().filter(|r| r.verdict == Some(Verdict::Fail)).count() {
                0 => format!("all {gated} judged rows are within tolerance"),
                n => format!("{n} of {gated} judged rows are over tolerance, and allowed for now"),
            }
        }
        _ => report.reasons.first().cloned().unwrap_or_default(),
    }
}

/// What a recall run found, when that is enough.
fn recalled(bundle: &Bundle) -> String {
    let b = bounds(&paired(&bundle.recall));
    match bundle.run.policy.recall_margin {
        Some(margin) => format!(
            "{} lost, {} gained of {} answers; a loss over {:.2} % is ruled out (limit {:.2} %)",
            b.lost,
            b.gained,
            b.answers,
            100.0 * upper(&bundle.recall.iter().collect::<Vec<_>>(), &bundle.run.policy),
            100.0 * margin
        ),
        None => {
            let right = bundle.recall.iter().filter(|r| golden_is_right(r)).count();
            format!("golden gives {right} of {} answers", bundle.recall.len())
        }
    }
}

fn place(bad: &FirstBad) -> String {
    match bad.layer.parse::<u32>() {
        Ok(layer) => format!("layer {layer}, tap {}", bad.tap),
        Err(_) => format!("{}, tap {}", bad.layer, bad.tap),
    }
}

fn header(bundle: &Bundle) -> Vec<String> {
    let run = &bundle.run;
    let made = if run.model.random_weights { ", random weights" } else { "" };
    let mut lines = vec![format!("model      {}{made}", run.model.label)];
    for s in &run.scenarios {
        let what = if s.sequences == 1 { "1 sequence".to_owned() } else { format!("{} sequences", s.sequences) };
        lines.push(format!("scenario   {}: {what}, {} rows", s.name, s.rows));
    }
    lines.push(format!("candidate  {}, claims {}", run.candidate.name, run.candidate.claims));
    lines
}

/// Seconds from which on a run says where they went.
const LONG: f64 = 30.0;

/// What the run took; of a long one, where the time went, largest first.
fn costs(bundle: &Bundle) -> String {
    let (wall, report) = (&bundle.run.wall_s, &bundle.verdict);
    let mut line = format!(
        "{:.1} s (golden {:.1}, candidate {:.1}, comparing {:.1}), {} threads, {} MiB, {:.0} forward passes",
        wall.total,
        wall.golden,
        wall.candidate,
        wall.diff,
        bundle.run.threads,
        bundle.run.peak_memory_bytes >> 20,
        report.forward_equivalents,
    );
    if bundle.run.spilled_bytes > 0 {
        let mib = bundle.run.spilled_bytes >> 20;
        line.push_str(&format!("; {mib} MiB of streams between layers waited in a temporary file"));
    }
    if let Some(parts) = wall.parts.as_ref().filter(|_| wall.total >= LONG) {
        let mut parts = parts.named();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        let told = parts.iter().filter(|(_, seconds)| *seconds >= 0.1).map(|(what, s)| format!("{what} {s:.1}"));
        line.push_str(&format!("\nof it: {}", told.collect::<Vec<_>>().join(", ")));
    }
    line
}

/// What was not computed now, because an earlier run had; nothing when no cache was asked for.
fn from_cache(used: &CacheUse) -> Option<String> {
    if !used.on {
        return (!used.trouble.is_empty()).then(|| format!("cache: off, {}", used.trouble));
    }
    let mut line = format!(
        "cache: {} of {} comparisons and {} of {} golden blocks from earlier runs",
        used.comparisons, used.comparisons_asked, used.golden, used.golden_asked,
    );
    for (n, what) in [
        (used.damaged, "damaged and computed again"),
        (used.deleted, "deleted to make room"),
        (used.too_large, "too large to keep"),
    ] {
        if n > 0 {
            line.push_str(&format!(", {n} entries {what}"));
        }
    }
    if !used.trouble.is_empty() {
        line.push_str(&format!("; {}", used.trouble));
    }
    Some(line)
}

/// Breaks a text into lines of at most 100 columns.
fn wrap(text: &str, indent: &str) -> Vec<String> {
    const WIDTH: usize = 100;
    let mut lines = Vec::new();
    let mut line = indent.to_string();
    for word in text.split_whitespace() {
        let is_start = line.trim().is_empty();
        if !is_start && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::replace(&mut line, format!("{indent}  ")));
        } else if !is_start {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}
