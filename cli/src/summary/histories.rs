//! Histories as text and as json.

use karat_audit::{HistoriesReport, HistoryRow};
use karat_bundle::Verdict;
use serde_json::{Value, json};

use crate::output::{Style, json_number};

/// The whole result for people.
pub(crate) fn text(report: &HistoriesReport, style: Style) -> String {
    let verdict = report.verdict();
    let mut lines = vec![
        style.verdict(verdict.exit_code(), &format!("{}: {}", verdict.name(), why(report))),
        String::new(),
        format!("model      {}", report.model),
        format!("contexts   {} sequences, {} tokens", report.sequences, report.tokens),
        format!("candidate  optimized, {}, {}", report.stock, patches(report)),
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
    ];
    lines.extend(report.rows.iter().map(row));
    lines.push(
        "cold run: values read from pages, and logits, bit by bit; logits, content, top: from golden".to_string(),
    );
    for row in &report.rows {
        lines.extend(details(row));
    }
    lines.push(String::new());
    lines.push(format!("{:.1} s", report.seconds));
    lines.join("\n")
}

fn why(report: &HistoriesReport) -> String {
    let named = |verdict| {
        let rows = report.rows.iter().filter(|row| row.verdict() == verdict);
        rows.map(|row| row.history.name()).collect::<Vec<_>>().join(", ")
    };
    match report.verdict() {
        Verdict::Fail => format!("not the path's own cold run: {}", named(Verdict::Fail)),
        Verdict::Unproven => format!("no evidence for {}", named(Verdict::Unproven)),
        _ => format!("{} histories, each bit-identical to the path's own cold run", report.rows.len()),
    }
}

fn patches(report: &HistoriesReport) -> String {
    if report.patches.is_empty() { "no patches".into() } else { report.patches.join(", ") }
}

fn row(row: &HistoryRow) -> String {
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
        row.verdict().name()
    )
}

fn details(row: &HistoryRow) -> Vec<String> {
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
        "model": report.model,
        "stock": report.stock,
        "patches": report.patches,
        "sequences": report.sequences,
        "tokens": report.tokens,
        "page": report.geometry.page,
        "wall_s": json_number(report.seconds),
        "histories": report.rows.iter().map(history).collect::<Vec<_>>(),
    })
}

fn history(row: &HistoryRow) -> Value {
    let (checked, facts) = (&row.checked, &row.checked.facts);
    json!({
        "history": row.history.name(),
        "verdict": row.verdict().name(),
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
            "logits": json_number(g.logits), "content": json_number(g.content), "content_at": g.content_at,
            "top_changed": g.top, "expert_rows": g.decisions.0, "entry_rows": g.decisions.1,
        })),
        "minimal": row.minimal.as_ref().map(|s| format!("{:?}", s.actions)),
    })
}
