//! Histories as text and as json.

use std::path::Path;

use karat_audit::{HistoriesReport, HistoryRun};
use karat_bundle::Verdict;
use serde_json::{Value, json};

use crate::output::{Style, json_number};

/// The whole result for people.
pub(crate) fn text(report: &HistoriesReport, out: Option<&Path>, style: Style) -> String {
    let (verdict, run) = (report.verdict(), &report.bundle.run);
    let mut lines = super::wrap(&format!("{}: {}", verdict.name(), why(report)), "");
    lines[0] = lines[0].replacen(verdict.name(), &style.verdict(verdict.exit_code(), verdict.name()), 1);
    for reason in report.bundle.verdict.reasons.iter().take(5) {
        lines.extend(super::wrap(reason, "  "));
    }
    lines.extend([
        String::new(),
        format!("model      {}", run.model.label),
        format!("contexts   {} sequences, {} tokens", report.sequences, report.tokens),
        format!("candidate  optimized, {}, {}", run.candidate.claims, patches(report)),
        format!("pages      {} tokens; window {}", report.geometry.page, report.geometry.window),
        String::new(),
        style.bold(&format!(
            "{:<15}{:>6}{:>6}{:>7}{:>8}{:>6}{:>9}  {:<9}{:>8}{:>9}{:>4}  verdict",
            "history",
            "rows",
            "again",
            "reused",
            "decoded",
            "calls",
            "compared",
            "cold run",
            "logits",
            "content",
            "top"
        )),
    ]);
    lines.extend(report.runs.iter().map(row));
    lines.push(
        "cold run: values read from pages, and logits, bit by bit; logits, content, top: from golden".to_string(),
    );
    for run in &report.runs {
        lines.extend(details(run));
    }
    lines.push(String::new());
    for note in &run.notes {
        lines.extend(super::wrap(note, "  "));
    }
    if let Some(out) = out {
        lines.push(format!("bundle     {}", out.display()));
    }
    lines.push(format!("{:.1} s, {} MiB", run.wall_s.total, run.peak_memory_bytes >> 20));
    lines.join("\n")
}

fn why(report: &HistoriesReport) -> String {
    let named = |verdict| {
        let runs = report.runs.iter().filter(|run| run.verdict == verdict);
        runs.map(|run| run.history.name()).collect::<Vec<_>>().join(", ")
    };
    match report.verdict() {
        Verdict::Fail => format!("not the path's own cold run, or too far from golden: {}", named(Verdict::Fail)),
        Verdict::Unproven => format!("no evidence for {}", named(Verdict::Unproven)),
        _ => format!("{} histories, each bit-identical to the path's own cold run", report.runs.len()),
    }
}

fn patches(report: &HistoriesReport) -> String {
    if report.patches.is_empty() { "no patches".into() } else { report.patches.join(", ") }
}

fn row(row: &HistoryRun) -> String {
    let (checked, facts) = (&row.checked, &row.checked.facts);
    let same = if checked.is_same() { "the same" } else { "differs" };
    let golden = checked.golden.as_ref();
    let short = |v: Option<f64>| v.map_or("-".to_string(), |v| format!("{v:.1e}"));
    format!(
        "{:<15}{:>6}{:>6}{:>7}{:>8}{:>6}{:>9}  {:<9}{:>8}{:>9}{:>4}  {}",
        row.history.name(),
        facts.rows,
        facts.again,
        facts.reused,
        facts.decoded,
        facts.calls,
        checked.compared,
        same,
        short(golden.map(|g| g.logits)),
        short(golden.map(|g| g.content)),
        golden.map_or("-".to_string(), |g| g.top.to_string()),
        row.verdict.name()
    )
}

fn details(row: &HistoryRun) -> Vec<String> {
    let checked = &row.checked;
    let mut out = Vec::new();
    if checked.is_same() {
        if let Some(lacks) = checked.facts.lacks(row.history) {
            out.push(format!("{}: {lacks}", row.history));
        }
        return out;
    }
    out.push(format!("\n{} differs first at", row.history));
    out.extend(checked.difference.iter().map(|d| format!("  {d}")));
    out.extend(checked.misplaced.iter().map(|m| format!("  by owner: {m}")));
    if let Some(minimal) = &row.minimal {
        let works = minimal.works.iter().map(|w| w.ids.len().to_string()).collect::<Vec<_>>().join(", ");
        out.push(format!("  smallest history found: requests of {works} tokens; {:?}", minimal.actions));
    }
    out
}

/// The same for programs.
pub(crate) fn json(report: &HistoriesReport) -> Value {
    let verdict = report.verdict();
    json!({
        "verdict": verdict.name(),
        "exit_code": verdict.exit_code(),
        "model": report.bundle.run.model.label,
        "stock": report.bundle.run.candidate.claims,
        "patches": report.patches,
        "sequences": report.sequences,
        "tokens": report.tokens,
        "page": report.geometry.page,
        "reasons": report.bundle.verdict.reasons,
        "notes": report.bundle.run.notes,
        "wall_s": json_number(report.bundle.run.wall_s.total),
        "histories": report.runs.iter().map(history).collect::<Vec<_>>(),
    })
}

fn history(row: &HistoryRun) -> Value {
    let (checked, facts) = (&row.checked, &row.checked.facts);
    json!({
        "history": row.history.name(),
        "verdict": row.verdict.name(),
        "lacks": checked.facts.lacks(row.history),
        "rows": facts.rows, "again": facts.again, "reused": facts.reused, "decoded": facts.decoded,
        "calls": facts.calls, "replayed": facts.replayed, "padded": facts.padded, "moved_pages": facts.moved,
        "freed_pages": facts.freed, "compared_rows": checked.compared,
        "bit_identical": checked.difference.is_none(),
        "difference": checked.difference.as_ref().map(|d| json!({
            "layer": d.layer, "part": d.part.map(karat_optimized::serving::Part::name), "sequence": d.sequence,
            "position": d.position, "page": d.at.map(|(page, _)| page), "row": d.at.map(|(_, row)| row),
            "bytes": d.bytes.as_ref().map(|b| [b.start, b.end]),
            "element": d.element.0, "value": json_number(f64::from(d.element.1)),
            "cold": json_number(f64::from(d.element.2)), "text": d.to_string(),
        })),
        "misplaced": checked.misplaced.as_ref().map(ToString::to_string),
        "golden": checked.golden.as_ref().map(|g| json!({
            "logits": json_number(g.logits), "mtp_logits": g.mtp.map(json_number), "content": json_number(g.content), "content_at": g.content_at,
            "top_changed": g.top, "expert_rows": g.decisions.0, "entry_rows": g.decisions.1,
        })),
        "minimal": row.minimal.as_ref().map(|s| format!("{:?}", s.actions)),
    })
}
