//! What a running server recalls, and how fast.

use std::path::Path;

use karat_bundle::judge::recall::{Counts, bounds, candidate_is_right, counts, golden_is_right, patch_sets};
use karat_bundle::{Bundle, RecallRow, RequestRow};
use karat_endpoint::{Speed, Spread};
use serde_json::{Value, json};

use super::page;
use crate::output::{Style, json_number};

/// Share of right answers with its 95 % bounds (each one-sided), the conversation being the unit. In percent.
fn share(rows: &[&RecallRow]) -> (f64, f64, f64) {
    let mut by: std::collections::BTreeMap<(&str, &str), Counts> = std::collections::BTreeMap::new();
    for row in rows {
        let one = by.entry((&row.scenario, &row.conversation)).or_default();
        one.answers += 1;
        one.lost += u64::from(!candidate_is_right(row));
    }
    let wrong = bounds(&by.into_values().collect::<Vec<_>>());
    (100.0 * (1.0 - wrong.mean), 100.0 * (1.0 - wrong.upper), 100.0 * (1.0 - wrong.lower))
}

fn line(name: &str, rows: &[&RecallRow]) -> String {
    let rows: Vec<&RecallRow> = rows.iter().copied().filter(|r| counts(r)).collect();
    let number = |f: fn(&RecallRow) -> bool| rows.iter().filter(|r| f(r)).count();
    let lost = number(|r| golden_is_right(r) && !candidate_is_right(r));
    let between = match rows.len() {
        0 => "-".to_owned(),
        _ => {
            let (mean, low, high) = share(&rows);
            format!("{mean:.1} % ({low:.1} to {high:.1})")
        }
    };
    let cells = [rows.len(), number(candidate_is_right), number(golden_is_right), lost];
    let cells: String = cells.iter().map(|n| format!("{n:>9}")).collect();
    format!("{name:<28}{cells}{between:>26}")
}

fn groups<'a>(rows: &[&'a RecallRow], of: impl Fn(&RecallRow) -> &str) -> Vec<(String, Vec<&'a RecallRow>)> {
    let mut out: Vec<(String, Vec<&RecallRow>)> = Vec::new();
    for row in rows {
        match out.iter_mut().find(|(name, _)| name == of(row)) {
            Some((_, rows)) => rows.push(row),
            None => out.push((of(row).to_owned(), vec![row])),
        }
    }
    out
}

fn tables(bundle: &Bundle, style: Style) -> Vec<String> {
    let mut lines = Vec::new();
    for set in patch_sets(&bundle.recall) {
        let rows: Vec<&RecallRow> = bundle.recall.iter().filter(|r| r.patch_set == set).collect();
        let control = if set.starts_with("stock+") { "stock" } else { "control" };
        let head = format!(
            "{:<28}{:>9}{:>9}{control:>9}{:>9}{:>26}",
            format!("recall under {set}"),
            "answers",
            "right",
            "lost",
            "right, 95 % bounds"
        );
        lines.push(style.bold(&head));
        for (name, rows) in groups(&rows, |r| &r.scenario) {
            lines.push(line(&name, &rows));
        }
        for (name, rows) in groups(&rows, |r| &r.history) {
            lines.push(line(&format!("history {name}"), &rows));
        }
        lines.push(line("all", &rows));
        let looks = groups(&rows, |r| &r.symptom);
        let looks: Vec<String> = looks.iter().map(|(name, rows)| format!("{} {name}", rows.len())).collect();
        lines.push(format!("answers look: {}", looks.join(", ")));
    }
    if !lines.is_empty() {
        lines.push(
            "control: given by the same prompt behind words that no cache knows; lost: given there only".to_owned(),
        );
    }
    lines
}

fn milliseconds(spread: Spread) -> String {
    spread.map_or("-".to_owned(), |(median, high)| format!("{median:.0} ms (95 %: {high:.0})"))
}

fn speeds(requests: &[RequestRow], style: Style) -> Vec<String> {
    let mut sets: Vec<&str> = requests.iter().map(|r| r.patch_set.as_str()).collect();
    sets.dedup();
    let mut lines = Vec::new();
    for set in sets {
        let rows: Vec<RequestRow> = requests.iter().filter(|r| r.patch_set == set).cloned().collect();
        let speed = Speed::of(&rows);
        lines.push(style.bold(&format!(
            "{set}: {} requests, {} closed, {} sent again",
            speed.requests, speed.closed, speed.retried
        )));
        let rate =
            speed.tokens_per_second.map_or("-".to_owned(), |(median, low)| format!("{median:.1} (95 %: {low:.1})"));
        lines.push(format!("  first text after {}, tokens a second {rate}", milliseconds(speed.first_ms)));
        if speed.told > 0 {
            let (cached, prompt) = speed.cached;
            lines.push(format!(
                "  prefix cache: {} of {} questions, {cached} of {prompt} prompt tokens ({:.0} %)",
                speed.hits,
                speed.told,
                100.0 * cached as f64 / prompt.max(1) as f64
            ));
        }
    }
    lines
}

/// The page of a run.
pub(crate) fn text(bundle: &Bundle, requests: &[RequestRow], out: Option<&Path>, style: Style) -> String {
    page(bundle, &[tables(bundle, style), speeds(requests, style)], out, style)
}

/// The page of an audit by log-probabilities.
pub(crate) fn audit_text(bundle: &Bundle, out: Option<&Path>, style: Style) -> String {
    let mut lines = Vec::new();
    for row in &bundle.taps {
        if lines.is_empty() {
            let cells = ["positions", "value", "predict", "allowed"].map(|h| format!("{h:>11}")).concat();
            lines.push(style.bold(&format!("{:<28}{cells}  gate", "log-probabilities")));
        }
        let number = |v: Option<f64>| v.map_or("-".to_owned(), |v| format!("{v:.1e}"));
        let (value, predicted, tolerance) = (number(row.value), number(row.predicted), number(row.tolerance));
        lines.push(format!(
            "{:<28}{:>11}{value:>11}{predicted:>11}{tolerance:>11}  {}",
            row.sequence, row.rows, row.gate
        ));
    }
    let changed = bundle.tokens.iter().filter(|t| t.top1_golden != t.top1_candidate).count();
    if !bundle.tokens.is_empty() {
        lines.push(format!("most likely ids changed: {changed} of {}", bundle.tokens.len()));
    }
    page(bundle, &[lines], out, style)
}

/// The same as json.
pub(crate) fn json(bundle: &Bundle, speed: &Speed) -> Value {
    let spread = |s: Spread| s.map_or(Value::Null, |(a, b)| json!([json_number(a), json_number(b)]));
    let mut all = super::json(bundle);
    let shares: Vec<Value> = patch_sets(&bundle.recall)
        .into_iter()
        .map(|set| {
            let rows: Vec<&RecallRow> = bundle.recall.iter().filter(|r| r.patch_set == set && counts(r)).collect();
            let (mean, low, high) = share(&rows);
            json!({"patch_set": set, "answers": rows.len(), "right_percent": json_number(mean),
                   "lower": json_number(low), "upper": json_number(high)})
        })
        .collect();
    if let Value::Object(fields) = &mut all {
        fields.insert(
            "endpoint".to_owned(),
            json!({
                "recall": shares, "requests": speed.requests, "closed": speed.closed, "retried": speed.retried,
                "first_ms": spread(speed.first_ms), "tokens_per_second": spread(speed.tokens_per_second),
                "cache": {"told": speed.told, "hits": speed.hits, "cached_tokens": speed.cached.0,
                          "prompt_tokens": speed.cached.1, "warm_controls": speed.warm_controls},
            }),
        );
    }
    all
}
