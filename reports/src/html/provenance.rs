//! What could have been seen, what ran, and what it is no evidence for.

use karat_bundle::Bundle;
use karat_bundle::gate::Gated;
use maud::{Markup, html};

use super::bits::{name, table, text};
use crate::facts;
use crate::number::{asked, count, data};

pub(super) fn power(bundle: &Bundle, gated: &Gated) -> Option<Markup> {
    let seen = &gated.detectable;
    if seen.tensors.is_empty() && seen.means.is_empty() && seen.recall.is_none() {
        return None;
    }
    let of = |v: f64, what: &str, which: &str| {
        asked(v, &format!("detectable; {what}; {}", crate::text::clean(which, crate::text::NAME)))
    };
    let tensors: Vec<Markup> = seen
        .tensors
        .iter()
        .map(|t| {
            html! {
                tr {
                    th scope="row" { (name(&t.unit)) }
                    td { (of(t.rows as f64, "rows", &t.unit)) }
                    td { (of(t.tolerance.0, "tightest", &t.unit)) }
                    td { (of(t.tolerance.1, "loosest", &t.unit)) }
                    td { @if let Some(floors) = t.floors { (of(floors, "floors", &t.unit)) } @else { "not measured" } }
                }
            }
        })
        .collect();
    let means: Vec<Markup> = seen
        .means
        .iter()
        .map(|(limit, n, found)| html! {
            tr { th scope="row" { (name(limit)) } td { (of(*n as f64, "n", limit)) } td { (of(*found, "found", limit)) } }
        })
        .collect();
    Some(html! {
        p { "A gate that passes says how much it would have let through." }
        @if !tensors.is_empty() {
            (table("Errors that would have been seen", &["unit", "rows", "tightest tolerance", "loosest", "tolerance over floor, at least"], &tensors))
        }
        @if !means.is_empty() {
            p { "Limits on means: the smallest true value that is found four times in five." }
            (table("Means that would have been seen", &["limit", "samples", "smallest value found"], &means))
        }
        @if let Some((answers, loss)) = seen.recall {
            p {
                "Recall: " (of(answers as f64, "answers", "")) " answers rule out a loss of a share of "
                (of(loss, "loss", "")) " at best, when none is lost."
            }
        }
        @if gated.limits.tests > 0 {
            p {
                "Tests on samples: " (of(gated.limits.tests as f64, "tests", "")) "; a good run fails by chance with "
                (data(bundle.run.policy.delta)) " at most, over all of them together (Holm)."
            }
        }
    })
}

pub(super) fn section(bundle: &Bundle) -> Markup {
    let run = &bundle.run;
    let files: Vec<Markup> = run
        .tables
        .iter()
        .map(|(file, t)| html! { tr { th scope="row" { (name(file)) } td { (count(t.rows)) } td { code.hash { (t.sha256) } } } })
        .collect();
    html! {
        dl.facts {
            dt { "Program" } dd { (text(&run.producer)) }
            dt { "Command" } dd { code { (crate::text::clean(&run.command.join(" "), crate::text::TEXT)) } }
            dt { "Model" } dd { (text(&run.model.label)) }
            dt { "Config, sha256" } dd { code.hash { (crate::text::clean(&run.model.config_sha256, 80)) } }
            dt { "Weights, sha256" } dd { code.hash { (crate::text::clean(&run.model.weights_sha256, 80)) } }
            @for s in run.scenarios.iter().take(40) {
                dt { "Ids of " (name(&s.name)) ", sha256" } dd { code.hash { (crate::text::clean(&s.ids_sha256, 80)) } }
            }
            dt { "Candidate" } dd { (text(&run.candidate.name)) ", claims " (text(&run.candidate.claims)) }
            dt { "Patch sets" }
            dd { @for (i, set) in run.candidate.patch_sets.iter().take(40).enumerate() { @if i > 0 { ", " } (name(set)) } }
            @if !run.patches.is_empty() {
                dt { "Patches, asked for and seen" }
                dd {
                    @for (i, p) in run.patches.iter().take(60).enumerate() {
                        @if i > 0 { ", " } (name(&p.patch)) " (executions " (count(p.observed_calls)) ", " (text(&p.state)) ")"
                    }
                }
            }
            dt { "Ran on" } dd { (text(&run.backend)) " " (text(&run.device)) }
            @for (kernel, hash) in run.kernels.iter().take(60) { dt { "Kernel " (name(kernel)) } dd { code.hash { (crate::text::clean(hash, 80)) } } }
            @for (what, seed) in run.seeds.iter().take(20) { dt { "Seed of " (name(what)) } dd { (count(*seed)) } }
            dt { "Seconds" }
            dd { (data(run.wall_s.total)) " (golden " (data(run.wall_s.golden)) ", candidate " (data(run.wall_s.candidate)) ", comparing " (data(run.wall_s.diff)) ")" }
            @if let Some(parts) = &run.wall_s.parts {
                dt { "Where the time went, seconds" }
                dd {
                    @for (i, (what, seconds)) in parts.named().iter().enumerate() {
                        @if i > 0 { ", " }
                        (what) " " (data(*seconds))
                    }
                }
            }
            dt { "Threads, peak memory in bytes" } dd { (count(run.threads)) ", " (count(run.peak_memory_bytes)) }
            @if run.cache.on {
                dt { "From earlier runs" }
                dd { (count(run.cache.comparisons)) " of " (count(run.cache.comparisons_asked)) " comparisons, " (count(run.cache.golden)) " of " (count(run.cache.golden_asked)) " golden blocks" }
            }
            dt { "Bundle" } dd { (text(&run.format)) ", schema " (count(u64::from(run.schema.version))) " " code.hash { (crate::text::clean(&run.schema.hash, 80)) } }
        }
        (table("Files of the bundle", &["file", "rows", "sha256"], &files))
    }
}

pub(super) fn not_evidence(bundle: &Bundle) -> Markup {
    html! {
        ul { @for note in facts::not_evidence(bundle).iter().take(60) { li { (text(note)) } } }
    }
}
