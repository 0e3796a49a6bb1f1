//! Error by layer, and layer by position.

use karat_bundle::Bundle;
use maud::{Markup, PreEscaped, html};

use super::bits::{name, table, verdict, wide};
use crate::facts::{self, Layer};
use crate::number::{asked, maybe, question};
use crate::plot;

pub(super) fn by_layer(layers: &[Layer<'_>], set: Option<&str>) -> Option<Markup> {
    if layers.is_empty() {
        return None;
    }
    let drawn = plot::by_layer(layers);
    let has_band = layers.iter().filter(|l| l.band().is_some()).count() > 1;
    let has_floor = layers.iter().any(|l| l.floor().is_some());
    let mut keys = vec![("line inherited", "inherited"), ("line injected", "injected")];
    keys.extend(has_band.then_some(("box band", "predicted to allowed")));
    keys.extend(has_floor.then_some(("line floor", "floor")));
    let rows: Vec<Markup> = layers.iter().enumerate().map(|(i, layer)| line(i, layer)).collect();
    let heads = [
        "layer",
        "inherited",
        "injected",
        "nearest to tolerance",
        "patch set, phase",
        "unit",
        "error",
        "predicted",
        "allowed",
        "floor",
        "verdict",
    ];
    Some(html! {
        p {
            "What leaves each layer under " @if let Some(set) = set { (name(set)) } " in its worst phase and sequence, as rel-L2. "
            b { "Inherited" } " came in with the layer's input; " b { "injected" } " was added by the layer itself. "
            @if has_band { "The band lies between what its roundings must cost and what is allowed. " }
            @if has_floor { "Under the floor golden itself is no surer." }
            @else { "Golden's own floor was not measured here (" code { "--floor" } ")." }
        }
        @if let Some(svg) = drawn {
            (legend(&keys))
            (wide("Chart: error by layer; the table below has its numbers", &PreEscaped(svg)))
        }
        (table("Error by layer", &heads, &rows))
    })
}

fn line(i: usize, layer: &Layer<'_>) -> Markup {
    let out = layer.out;
    let worst = layer.worst();
    html! {
        tr {
            th scope="row" { a href=(format!("#layer-{i}")) { (name(layer.name)) } }
            td { (maybe(out.and_then(|r| r.inherited))) }
            td { (maybe(out.and_then(|r| r.injected))) }
            @match worst {
                Some(row) => {
                    td { (name(&row.tap)) }
                    td { (name(&row.patch_set)) " " (name(&row.phase)) }
                    td { (name(&row.gate)) }
                    td { (maybe(row.value)) }
                    td { (maybe(row.predicted)) }
                    td { (maybe(row.tolerance)) }
                    td { (maybe(row.floor)) }
                }
                None => { @for _ in 0..7 { td { "–" } } }
            }
            td { (verdict(layer.verdict())) }
        }
    }
}

pub(super) fn heat(bundle: &Bundle, layers: &[Layer<'_>], set: Option<&str>) -> Option<Markup> {
    let heat = facts::heat(bundle, layers, set)?;
    let svg = plot::heat(&heat)?;
    let most = (heat.most() > 0).then(|| {
        html! { " The fullest field has " (asked(heat.most() as f64, &format!("most changed; step={}; set={}", heat.step, crate::text::clean(heat.set, crate::text::NAME)))) " of them." }
    });
    let step = asked(heat.step as f64, "positions a column");
    let rows: Vec<Markup> = heat
        .layers
        .iter()
        .enumerate()
        .filter_map(|(i, layer)| {
            let of = |kind| {
                let n = heat.by_kind.get(&(i, kind)).copied().unwrap_or(0);
                let filter = [("layer", *layer), ("kind", kind), ("patch_set", heat.set)];
                (n, asked(n as f64, &question("count", "flips.csv", "kind", &filter)))
            };
            let (experts, entries) = (of("expert"), of("entry"));
            (experts.0 + entries.0 > 0).then(|| {
                html! {
                    tr { th scope="row" { (name(layer)) } td { (experts.1) } td { (entries.1) } }
                }
            })
        })
        .collect();
    Some(html! {
        p {
            "Fields: changed experts and entries under " (name(heat.set)) "; positions in a column: " (step) "." @if let Some(most) = most { (most) }
            " Rings: where the row nearest to its tolerance in each layer has its largest error."
        }
        (legend(&[("box h1", "few"), ("box h3", "more"), ("box h5", "most changed decisions"), ("ring", "largest error")]))
        (wide("Map of layers by positions", &PreEscaped(svg)))
        @if !rows.is_empty() {
            details { summary { "Changed decisions by layer" } (table("Changed decisions by layer", &["layer", "experts", "entries"], &rows)) }
        }
    })
}

/// Names of what is drawn.
pub(super) fn legend(items: &[(&str, &str)]) -> Markup {
    html! { ul.legend { @for (class, word) in items { li { span class={ "key " (class) } {} (word) } } } }
}
