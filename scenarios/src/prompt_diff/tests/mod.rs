//! Prompts broken by hand: each names its rule, and where. The made model's tokenizer has one id a byte, so positions
//! are counted from the text.

mod histories;
mod random;

use std::sync::LazyLock;

use karat_model::prompt::{Encoder, EncodingTexts, Json, Message, Tokenizer, special};
use karat_model::{Geometry, new_model};

use super::{Comparison, Finding, ModeFrom, Rule, compare};
use crate::import::{Asked, Served};

static MADE: LazyLock<(Tokenizer, Encoder)> = LazyLock::new(|| {
    let files = new_model(Geometry::Mini, 1);
    let tokenizer = Tokenizer::from_json("tokenizer.json", &files["tokenizer.json"]).unwrap();
    (tokenizer, Encoder::new(EncodingTexts::from_json(&files["encoding.json"]).unwrap()))
});

fn messages(json: &str) -> Vec<Message> {
    Message::list_from_json(&Json::parse(json).unwrap()).unwrap()
}

/// Special tokens for their short forms, so that a prompt can be read.
fn long(short: &str) -> String {
    short
        .replace('^', special::BOS)
        .replace('$', special::EOS)
        .replace("<U>", special::USER)
        .replace("<A>", special::ASSISTANT)
        .replace("DSML", special::DSML)
}

/// Number of ids of a text in short form.
fn ids(short: &str) -> usize {
    let mut one_each = short.to_owned();
    for token in ["<U>", "<A>", "<think>", "</think>", "DSML"] {
        one_each = one_each.replace(token, "#");
    }
    one_each.len()
}

/// What a server made of the messages, against what it should have made.
fn against(json: &str, thinking: bool, effort: Option<&str>, found: &str) -> Comparison {
    let asked = Asked { thinking: Some(thinking), effort: effort.map(str::to_owned) };
    let served = Served::Text(long(found));
    let made = &*MADE;
    compare(&messages(json), &asked, &served, None, (&made.1, &made.0), made.0.len()).unwrap()
}

/// The one broken rule. `right` is the prompt as it should be, in short form and checked to be what golden renders;
/// `before` is its text up to the first id that differs.
fn one(json: &str, thinking: bool, effort: Option<&str>, right: &str, broken: &str, before: &str) -> Finding {
    let same = against(json, thinking, effort, right);
    assert_eq!((same.findings, same.first), (vec![], None), "the right prompt");
    let compared = against(json, thinking, effort, broken);
    assert_eq!(compared.findings.len(), 1, "{:#?}", compared.findings);
    assert!(right.starts_with(before), "{before:?}");
    assert_eq!(compared.first, Some(ids(before)), "{:#?}", compared.findings);
    compared.findings.into_iter().next().unwrap()
}

#[test]
fn the_mode_is_the_person_s_the_request_s_or_the_nearer_one() {
    let hi = messages(r#"[{"role": "user", "content": "Hi"}]"#);
    let run = |asked: Option<bool>, person: Option<bool>, found: &str| {
        let asked = Asked { thinking: asked, effort: None };
        compare(&hi, &asked, &Served::Text(long(found)), person, (&MADE.1, &MADE.0), MADE.0.len()).unwrap()
    };
    let (chat, think) = ("^<U>Hi<A></think>", "^<U>Hi<A><think>");
    for (found, thinking) in [(chat, false), (think, true)] {
        let nearer = run(None, None, found);
        assert_eq!((nearer.options.thinking, nearer.mode_from, nearer.findings.len()), (thinking, ModeFrom::Prompt, 0));
    }
    let asked = run(Some(true), None, chat);
    assert_eq!((asked.mode_from, asked.findings[0].rule), (ModeFrom::Request, Rule::ThinkTag));
    let person = run(Some(true), Some(false), chat);
    assert_eq!((person.mode_from, person.findings.len()), (ModeFrom::Person, 0));
}

#[test]
fn ids_are_compared_as_ids() {
    let hi = messages(r#"[{"role": "user", "content": "Hi"}]"#);
    let asked = Asked { thinking: Some(false), effort: None };
    let right = MADE.0.encode(&long("^<U>Hi<A></think>")).unwrap();
    let run = |ids: &[u32]| compare(&hi, &asked, &Served::Ids(ids.to_vec()), None, (&MADE.1, &MADE.0), MADE.0.len());
    assert_eq!(run(&right).unwrap().findings, []);
    let mut other = right.clone();
    other[2] = right[3];
    let found = run(&other).unwrap();
    assert_eq!((found.findings[0].rule, found.first, found.found_ids), (Rule::Content, Some(2), right.len()));
    let beyond = run(&[0, 60_000]).unwrap_err();
    assert!(beyond.place.contains("id 1") && beyond.hint.is_some(), "{beyond}");
}

#[test]
fn an_unknown_effort_tier_is_told() {
    let compared = against(r#"[{"role": "user", "content": "Hi"}]"#, true, Some("medium"), "^<U>Hi<A><think>");
    assert_eq!(compared.findings, []);
    assert!(compared.notes[0].contains("medium"), "{:?}", compared.notes);
}

#[test]
fn every_rule_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<&str> = Rule::ALL.iter().map(|r| r.name()).collect();
    assert_eq!(names.len(), Rule::ALL.len());
}
