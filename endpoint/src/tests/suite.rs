//! The suite as a client: what it counts, and what it catches.

use karat_bundle::judge::recall::{candidate_is_right, golden_is_right};
use karat_bundle::{Bundle, Policy, Report, Verdict, judge};

use super::oracle::{Fault, conversations, server, start};
use crate::recall::{Found, Suite, run};
use crate::speed::Speed;
use crate::talk::{Conversation, Habits};
use crate::{interrupted, template, verdict};

fn suite(conversations: &[Conversation], requests: Option<u64>) -> Suite<'_> {
    let habits = Habits { abort_every: 3, most: 64, seed: 7, repeat: 0, budget: requests };
    Suite { conversations, habits, concurrency: 1, repeats: 1, patch_set: "endpoint" }
}

fn found(fault: Fault, conversations: &[Conversation], suite: &Suite<'_>) -> Found {
    let serving = start(fault, conversations);
    run(&server(&serving.url()), suite, &|_, _, _| {}).unwrap()
}

fn judged(found: &Found) -> Report {
    let mut bundle = Bundle { recall: found.rows.clone(), ..Bundle::default() };
    bundle.run.findings = found.findings.clone();
    bundle.run.findings.extend(verdict::lost(found, 0.01, 1e-3));
    judge(&bundle.evidence(), &Policy { recall_margin: Some(0.01), ..Policy::default() })
}

const NAMES: [&str; 3] = ["tic-tac-toe", "turn-two", "own-answer"];

#[test]
fn a_sound_server_loses_nothing_and_its_cache_is_seen() {
    let talks = conversations(&NAMES);
    let found = found(Fault::None, &talks, &Suite { concurrency: 3, ..suite(&talks, Some(60)) });
    assert!(found.findings.is_empty(), "{:?}", found.findings);
    assert!(found.rows.len() >= 12, "{}", found.rows.len());
    assert!(found.rows.iter().all(|r| candidate_is_right(r) && r.symptom == "fine"));
    assert!(
        found.rows.iter().any(|r| r.history == "after-abort") && found.rows.iter().any(|r| r.kind == "interrupted")
    );
    let speed = Speed::of(&found.requests);
    assert!(speed.closed > 3 && speed.hits > 5 && speed.first_ms.is_some(), "{speed:?}");
    // Nothing is lost of too few answers for the margin: that proves nothing.
    assert_eq!(judged(&found).verdict, Verdict::Unproven);
}

#[test]
fn wrong_prefix_reuse_after_an_abort_is_caught_within_60_requests() {
    let talks = conversations(&NAMES);
    let found = found(Fault::WrongPrefixAfterAbort, &talks, &suite(&talks, Some(60)));
    let requests = Speed::of(&found.requests).requests;
    assert!(requests <= 64, "{requests}");
    let report = judged(&found);
    assert_eq!(report.verdict, Verdict::Fail, "{:?}", report.reasons);
    let lost: Vec<_> = found.rows.iter().filter(|r| golden_is_right(r) && !candidate_is_right(r)).collect();
    // Only behind an abort, and the same prompt without a cache gives them all.
    assert!(lost.len() >= 5 && lost.iter().all(|r| r.history == "after-abort"), "{}", lost.len());
    assert!(lost.iter().all(|r| r.symptom == "wrong value"));
}

#[test]
fn a_server_that_always_forgets_is_told_by_what_it_says_beside_the_question() {
    let talks = conversations(&["turn-two"]);
    let sound = found(Fault::None, &talks, &suite(&talks, None));
    assert!(verdict::forgotten(&sound, 0.01, 1e-3).is_none() && sound.forgotten.len() == sound.rows.len());
    let found = found(Fault::Forgets(3), &talks, &suite(&talks, None));
    assert!(found.rows.iter().any(|r| !candidate_is_right(r)));
    // The control forgets as well: nothing is told apart, and nothing is passed either.
    assert!(found.rows.iter().filter(|r| !candidate_is_right(r)).all(|r| !golden_is_right(r) && r.amnesia.is_none()));
    assert_ne!(judged(&found).verdict, Verdict::Pass);
    assert!(found.proved() < found.rows.len());
    let finding = verdict::forgotten(&found, 0.01, 1e-3).unwrap();
    assert_eq!(finding.verdict, Verdict::Fail);
    assert!(finding.reason.contains("beside the question"), "{}", finding.reason);
}

