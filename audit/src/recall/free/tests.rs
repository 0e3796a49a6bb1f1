//! A draft that is checked gives what token-by-token decoding gives.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_bundle::RecallRow;
use karat_model::{Checkpoint, Geometry, new_model};
use karat_reference::{Golden, Mode, Session};
use karat_scenarios::Ask;
use karat_seam::{NoTaps, Path, Requests, Sequence, Span, SpanKind, Turn};

use super::{Said, continued, found, generate, score};
use crate::{Inputs, Job, Quiet, Result};

fn sequence(ids: Vec<u32>, first: u32) -> Sequence {
    let end = ids.len() as u32;
    let span = |kind, start, end| Span { kind, start, end };
    let spans = vec![span(SpanKind::Prompt, 0, first), span(SpanKind::Generated, first, end)];
    Sequence { turns: vec![Turn { spans, interrupted: false }], ..Sequence::prompt("s", ids) }
}

#[test]
fn it_says_what_greedy_decoding_says() {
    let checkpoint = Arc::new(Checkpoint::from_memory("mini", new_model(Geometry::Mini, 4)).unwrap());
    let prompt: Vec<u32> = (0..12).map(|i| (i * 31 + 7) % 400).collect();
    let golden = Golden::new(checkpoint.clone(), Requests::default(), Mode::F32, 1).unwrap();
    let mut session = Session::new(&golden).unwrap();
    let mut logits = session.extend(&prompt, &mut NoTaps).unwrap();
    let mut want = Vec::new();
    for _ in 0..10 {
        let (width, all) = (logits.width(), logits.as_f32("logits").unwrap().to_vec());
        let last = &all[all.len() - width..];
        let best = (0..width).rev().max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap() as u32;
        want.push(best);
        logits = session.extend(&[best], &mut NoTaps).unwrap();
    }
    let stop = AtomicBool::new(false);
    let job = Job { random_weights: true, ..Job::new(checkpoint.clone(), Inputs::default(), &Quiet, &stop) };
    let make =
        |requests| -> Result<Box<dyn Path>> { Ok(Box::new(Golden::new(checkpoint.clone(), requests, Mode::F32, 1)?)) };
    // The draft is wrong from its third id on.
    let draft = [&prompt[..], &want[..2], &[5; 8]].concat();
    let said = generate(&make, &sequence(draft, 12), (None, 10), &job).unwrap();
    assert_eq!(said, Said { ids: want.clone(), finished: false });
    // With the fourth id as the end it stops there.
    let draft = [&prompt[..], &want[..2], &[5; 8]].concat();
    let said = generate(&make, &sequence(draft, 12), (Some(want[3]), 10), &job).unwrap();
    let at = want.iter().position(|&id| id == want[3]).unwrap();
    assert_eq!(said, Said { ids: want[..=at].to_vec(), finished: true });
}

#[test]
fn a_draft_goes_on_behind_the_words_that_were_said_last() {
    let answer = [5, 6, 7, 8, 1, 5, 6, 9];
    assert_eq!(continued(&[1, 2, 6, 7, 8], &answer), Some(&[1, 5, 6, 9][..]));
    assert_eq!(continued(&[8, 1, 5, 6, 9], &answer), Some(&[][..]));
    assert_eq!(continued(&[3, 5, 6], &answer), None);
    assert_eq!(continued(&[7], &answer), None);
}

#[test]
fn answers_are_found_one_behind_the_other() {
    assert_eq!(found(&[1, 2, 3, 1, 2], 0, &[1, 2]), Some(2));
    assert_eq!(found(&[1, 2, 3, 1, 2], 2, &[1, 2]), Some(5));
    assert_eq!(found(&[1, 2, 3], 1, &[1, 2]), None);
    assert_eq!(found(&[1], 5, &[1]), None);
}

#[test]
fn an_answer_behind_the_limit_is_truncated_and_a_stuck_one_repeats() {
    let ids = [9, 9, 9, 4, 5, 6, 7, 8];
    let ask = |answer: std::ops::Range<u32>| Ask {
        fact: 0,
        kind: "fact",
        turn: 3..8,
        told: None,
        expected: "x".into(),
        alone: vec![],
        answer,
    };
    let asks = [ask(4..5), ask(6..7)];
    let golden = Said { ids: ids[3..].to_vec(), finished: true };
    let scored = |candidate: &Said| {
        let row = |question| RecallRow { question, answer_tokens: 1, matched_golden: 1, ..RecallRow::default() };
        let mut rows = vec![row(0), row(1)];
        score(rows.iter_mut(), (&ids, &asks), (&golden, candidate), 16, None).unwrap();
        rows
    };
    let cut = scored(&Said { ids: vec![4, 5, 6], finished: false });
    assert_eq!(
        (cut[0].symptom.as_str(), cut[0].finish_reason.as_str(), cut[0].matched_candidate),
        ("fine", "length", 1)
    );
    assert_eq!((cut[1].symptom.as_str(), cut[1].matched_candidate), ("truncated", 0));
    let stuck = scored(&Said { ids: [vec![4, 5], vec![5; 14]].concat(), finished: false });
    assert_eq!((stuck[1].symptom.as_str(), stuck[1].finish_reason.as_str()), ("repetition", "length"));
    let other = scored(&Said { ids: vec![4, 5, 6, 3, 8], finished: true });
    assert_eq!(
        (other[1].symptom.as_str(), other[1].matched_candidate, other[1].finish_reason.as_str()),
        ("wrong value", 0, "stop")
    );
}
