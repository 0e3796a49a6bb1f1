//! What the error looks like, and what to try.

use karat_bundle::{Bundle, Examination};
use maud::{Markup, html};

use super::bits::{name, table, text};
use crate::number::{data, maybe};

pub(super) fn section(bundle: &Bundle) -> Option<Markup> {
    let report = &bundle.verdict;
    if report.examination.is_none() && report.signature.is_none() && report.suspects.is_empty() {
        return None;
    }
    let suspects: Vec<Markup> = report
        .suspects
        .iter()
        .take(20)
        .map(|s| html! {
            tr {
                th scope="row" { (name(&s.layer)) }
                td { (name(&s.op)) } td { (name(&s.tap)) } td { (name(&s.patch_set)) } td { (data(s.over_tolerance)) }
            }
        })
        .collect();
    Some(html! {
        p {
            @match &report.signature {
                Some(signature) => { "It looks like: " b { (text(signature)) } }
                None => "No signature fits, or none was tested.",
            }
        }
        @if let Some(found) = &report.examination { (examined(found)) }
        @if !suspects.is_empty() {
            h3 { "Suspects" }
            (table("Suspects", &["layer", "op", "tap", "patch set", "error over tolerance"], &suspects))
        }
        h3 { "What to try" }
        ul {
            @if !report.next_step.is_empty() { li { (text(&report.next_step)) } }
            @if let Some(bad) = &report.first_bad {
                li { "How the tolerance came about: " code { "karat report BUNDLE --explain " (crate::text::clean(&crate::facts::place(&bad.layer, &bad.tap), crate::text::NAME)) } }
                li { "Which patches are needed for it: " code { "karat bisect --over patches" } "; which op: " code { "karat bisect --over ops" } }
                li { "Unattended, with what is ruled out: " code { "karat isolate" } }
            }
        }
    })
}

fn examined(found: &Examination) -> Markup {
    let tests: Vec<Markup> = found
        .signatures
        .iter()
        .map(|s| {
            html! {
                tr {
                    th scope="row" { (name(&s.name)) }
                    td { (data(s.share)) }
                    td { @match &s.fits { Some(fits) => { b.fail { "fits: " } (text(fits)) } None => "does not fit" } }
                }
            }
        })
        .collect();
    let effects: Vec<Markup> = found
        .effects
        .iter()
        .map(|e| html! { tr { th scope="row" { (name(&e.layer)) } td { (data(e.removed)) } td { (data(e.alone)) } } })
        .collect();
    html! {
        @if let Some(change) = &found.change_point {
            p {
                "Errors over predictions begin to be others at " (name(&change.layer)) " " (name(&change.tap)) ", by "
                (data(change.statistic)) " standard errors; noise alone does so with chance " (data(change.chance)) " at most."
            }
        }
        @if !found.op.is_empty() {
            p {
                "The op " (name(&found.op)) " on the operands that it was given: " (data(found.op_error)) " at " (name(&found.tap))
                ", where its roundings cost " (data(found.op_predicted)) ". KL " (data(found.kl)) ", with golden's op in its place "
                (data(found.kl_with_golden_op)) "."
            }
        }
        @if found.routing_share.is_some() {
            p { "Share of the inherited error that other decisions bring: " (maybe(found.routing_share)) "." }
        }
        @if let Some(kv) = &found.kv {
            p {
                "What changes " code { "attn.out" } ": the streams that came in " (data(kv.stream)) ", the rows in the cache " (data(kv.cache))
                ", both " (data(kv.both)) "; what reads the cache " (data(kv.kernel)) "."
            }
        }
        @if !effects.is_empty() {
            h3 { "Layers by what they do to the final distribution" }
            (table("Effect of layers", &["layer", "KL gone with golden's", "KL of it alone in golden"], &effects))
        }
        @if !tests.is_empty() {
            h3 { "Signatures tested" }
            (table("Signatures tested", &["signature", "share of the squared error", "finding"], &tests))
        }
    }
}