#[test]
fn what_an_abandoned_request_leaves_is_seen_where_no_answer_changes() {
    let talks = conversations(&NAMES);
    for (fault, is_found) in [(Fault::None, false), (Fault::StaleAbort, true), (Fault::WrongPrefixAfterAbort, true)] {
        let serving = start(fault, &talks);
        let seen = interrupted::check(&server(&serving.url()), &talks, 7, Some(54), (1e-3, "endpoint")).unwrap();
        assert_eq!(seen.requests.len(), 45);
        assert_eq!(seen.requests.iter().filter(|r| r.outcome == "closed").count(), 15);
        let verdicts: Vec<Verdict> = seen.findings.iter().map(|f| f.verdict).collect();
        assert_eq!(verdicts, if is_found { vec![Verdict::Fail] } else { Vec::new() }, "{fault:?}: {:?}", seen.findings);
        assert!(seen.notes.is_empty(), "{:?}", seen.notes);
    }
    // Nine requests are one pair: nothing can be proved, and that is said.
    let serving = start(Fault::StaleAbort, &talks);
    let seen = interrupted::check(&server(&serving.url()), &talks, 7, Some(17), (1e-3, "endpoint")).unwrap();
    assert!(seen.findings.is_empty() && seen.requests.len() == 9);
    assert!(seen.notes.iter().any(|n| n.contains("too few")), "{:?}", seen.notes);
}

#[test]
fn a_server_that_forgets_what_it_has_cached_is_amnesic() {
    let talks = conversations(&["turn-two"]);
    let found = found(Fault::ForgetsCached, &talks, &suite(&talks, None));
    let wrong: Vec<_> = found.rows.iter().filter(|r| !candidate_is_right(r)).collect();
    assert!(!wrong.is_empty());
    assert!(wrong.iter().all(|r| golden_is_right(r) && r.symptom == "amnesia" && r.amnesia == Some(1.0)), "{wrong:?}");
    let report = judged(&found);
    assert_eq!(report.verdict, Verdict::Fail, "{:?}", report.reasons);
    assert!(report.reasons.iter().any(|r| r.contains("amnesia")), "{:?}", report.reasons);
}

#[test]
fn a_template_without_its_system_message_is_seen_by_its_tokens() {
    let talks = conversations(&["turn-two"]);
    for (fault, lost) in
        [(Fault::None, None), (Fault::NoSystem, Some("the system message")), (Fault::NoSystem, Some("the tools"))]
    {
        let serving = start(fault, &talks);
        let counted = template::count(&server(&serving.url())).unwrap();
        let reasons: Vec<&str> = counted.findings.iter().map(|f| f.reason.as_str()).collect();
        assert_eq!(reasons.is_empty(), lost.is_none(), "{reasons:?}");
        assert!(lost.is_none_or(|lost| reasons[0].contains(lost)), "{reasons:?}");
        assert_eq!(counted.requests, 6);
    }
}

#[test]
fn repeats_that_disagree_are_counted_and_toggles_are_held_against_stock() {
    let talks = conversations(&["turn-two"]);
    let twice = Suite { repeats: 2, ..suite(&talks[..1], None) };
    let stock = found(Fault::None, &talks, &twice);
    let n = stock.rows.len() / 2;
    assert_eq!(stock.unsteady(), (0, n));
    let mut other = stock.clone();
    other.rows[0].matched_candidate = 0;
    assert_eq!(other.unsteady(), (1, n));
    // What the control of the other set gave no longer counts.
    other.rows[0].matched_golden = 0;
    other.against(&stock);
    assert!(golden_is_right(&other.rows[0]) && !candidate_is_right(&other.rows[0]));
}
