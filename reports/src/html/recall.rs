//! Recall: grid of context length by depth, phases of the length, strata of golden's margin.

use karat_bundle::{Bundle, RecallRow};
use maud::{Markup, html};

use super::bits::{name, table, text, wide};
use crate::facts::{self, Group, RecallSet};
use crate::number::{asked, count, data, maybe, question};

const LOST: usize = 20;

pub(super) fn section(bundle: &Bundle) -> Option<Markup> {
    let sets = facts::recall(bundle);
    if sets.is_empty() {
        return None;
    }
    let rows: Vec<Markup> = sets.iter().map(line).collect();
    let heads = ["patch set", "answers", "golden right", "candidate right", "lost", "gained", "loss ruled out from"];
    Some(html! {
        p { "What conversations told, asked again. Lost: golden gives it, the candidate doesn't. The last column is the upper 95 % bound of lost less gained, as a share of the answers." }
        (table("Recall by patch set", &heads, &rows))
        @for set in &sets {
            details open[set.bounds.lost > 0] {
                summary { "Where answers stand under " (name(set.set)) }
                (grid(set))
                (phases(set))
                (strata(set))
                (symptoms(set))
                (lost(set))
            }
        }
    })
}

fn line(set: &RecallSet<'_>) -> Markup {
    let b = &set.bounds;
    let of = |what: &str, v: f64| asked(v, &question("recall", "recall.csv", what, &[("patch_set", set.set)]));
    html! {
        tr {
            th scope="row" { (name(set.set)) }
            td { (of("answers", b.answers as f64)) }
            td { (of("golden", set.all.golden as f64)) }
            td { (of("candidate", set.all.candidate as f64)) }
            td { @if b.lost > 0 { b.fail { (of("lost", b.lost as f64)) } } @else { (of("lost", 0.0)) } }
            td { (of("gained", b.gained as f64)) }
            td { (of("upper", b.upper)) }
        }
    }
}

/// Right of asked, and golden's where it differs.
fn field(group: Option<&Group>, question: &str) -> Markup {
    let Some(g) = group else { return html! { td.soft { "–" } } };
    let of = |what: &str, n: u64| asked(n as f64, &format!("{question}; {what}"));
    html! {
        td class=[(g.candidate < g.golden).then_some("lostfield")] {
            (of("candidate", g.candidate)) " of " (of("answers", g.answers))
            @if g.golden != g.candidate { " (golden " (of("golden", g.golden)) ")" }
        }
    }
}

fn grid(set: &RecallSet<'_>) -> Markup {
    let set_name = crate::text::clean(set.set, crate::text::NAME);
    html! {
        h3 { "Context length by depth of the fact" }
        (wide(&format!("Answers by context length and depth under {set_name}"), &html! {
            table.grid {
                thead { tr { th scope="col" { "tokens in context" } @for d in facts::DEPTHS { th scope="col" { (d) } } } }
                tbody {
                    @for (l, title) in facts::LENGTHS.iter().map(|l| l.0).enumerate() {
                        @if (0..facts::DEPTHS.len()).any(|d| set.grid.contains_key(&(l, d))) {
                            tr {
                                th scope="row" { (title) }
                                @for d in 0..facts::DEPTHS.len() { (field(set.grid.get(&(l, d)), &format!("grid; set={set_name}; {l}; {d}"))) }
                            }
                        }
                    }
                }
            }
        }))
    }
}

fn phases(set: &RecallSet<'_>) -> Markup {
    let set_name = crate::text::clean(set.set, crate::text::NAME);
    let rows: Vec<Markup> = facts::MODULI
        .iter()
        .enumerate()
        .map(|(i, modulus)| {
            html! {
                tr {
                    th scope="row" { "modulo " (asked(*modulus as f64, "modulus")) }
                    @for q in 0..4 { (field(set.phases.get(&(i, q)), &format!("phase; set={set_name}; {i}; {q}"))) }
                }
            }
        })
        .collect();
    html! {
        h3 { "Phase of the context length" }
        (table(&format!("Answers by phase of the context length under {set_name}"), &["context length", "first quarter", "second", "third", "last quarter"], &rows))
    }
}

fn strata(set: &RecallSet<'_>) -> Markup {
    let set_name = crate::text::clean(set.set, crate::text::NAME);
    let rows: Vec<Markup> = set
        .strata
        .iter()
        .map(|(stratum, group)| html! {
            tr { th scope="row" { (name(stratum)) } (field(Some(group), &format!("stratum; set={set_name}; {}", crate::text::clean(stratum, crate::text::NAME)))) }
        })
        .collect();
    html! {
        h3 { "Golden's margin over the answer, nats" }
        (table(&format!("Answers by golden's margin under {set_name}"), &["margin", "right"], &rows))
    }
}

fn symptoms(set: &RecallSet<'_>) -> Markup {
    html! {
        p {
            "Answers look: "
            @for (i, (symptom, n)) in set.symptoms.iter().enumerate() {
                @if i > 0 { ", " }
                (name(symptom)) " "
                (asked(*n as f64, &question("count", "recall.csv", "symptom", &[("patch_set", set.set), ("symptom", symptom)])))
            }
        }
    }
}

fn lost(set: &RecallSet<'_>) -> Markup {
    if set.lost.is_empty() {
        return html! {};
    }
    let rows: Vec<Markup> = set.lost.iter().take(LOST).map(|r| answer(r)).collect();
    let heads = [
        "conversation",
        "question",
        "told",
        "said",
        "golden's margin",
        "candidate's",
        "nearness to amnesia",
        "symptom",
        "lost at layer",
    ];
    html! {
        h3 { "Lost answers, those first that golden held best" }
        (table(&format!("Lost answers under {}", crate::text::clean(set.set, crate::text::NAME)), &heads, &rows))
        (super::bits::more(set.lost.len().saturating_sub(LOST), "recall.csv"))
    }
}

fn answer(r: &RecallRow) -> Markup {
    html! {
        tr {
            td { (name(&r.conversation)) }
            td { (count(r.question)) " " (name(&r.kind)) }
            td { (text(&r.expected)) }
            td { (text(&r.said)) }
            td { (data(r.worst_margin_golden)) }
            td { (data(r.worst_margin_candidate)) }
            td { (maybe(r.amnesia)) }
            td { (name(&r.symptom)) }
            td { (maybe(r.lost_at_layer.map(|l| l as f64))) }
        }
    }
}
