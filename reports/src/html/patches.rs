//! Speed patches: what each costs beside what it gains, and whether it ran at all.

use karat_bundle::gate::Gated;
use karat_bundle::{Bundle, PatchRow};
use maud::{Markup, html};

use super::bits::{name, table, text, verdict};
use crate::number::{count, data, maybe};

pub(super) fn section(bundle: &Bundle) -> Option<Markup> {
    if bundle.patches.is_empty() {
        return None;
    }
    let rows: Vec<Markup> = bundle.patches.iter().map(line).collect();
    let heads = [
        "patch",
        "speed-up",
        "added KL",
        "added flips",
        "answers lost",
        "measured",
        "claimed",
        "risk",
        "expected",
        "verdict",
    ];
    Some(html! {
        p {
            "Speed beside added error, each patch alone on its stock profile. Measured and claimed: injected rel-L2 at the \
             patch's own ops. A speed-up is a dash where a contract on the CPU stood for the kernel."
        }
        (table("Speed patches", &heads, &rows))
        @for patch in bundle.patches.iter().filter(|p| p.expected_verdict.is_some() && p.expected_verdict != p.verdict) {
            p.warn { (name(&patch.patch)) ": the committed table expects " (verdict(patch.expected_verdict)) "." }
        }
    })
}

fn line(p: &PatchRow) -> Markup {
    html! {
        tr {
            th scope="row" { (name(&p.patch)) }
            td { (maybe(p.speedup)) }
            td { (maybe(p.added_kl)) }
            td { (maybe(p.added_flips.map(|n| n as f64))) }
            td { (maybe(p.recall_lost.map(|n| n as f64))) }
            td { (maybe(p.measured_error)) }
            td { (data(p.claimed_error)) }
            td { (name(&p.risk)) }
            td { (verdict(p.expected_verdict)) }
            td { (verdict(p.verdict)) }
        }
    }
}

pub(super) fn coverage(bundle: &Bundle) -> Option<Markup> {
    if bundle.patches.is_empty() {
        return None;
    }
    let rows: Vec<Markup> = bundle
        .patches
        .iter()
        .map(|p| {
            html! {
                tr {
                    th scope="row" { (name(&p.patch)) }
                    td { (name(&p.phases)) }
                    td { (count(p.calls_prefill)) }
                    td { (count(p.calls_decode)) }
                    td { (count(p.largest_prefill)) }
                    td { (name(&p.state)) }
                    td { (name(&p.profile)) }
                }
            }
        })
        .collect();
    let heads =
        ["patch", "acts in", "executions in prefill", "in decode", "most rows at once", "effect probe", "on profile"];
    Some(html! {
        p {
            "A patch that never ran proves nothing. The effect probe places the path between the contracts with and without the \
             patch: active, inert (asked for, without effect), or applied more than once."
        }
        (table("Coverage and probes", &heads, &rows))
    })
}

pub(super) fn limits(gated: &Gated) -> Option<Markup> {
    let judged = &gated.limits.judged;
    if judged.is_empty() {
        return None;
    }
    let has_places = judged.iter().take(200).any(|j| !j.place.is_empty());
    let rows: Vec<Markup> = judged
        .iter()
        .take(200)
        .map(|j| html! {
            tr {
                th scope="row" { (name(&j.limit)) }
                td { (name(&j.patch_set)) }
                td { (asked_limit(j.value, "value", &j.limit, &j.patch_set)) }
                td { (asked_limit(j.bound, "bound", &j.limit, &j.patch_set)) }
                td { @if let Some(upper) = j.upper { (asked_limit(upper, "upper", &j.limit, &j.patch_set)) } @else { "–" } }
                td { (asked_limit(j.n as f64, "n", &j.limit, &j.patch_set)) }
                @if has_places { td { (text(&j.place)) } }
                td { (verdict(Some(j.verdict))) @if j.allowed { " (allowed)" } }
            }
        })
        .collect();
    let mut heads = vec!["limit", "patch set", "value", "limit", "upper bound", "samples"];
    heads.extend(has_places.then_some("where"));
    heads.push("verdict");
    Some(html! {
        p {
            "A mean fails when its excess over the limit is more than chance explains. An upper bound over the limit is no failure: \
             so few samples can't rule that much out. " code { "prove = true" } " asks for that."
        }
        (table("Limits of the policy", &heads, &rows))
        (super::bits::more(judged.len().saturating_sub(200), "verdict.json"))
    })
}

fn asked_limit(v: f64, column: &str, limit: &str, set: &str) -> Markup {
    crate::number::asked(v, &crate::number::question("limit", "policy", column, &[("limit", limit), ("set", set)]))
}
