//! Servers that don't answer, or not what the API says: never a `fail`.

use std::time::Duration;

use karat_bundle::Verdict;
use karat_model::prompt::{EncodeOptions, Message, Role};

use super::oracle::{Fault, conversations, patient_server, server, start};
use crate::recall::{Suite, run};
use crate::talk::{Conversation, Habits};
use crate::trouble::Trouble;

fn ask(fault: Fault, conversations: &[Conversation]) -> (Result<String, Trouble>, u32) {
    let serving = start(fault, conversations);
    let patience = if matches!(fault, Fault::Slow(_)) { 400 } else { 20_000 };
    let server = patient_server(&serving.url(), Duration::from_millis(patience));
    let messages = [Message::new(Role::User, "what is it?")];
    let (reply, retries) = server.client.patiently(|| server.ask(&messages, &EncodeOptions::chat(), 32, None));
    (reply.map(|r| r.content), retries)
}

#[test]
fn what_may_go_well_later_is_tried_again_and_is_infra_in_the_end() {
    for (fault, word) in [
        (Fault::Status(429, 9), "429"),
        (Fault::Status(500, 9), "500"),
        (Fault::Status(503, 9), "503"),
        (Fault::Slow(900), "timed out"),
        (Fault::Cut, "cut"),
    ] {
        let (reply, retries) = ask(fault, &[]);
        let Err(Trouble::Infra(what, _)) = reply else { panic!("{fault:?}: {reply:?}") };
        assert!(what.contains(word), "{fault:?}: {what}");
        assert!(!what.contains("s3cret"), "{what}");
        assert_eq!(retries, 1, "{fault:?}");
    }
    for fault in [Fault::Status(429, 1), Fault::Status(500, 1)] {
        assert!(matches!(ask(fault, &[]), (Ok(said), 1) if said.starts_with("i do not know")), "{fault:?}");
    }
}

#[test]
fn no_server_is_infra_a_refusal_is_not_and_garbage_is_input() {
    let url = start(Fault::None, &[]).url();
    let gone = server(&url);
    let messages = [Message::new(Role::User, "what is it?")];
    assert!(gone.ask(&messages, &EncodeOptions::chat(), 8, None).unwrap_err().is_infra());
    for status in [400, 401, 404] {
        let (reply, retries) = ask(Fault::Status(status, 9), &[]);
        assert!(matches!(&reply, Err(Trouble::Refused(what)) if !what.contains("s3cret")), "{reply:?}");
        assert_eq!(retries, 0);
    }
    assert!(matches!(ask(Fault::Garbage, &[]).0, Err(Trouble::Malformed(_))));
}

#[test]
fn a_suite_without_answers_ends_as_infra_and_stops_early() {
    let talks = conversations(&["turn-two", "own-answer"]);
    let habits = Habits { abort_every: 0, most: 64, seed: 7, repeat: 0, budget: None };
    let suite = Suite { conversations: &talks, habits, concurrency: 2, repeats: 3, patch_set: "endpoint" };
    for (fault, verdict) in [(Fault::Status(503, usize::MAX), Verdict::Infra), (Fault::Garbage, Verdict::Input)] {
        let serving = start(fault, &talks);
        let found = run(&server(&serving.url()), &suite, &|_, _, _| {}).unwrap();
        assert!(found.rows.is_empty());
        assert_eq!(found.findings[0].verdict, verdict, "{:?}", found.findings);
        assert!(!found.findings[0].reason.contains("s3cret"));
        // Not every conversation is tried in vain.
        assert!(found.requests.len() < 8 && found.notes.iter().any(|n| n.contains("not held")), "{:?}", found.notes);
    }
    // Refused from the first on: the command is wrong, not the server.
    let serving = start(Fault::Status(401, usize::MAX), &talks);
    assert!(matches!(run(&server(&serving.url()), &suite, &|_, _, _| {}), Err(Trouble::Refused(_))));
}
