//! The KL ladder, and changed decisions with their margins.

use karat_bundle::{Bundle, FlipRow};
use maud::{Markup, PreEscaped, html};

use super::bits::{name, table, wide};
use super::overview::legend;
use crate::facts::{self, Rung};
use crate::number::{asked, data, maybe, question};
use crate::plot;

/// Flips of a kind that are shown.
const FLIPS: usize = 20;

pub(super) fn ladder(bundle: &Bundle) -> Option<Markup> {
    let rungs = facts::ladder(bundle);
    if rungs.is_empty() {
        return None;
    }
    let rows: Vec<Markup> = rungs.iter().map(line).collect();
    Some(html! {
        p { "KL(golden || candidate) over the whole vocabulary at every position, in nats: stock first, then what each patch set does to it." }
        @if let Some(svg) = plot::ladder(&rungs) {
            (legend(&[("line injected", "median, 90 %, 99 % and largest"), ("ring", "mean")]))
            (wide("Chart: KL by patch set; the table below has its numbers", &PreEscaped(svg)))
        }
        (table("KL ladder", &facts::RUNG_HEADS, &rows))
    })
}

fn line(rung: &Rung<'_>) -> Markup {
    let of =
        |what: &str, column: &str, v: f64| asked(v, &question(what, "tokens.csv", column, &[("patch_set", rung.set)]));
    let [half, most, nearly, all] = rung.quantiles;
    html! {
        tr {
            th scope="row" { (name(rung.set)) }
            td { (of("count", "kl", rung.positions as f64)) }
            td { (of("mean", "kl", rung.mean)) }
            td { (of("p50", "kl", half)) }
            td { (of("p90", "kl", most)) }
            td { (of("p99", "kl", nearly)) }
            td { (of("max", "kl", all)) }
            td { (of("changed", "top1", rung.flips as f64)) }
            td { @if let Some(expected) = rung.expected { (of("sum", "expected_flip_probability", expected)) } @else { "–" } }
        }
    }
}

pub(super) fn flips(bundle: &Bundle) -> Option<Markup> {
    let kinds = [("argmax", "Most likely ids"), ("expert", "Experts"), ("entry", "Indexer entries")];
    let tables: Vec<(&str, Vec<&FlipRow>, f64, String)> = kinds
        .iter()
        .map(|(kind, title)| {
            let all = bundle.flips.iter().filter(|f| f.kind == *kind).count() as f64;
            (
                *title,
                facts::surprising(bundle, kind, FLIPS),
                all,
                question("count", "flips.csv", "kind", &[("kind", kind)]),
            )
        })
        .filter(|(_, flips, ..)| !flips.is_empty())
        .collect();
    if tables.is_empty() {
        return None;
    }
    let heads = [
        "sequence",
        "position",
        "layer",
        "patch set",
        "golden",
        "candidate",
        "margin",
        "predicted noise",
        "chance by noise",
    ];
    Some(html! {
        p { "A decision changes when golden's margin is smaller than the noise that the formats must cost. Those come first that this explains least." }
        @for (title, flips, all, question) in &tables {
            h3 { (title) " (" (asked(*all, question)) ")" }
            (table(title, &heads, &flips.iter().map(|f| flip(f)).collect::<Vec<_>>()))
        }
    })
}

fn flip(f: &FlipRow) -> Markup {
    html! {
        tr {
            td { (name(&f.sequence)) }
            td { (data(f.position as f64)) }
            td { (name(&f.layer)) }
            td { (name(&f.patch_set)) " " (name(&f.phase)) }
            td { (data(f.golden as f64)) }
            td { (data(f.candidate as f64)) }
            td { (data(f.margin)) }
            td { (maybe(f.predicted_noise)) }
            td { (maybe(f.expected_probability)) }
        }
    }
}
