//! Recall of a running server: every conversation held with it, and rows as recall's other runs have them.
//!
//! What golden is to a path that karat computes, the server's own cold answer is here: the same prompt behind words that no
//! cache knows. An answer is lost when that control gives it and the conversation did not.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use karat_bundle::{Finding, RecallRow, RequestRow, Verdict};
use karat_scenarios::{Blind, Looks, symptom};

use crate::api::{Reply, Server};
use crate::requests::Log;
use crate::talk::{Answered, Conversation, Habits, hold};
use crate::trouble::Trouble;
use crate::words::{amnesia, numbered, words};

/// How a suite is run.
#[derive(Debug, Clone, Copy)]
pub struct Suite<'a> {
    /// The conversations.
    pub conversations: &'a [Conversation],
    /// How they are held.
    pub habits: Habits,
    /// Conversations at the same time.
    pub concurrency: usize,
    /// Times over.
    pub repeats: u64,
    /// Name of what runs on the server, for the tables.
    pub patch_set: &'a str,
}

/// What a suite found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// One row a question and repeat.
    pub rows: Vec<RecallRow>,
    /// For each row its conversation's number and the repeat.
    pub places: Vec<(usize, u64)>,
    /// For each row whether only the control with what told the answer gives it, and the cold one takes nothing from the history.
    pub forgotten: Vec<bool>,
    /// One row a request.
    pub requests: Vec<RequestRow>,
    /// What bears on the verdict beside the rows.
    pub findings: Vec<Finding>,
    /// What doesn't, and should be known.
    pub notes: Vec<String>,
}

/// So many conversations in a row without an answer end a run.
const GIVE_UP: usize = 4;

struct Held {
    answered: Vec<Answered>,
    requests: Vec<RequestRow>,
    trouble: Option<Trouble>,
}

