//! Histories: the same context reached in many ways, as a matrix.

use std::collections::BTreeMap;

use karat_bundle::{Bundle, HistoryRow, Verdict, history_verdict};
use maud::{Markup, html};

use super::bits::{name, table, text, verdict};
use crate::number::{count, maybe};

/// Differences that are shown with their place.
const PLACES: usize = 40;

pub(super) fn section(bundle: &Bundle) -> Option<Markup> {
    if bundle.histories.is_empty() {
        return None;
    }
    let judge = |row: &HistoryRow| history_verdict(row, &bundle.run.policy);
    let mut columns: Vec<(&str, &str)> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    let mut fields: BTreeMap<(&str, (&str, &str)), &HistoryRow> = BTreeMap::new();
    for row in &bundle.histories {
        let column = (row.against.as_str(), row.what.as_str());
        if !columns.contains(&column) {
            columns.push(column);
        }
        if !names.contains(&row.history.as_str()) {
            names.push(&row.history);
        }
        let field = fields.entry((&row.history, column)).or_insert(row);
        if worse(judge(row), judge(field)) {
            *field = row;
        }
    }
    columns.sort_by_key(|(against, _)| ["cold run", "owners", "golden"].iter().position(|a| a == against));
    let rows: Vec<Markup> = names
        .iter()
        .map(|history| {
            html! {
                tr {
                    th scope="row" { (name(history)) }
                    @for column in &columns {
                        td {
                            @match fields.get(&(*history, *column)) {
                                Some(row) => { (verdict(judge(row))) " " (maybe(row.value)) }
                                None => "–",
                            }
                        }
                    }
                }
            }
        })
        .collect();
    let heads: Vec<String> =
        columns.iter().map(|(a, w)| format!("{}: {}", crate::text::clean(a, 40), crate::text::clean(w, 40))).collect();
    let heads: Vec<&str> = std::iter::once("history").chain(heads.iter().map(String::as_str)).collect();
    let bad: Vec<&HistoryRow> =
        bundle.histories.iter().filter(|r| matches!(judge(r), Some(Verdict::Fail | Verdict::Unproven))).collect();
    Some(html! {
        p {
            "Each history ends in the same context. Against the path's own " b { "cold run" } " every row that a layer reads must be \
             the same bits; " b { "owners" } " are tags in the place of numbers; " b { "golden" } " is the distance that counts. \
             Fields: the worst sequence, in the unit of the comparison."
        }
        (table("Histories", &heads, &rows))
        @if !bad.is_empty() {
            h3 { "First places that differ" }
            (table("Where histories differ", &["history", "sequence", "against", "differs", "of", "place", "found", "expected", "smallest history, or what it lacks"],
                &bad.iter().take(PLACES).map(|r| place(r)).collect::<Vec<_>>()))
            (super::bits::more(bad.len().saturating_sub(PLACES), "histories.csv"))
        }
    })
}

/// True when a verdict is stronger than another.
fn worse(a: Option<Verdict>, b: Option<Verdict>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a < b,
        (a, b) => a.is_some() && b.is_none(),
    }
}

fn place(r: &HistoryRow) -> Markup {
    html! {
        tr {
            th scope="row" { (name(&r.history)) }
            td { (name(&r.sequence)) }
            td { (name(&r.against)) ": " (name(&r.what)) }
            td { (count(r.differs)) }
            td { (count(r.compared)) }
            td {
                (name(&crate::facts::place(&r.layer, &r.tensor)))
                @if let Some(p) = r.position { ", position " (count(p)) }
                @if let Some(page) = r.page { ", page " (count(page)) " of " (name(&r.pool)) }
                @if !r.read_by.is_empty() { ", read by " (text(&r.read_by)) }
            }
            td { @if r.owner_found.is_empty() { (maybe(r.found)) } @else { (name(&r.owner_found)) } }
            td { @if r.owner_expected.is_empty() { (maybe(r.expected)) } @else { (name(&r.owner_expected)) } }
            td { (text(&r.minimal)) (text(&r.missing)) }
        }
    }
}
