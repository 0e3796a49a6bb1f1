//! From layer to op to token.

use karat_bundle::TapRow;
use maud::{Markup, html};

use super::bits::{name, table, verdict};
use crate::facts::{Layer, Place, Tap, counts_entries, name as tap_name, phase_name};
use crate::number::{asked, count, data, maybe, question};

/// Taps in all: a page of any bundle has a bounded size.
const TAPS: usize = 2200;
/// Patch sets of a token, those with the largest KL.
const SETS: usize = 12;

pub(super) fn section(layers: &[Layer<'_>], places: &[Place<'_>]) -> Option<Markup> {
    if layers.is_empty() {
        return None;
    }
    // Every layer gets its share, so that none is missing.
    let share = (TAPS / layers.len()).max(1);
    Some(html! {
        p { "Open a layer: its taps in op order, each by the row nearest to its tolerance. Positions lead to the tokens below." }
        @for (i, layer) in layers.iter().enumerate() { (one(i, layer, share, places)) }
        @if !places.is_empty() {
            h3 { "Tokens" }
            p { "Positions farthest from golden, and those where a layer errs most." }
            @for (i, place) in places.iter().enumerate() { (token(i, place)) }
        }
    })
}

fn one(i: usize, layer: &Layer<'_>, share: usize, places: &[Place<'_>]) -> Markup {
    let heads = [
        "op",
        "tap",
        "rows",
        "failing",
        "patch set, phase",
        "error",
        "unit",
        "predicted",
        "allowed",
        "floor",
        "gain",
        "cosine",
        "sign bias",
        "ulp 99 %",
        "not finite",
        "saturated",
        "largest at",
        "verdict",
    ];
    let rows: Vec<Markup> = layer.taps.iter().take(share).map(|t| tap(t, places)).collect();
    html! {
        details id=(format!("layer-{i}")) {
            summary {
                @if layer.name.bytes().all(|b| b.is_ascii_digit()) { "layer " }
                (name(layer.name)) " " (verdict(layer.verdict()))
                @if let Some(row) = layer.worst() {
                    ": " (name(&row.tap)) " " (maybe(row.value)) ", allowed " (maybe(row.tolerance))
                }
            }
            (table(&format!("Taps, part {}", i + 1), &heads, &rows))
            (super::bits::more(layer.taps.len().saturating_sub(share), "taps.csv"))
        }
    }
}

fn tap(t: &Tap<'_>, places: &[Place<'_>]) -> Markup {
    let r = t.worst;
    // The question is asked by the tap's whole name: layer, tap and part.
    let asks = |what: &str| {
        question("rows", "taps.csv", what, &[("tap", &tap_name(r)), ("part", &r.part), ("layer", &r.layer)])
    };
    html! {
        tr {
            td { (name(&r.op)) }
            th scope="row" { (name(&r.tap)) @if !r.part.is_empty() { " " (name(&r.part)) } }
            td { (asked(t.rows as f64, &asks("all"))) }
            td { @if t.failing > 0 { b.fail { (asked(t.failing as f64, &asks("fail"))) } } @else { (asked(0.0, &asks("fail"))) } }
            td { (name(&r.patch_set)) " " (name(phase_name(r))) }
            td { (maybe(r.value)) }
            td { (name(&r.gate)) }
            td { (maybe(r.predicted)) }
            td { (maybe(r.tolerance)) }
            td { (maybe(r.floor)) }
            td { (maybe(r.gain)) }
            td { (maybe(r.cosine)) }
            td { (maybe(r.sign_bias)) }
            td { (maybe(r.ulp_p99)) }
            td { (count(r.nonfinite)) }
            td { (count(r.saturated)) }
            td { (at(r, places)) }
            td { (verdict(r.verdict)) @if t.unproven > 0 { " (unproven: " (asked(t.unproven as f64, &asks("unproven"))) ")" } }
        }
    }
}

/// The position of the largest error, as a link where the token is shown.
fn at(r: &TapRow, places: &[Place<'_>]) -> Markup {
    let Some(position) = r.max_abs_position else { return html! { "–" } };
    if counts_entries(r) {
        return html! { "entry " (count(position)) };
    }
    let shown = places.iter().position(|p| p.sequence == r.sequence && p.position == position);
    html! {
        @match shown {
            Some(i) => a href=(format!("#token-{i}")) { (count(position)) },
            None => (count(position)),
        }
    }
}

fn token(i: usize, place: &Place<'_>) -> Markup {
    let rows: Vec<Markup> = place
        .tokens
        .iter()
        .take(SETS)
        .map(|t| {
            html! {
                tr {
                    th scope="row" { (name(&t.patch_set)) " " (name(&t.phase)) " " (name(&t.history)) }
                    td { (data(t.kl)) }
                    td { (count(t.top1_golden)) }
                    td { (count(t.top1_candidate)) }
                    td { (data(t.margin_golden)) }
                    td { (maybe(t.expected_flip_probability)) }
                    td { (data(t.top_k_overlap)) }
                    td { (maybe(t.target_rank.map(|r| r as f64))) }
                    td { (data(t.delta_logit_rms)) }
                }
            }
        })
        .collect();
    let heads = [
        "patch set",
        "KL",
        "golden's top id",
        "candidate's",
        "golden's margin",
        "chance to change",
        "top-ten overlap",
        "rank of what follows",
        "logit difference, RMS",
    ];
    html! {
        details id=(format!("token-{i}")) {
            summary {
                "Position " (count(place.position)) " of " (name(place.sequence))
                @if let Some(token) = place.tokens.first() { ": KL " (data(token.kl)) " under " (name(&token.patch_set)) }
            }
            (table(&format!("Logits, position {} of the list", i + 1), &heads, &rows))
            @if !place.changed.is_empty() {
                p {
                    "Changed decisions here: "
                    @for (n, ((layer, kind, set), times)) in place.changed.iter().take(24).enumerate() {
                        @if n > 0 { ", " }
                        "layer " (name(layer)) " " (name(kind)) " "
                        (asked(*times as f64, &question("count", "flips.csv", "kind", &[
                            ("sequence", place.sequence), ("position", &place.position.to_string()), ("layer", layer), ("kind", kind), ("patch_set", set),
                        ])))
                        " under " (name(set))
                    }
                    @if place.changed.len() > 24 { ", and more in " code { "flips.csv" } }
                }
            }
        }
    }
}
