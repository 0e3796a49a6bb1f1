//! What a manager reads: the verdict, one sentence, why, what to do, and on what.

use karat_bundle::{Bundle, FirstBad, Verdict, history_verdict};
use maud::{Markup, html};

use super::bits::{class, name, text};
use crate::facts::{self, Layer, Sentence};
use crate::number::{asked, count, data, maybe, question};

/// Reasons that are shown at once.
const FIRST: usize = 4;
/// Reasons in all.
const REASONS: usize = 40;

pub(super) fn header(bundle: &Bundle, layers: &[Layer<'_>]) -> Markup {
    let report = &bundle.verdict;
    let reasons = facts::reasons(bundle);
    html! {
        header class=(class(report.verdict)) {
            h1 { span.verdict { (report.verdict.name()) } " " (sentence(bundle)) }
            p { (meaning(report.verdict)) " Exit code " (count(u64::from(report.exit_code))) "." }
            @if !report.next_step.is_empty() && report.next_step != "nothing" {
                p { b { "Next: " } (text(&report.next_step)) }
            }
            (list(&reasons[..reasons.len().min(FIRST)]))
            @if reasons.len() > FIRST {
                details { summary { "More reasons" } (list(&reasons[FIRST..reasons.len().min(REASONS)])) }
            }
            dl.facts { (in_short(bundle, layers)) (context(bundle)) }
        }
    }
}

fn list(reasons: &[String]) -> Markup {
    html! { @if !reasons.is_empty() { ul.reasons { @for reason in reasons { li { (text(reason)) } } } } }
}

fn sentence(bundle: &Bundle) -> Markup {
    match facts::sentence(bundle) {
        Sentence::Told(told) => text(told),
        Sentence::First(bad) => first(bad),
        Sentence::Counted { judged, over: 0 } => {
            let judged = asked(judged as f64, &question("count", "taps.csv", "verdict", &[]));
            html! { "all " (judged) " judged rows are within tolerance" }
        }
        Sentence::Counted { judged, over } => {
            let judged = asked(judged as f64, &question("count", "taps.csv", "verdict", &[]));
            let over = asked(over as f64, &question("count", "taps.csv", "verdict", &[("verdict", "fail")]));
            html! { (over) " of " (judged) " judged rows are over tolerance, and allowed for now" }
        }
        Sentence::Recalled { lost, gained, answers } => {
            let of = |what: &str, v: u64| asked(v as f64, &question("recall", "recall.csv", what, &[]));
            html! { (of("lost", lost)) " lost and " (of("gained", gained)) " gained of " (of("answers", answers)) " answers" }
        }
        Sentence::Served { histories } => {
            let n = asked(histories as f64, &question("distinct", "histories.csv", "history", &[]));
            html! { "every judged comparison of " (n) " histories passes" }
        }
        Sentence::Nothing => html! { "nothing more was found" },
    }
}

fn first(bad: &FirstBad) -> Markup {
    html! {
        (name(&facts::place(&bad.layer, &bad.tap))) " is the first place over tolerance, in " (name(&bad.phase)) " of "
        (name(&bad.patch_set)) ": " (data(bad.injected)) ", allowed " (data(bad.tolerance)) " (" (name(&bad.gate)) ")"
    }
}

/// What the verdict means to somebody who decides.
fn meaning(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "The change may go in, as far as this run can tell.",
        Verdict::Improved => "The change may go in; it is better than the baseline, which should be renewed.",
        Verdict::Fail => "The change must not go in: it costs more than its number formats explain.",
        Verdict::Regressed => "The change must not go in: it is worse than the baseline beyond noise.",
        Verdict::Unproven => "This is no pass: the run could not have seen what it was asked to rule out.",
        Verdict::Skipped => "The run was skipped.",
        Verdict::Infra | Verdict::Flaky => "The surroundings failed: run it again.",
        Verdict::Usage | Verdict::Input => "The run did not come to a judgement.",
    }
}

/// One line of each part of the page, so that the first minute sees all of them.
fn in_short(bundle: &Bundle, layers: &[Layer<'_>]) -> Markup {
    let rows = layers.iter().filter_map(Layer::worst);
    let nearest = rows.reduce(|a, b| if facts::nearness(a) >= facts::nearness(b) { a } else { b });
    let costs = bundle.patches.iter().filter(|p| p.added_kl.is_some());
    let costliest = costs.max_by(|a, b| a.added_kl.partial_cmp(&b.added_kl).unwrap_or(std::cmp::Ordering::Equal));
    let recalled = facts::recall(bundle);
    let judged = bundle.histories.iter().filter_map(|r| history_verdict(r, &bundle.run.policy));
    let differing = judged.filter(|v| v.exit_code() != 0).count();
    let notes = facts::not_evidence(bundle);
    html! {
        @if let Some(r) = nearest {
            dt { @if facts::nearness(r) > 1.0 { "Farthest over tolerance" } @else { "Nearest to tolerance" } }
            dd {
                a href="#layers" { (name(&facts::name(r))) } " in " (name(facts::phase_name(r))) " of " (name(&r.patch_set)) ": "
                (maybe(r.value)) ", allowed " (maybe(r.tolerance)) " (" (name(&r.gate)) ")"
            }
        }
        @if let Some(p) = costliest {
            dt { "Costliest patch" }
            dd {
                a href="#patches" { (name(&p.patch)) } ": added KL " (maybe(p.added_kl))
                @if p.added_kl <= Some(0.0) { " (no patch adds any)" }
                @if let Some(n) = p.added_flips { ", changed most likely ids added " (data(n as f64)) }
            }
        }
        @if let Some(set) = recalled.last() {
            @let of = |what: &str, n: u64| asked(n as f64, &question("recall", "recall.csv", what, &[("patch_set", set.set)]));
            dt { "Answers" }
            dd {
                a href="#recall" { (of("lost", set.bounds.lost)) " lost" } ", " (of("gained", set.bounds.gained)) " gained of "
                (of("answers", set.bounds.answers)) " under " (name(set.set))
            }
        }
        @if !bundle.histories.is_empty() {
            dt { "Histories" }
            dd {
                a href="#histories" { (asked(facts::histories(bundle) as f64, &question("distinct", "histories.csv", "history", &[]))) }
                "; comparisons that do not pass: " (asked(differing as f64, "differing histories"))
            }
        }
        @if let Some(signature) = &bundle.verdict.signature {
            dt { "Looks like" }
            dd { a href="#signature" { (text(signature)) } }
        }
        @if let Some(note) = notes.first() {
            dt { "No evidence for" }
            dd { (text(note)) @if notes.len() > 1 { " (" a href="#limits-of-evidence" { "and more" } ")" } }
        }
    }
}

fn context(bundle: &Bundle) -> Markup {
    let run = &bundle.run;
    let passes = bundle.verdict.forward_equivalents;
    html! {
        dt { "Model" }
        dd { (text(&run.model.label)) @if run.model.random_weights { " (random weights)" } }
        @for s in run.scenarios.iter().take(12) {
            dt { "Scenario" }
            dd { (text(&s.name)) ": sequences " (count(s.sequences)) ", rows " (count(s.rows)) }
        }
        @if run.scenarios.len() > 12 { dt { "Scenario" } dd { "and more, in " code { "run.json" } } }
        dt { "Candidate" }
        dd { (text(&run.candidate.name)) ", claims " (text(&run.candidate.claims)) ", on " (text(&run.backend)) " " (text(&run.device)) }
        dt { "Took" }
        dd { (data(run.wall_s.total)) " s on " (count(run.threads)) " threads" @if passes > 0.0 { "; forward passes " (data(passes)) } }
    }
}