/// Holds all conversations, several at a time. `step` hears of each that is done: how many, of how many, and which.
///
/// # Errors
/// [`Trouble::Stopped`] when the run is stopped; what the server refuses when it never answered at all.
pub fn run(server: &Server<'_>, suite: &Suite<'_>, step: &(dyn Fn(u64, u64, &str) + Sync)) -> Result<Found, Trouble> {
    let jobs: Vec<(usize, u64)> =
        (0..suite.repeats).flat_map(|r| (0..suite.conversations.len()).map(move |i| (i, r))).collect();
    let held: Vec<Mutex<Option<Held>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let (next, done, failed, sent) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicUsize::new(0), AtomicU64::new(0));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(i, repeat)) = jobs.get(at) else { return };
            let spent = suite.habits.budget.is_some_and(|most| sent.load(Ordering::Relaxed) >= most);
            if spent || failed.load(Ordering::Relaxed) >= GIVE_UP {
                return;
            }
            let conversation = &suite.conversations[i];
            let like = RequestRow {
                scenario: conversation.scenario.clone(),
                conversation: conversation.talk.name.clone(),
                patch_set: suite.patch_set.to_owned(),
                repeat,
                ..RequestRow::default()
            };
            let mut log = Log { like, rows: Vec::new(), sent: &sent };
            let habits = Habits { repeat, ..suite.habits };
            let (answered, trouble) = hold(server, i as u64, conversation, &habits, &mut log);
            match &trouble {
                Some(Trouble::Stopped) => failed.store(GIVE_UP, Ordering::Relaxed),
                Some(_) if answered.is_empty() => {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
                _ => failed.store(0, Ordering::Relaxed),
            }
            *held[at].lock().unwrap_or_else(PoisonError::into_inner) =
                Some(Held { answered, requests: log.rows, trouble });
            step(done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len() as u64, &conversation.talk.name);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..suite.concurrency.clamp(1, jobs.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let held = held.into_iter().map(|h| h.into_inner().unwrap_or_else(PoisonError::into_inner));
    gather(suite, &jobs, held.collect())
}

fn gather(suite: &Suite<'_>, jobs: &[(usize, u64)], held: Vec<Option<Held>>) -> Result<Found, Trouble> {
    let mut found = Found::default();
    let mut troubles: Vec<(String, Trouble)> = Vec::new();
    let mut left = 0;
    for (&(i, repeat), held) in jobs.iter().zip(held) {
        let Some(held) = held else {
            left += 1;
            continue;
        };
        let conversation = &suite.conversations[i];
        let rows = rows(conversation, suite.patch_set, &held.answered);
        found.places.extend(rows.iter().map(|_| (i, repeat)));
        found.rows.extend(rows);
        found.forgotten.extend(held.answered.iter().flat_map(forgotten));
        found.requests.extend(held.requests);
        troubles.extend(held.trouble.map(|t| (conversation.talk.name.clone(), t)));
    }
    if troubles.iter().any(|(_, t)| *t == Trouble::Stopped) {
        return Err(Trouble::Stopped);
    }
    let refused = troubles.iter().find(|(_, t)| matches!(t, Trouble::Refused(_)));
    if let Some((_, first)) = refused.filter(|_| found.rows.is_empty()) {
        return Err(first.clone());
    }
    for (verdict, what, of) in [
        (
            Verdict::Input,
            "answers that are not what the API says",
            (|t| matches!(t, Trouble::Malformed(_))) as fn(&_) -> _,
        ),
        (Verdict::Infra, "requests that got no answer", |t| matches!(t, Trouble::Infra(..))),
        (Verdict::Unproven, "requests that the server refused", |t| matches!(t, Trouble::Refused(_))),
    ] {
        let mine: Vec<&(String, Trouble)> = troubles.iter().filter(|(_, t)| of(t)).collect();
        if let Some((name, first)) = mine.first() {
            let n = mine.len();
            let reason = format!("{}: {n} conversations ended by {what}, first {name}: {first}", suite.patch_set);
            found.findings.push(Finding::new(verdict, reason));
        }
    }
    if left > 0 {
        let why =
            if suite.habits.budget.is_some() { "the number of requests was limited" } else { "the server was gone" };
        found.notes.push(format!("{left} of {} conversations were not held: {why}", jobs.len()));
    }
    Ok(found)
}

/// Of each question whether it is given beside what told it and not by the conversation, cold either, and the cold answer has
/// nothing of the history.
fn forgotten(one: &Answered) -> Vec<bool> {
    let Some(((_, by_cold), (_, by_near))) = one.cold.as_ref().zip(one.near.as_ref()) else {
        return vec![false; one.right.len()];
    };
    let of = |q: usize| !one.takes && !one.right[q] && !by_cold[q] && by_near[q];
    (0..by_near.len()).map(of).collect()
}

/// Rows of what was answered.
fn rows(conversation: &Conversation, patch_set: &str, answered: &[Answered]) -> Vec<RecallRow> {
    let mut out = Vec::new();
    for one in answered {
        let exchange = &conversation.exchanges[one.exchange];
        let first: usize = conversation.exchanges[..one.exchange].iter().map(|e| e.questions.len()).sum();
        let anywhere = exchange.questions.iter().any(|q| q.anywhere);
        let written = &conversation.talk.messages[exchange.message];
        let written = words(&written.content.join("\n"));
        let said = words(&one.reply.text(anywhere));
        let nearness = one.cold.as_ref().zip(one.alone.as_ref()).and_then(|((cold, right), alone)| {
            // A control that doesn't give the answer either tells nothing of what became of it.
            let of = |reply: &Reply| words(&reply.text(anywhere));
            right.contains(&true).then(|| amnesia(&said, &of(cold), &of(alone))).flatten()
        });
        let ids = numbered(&[&said, &written]);
        let text = one.reply.text(anywhere);
        let (surface, context) = (Blind::of(&text), one.reply.usage.prompt.unwrap_or(0));
        for (q, question) in exchange.questions.iter().enumerate() {
            let right = one.right[q];
            let control = right || one.cold.as_ref().is_some_and(|(_, right)| right[q]);
            let tokens = words(&question.expected).len().max(1) as u64;
            let looks = Looks {
                said: &ids[0],
                expected: &ids[1],
                mean_log_prob: match one.reply.log_probs {
                    (sum, n) if n > 0 => sum / n as f64,
                    // Not known: a salad is not told from another fault.
                    _ => 0.0,
                },
                vocabulary: 100_000,
                right,
                amnesia: nearness.filter(|_| control && !right),
                truncated: !right && one.reply.finish.as_deref() == Some("length"),
            };
            out.push(RecallRow {
                scenario: conversation.scenario.clone(),
                conversation: conversation.talk.name.clone(),
                variant: conversation.talk.maker.clone(),
                history: one.before.name().to_owned(),
                context_tokens: context,
                depth: question.depth,
                length_phase: [4, 128, 256, 8192].map(|n| (context % n).to_string()).join("|"),
                margin_stratum: "unknown".to_owned(),
                expected: question.expected.clone(),
                matched_golden: if control { tokens } else { 0 },
                matched_candidate: if right { tokens } else { 0 },
                answer_kl: f64::NAN,
                worst_margin_golden: f64::NAN,
                worst_margin_candidate: f64::NAN,
                amnesia: looks.amnesia,
                symptom: symptom(&looks).name().to_owned(),
                lost_at_layer: None,
                finish_reason: one.reply.finish.clone().unwrap_or_default(),
                gzip_ratio: surface.gzip_ratio,
                unique_word_ratio: surface.unique_word_ratio,
                max_word_run: Some(surface.max_word_run),
                max_line_repeat: Some(surface.max_line_repeat),
                patch_set: patch_set.to_owned(),
                question: (first + q) as u64,
                kind: question.kind.to_owned(),
                answer_tokens: tokens,
                phase: "decode".to_owned(),
                said: if right { question.expected.clone() } else { text.trim().chars().take(200).collect() },
            });
        }
    }
    out
}

impl Found {
    /// Takes another set of toggles as what these rows are held against: golden's columns become its answers.
    pub fn against(&mut self, reference: &Found) {
        for (row, place) in self.rows.iter_mut().zip(&self.places) {
            let same = reference.rows.iter().zip(&reference.places);
            let same = same.filter(|(_, p)| *p == place).find(|(r, _)| r.question == row.question);
            // An answer that the reference was never asked for says nothing.
            row.matched_golden = same.map_or(0, |(r, _)| r.matched_candidate);
        }
    }

    /// Questions that are answered rightly in one repeat and wrongly in another, and all questions that were repeated.
    pub fn unsteady(&self) -> (usize, usize) {
        let mut by: std::collections::BTreeMap<(usize, u64), (u64, u64)> = std::collections::BTreeMap::new();
        for (row, (i, _)) in self.rows.iter().zip(&self.places) {
            let one = by.entry((*i, row.question)).or_default();
            one.0 += 1;
            one.1 += u64::from(row.matched_candidate == row.answer_tokens);
        }
        let repeated: Vec<&(u64, u64)> = by.values().filter(|(n, _)| *n > 1).collect();
        (repeated.iter().filter(|(n, right)| *right > 0 && right < n).count(), repeated.len())
    }

    /// Only what the control gives can be lost: rows that neither gives are no evidence that nothing is.
    pub fn proved(&self) -> usize {
        self.rows.iter().filter(|r| r.matched_golden == r.answer_tokens && r.symptom != "truncated").count()
    }
}
