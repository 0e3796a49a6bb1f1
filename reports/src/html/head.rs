//! What a manager reads: the verdict, one sentence, why, what to do, and on what.

use karat_bundle::{Bundle, FirstBad, Verdict};
use maud::{Markup, html};

use super::bits::{class, name, text};
use crate::facts::{self, Sentence};
use crate::number::{asked, count, data, question};

/// Reasons that are shown at once.
const FIRST: usize = 4;
/// Reasons in all.
const REASONS: usize = 40;

pub(super) fn header(bundle: &Bundle) -> Markup {
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
            (context(bundle))
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

fn context(bundle: &Bundle) -> Markup {
    let run = &bundle.run;
    html! {
        dl.facts {
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
            dd { (data(run.wall_s.total)) " s on " (count(run.threads)) " threads; forward passes " (data(bundle.verdict.forward_equivalents)) }
        }
    }
}
