//! Whether a prompt is answered behind an interruption as it was before.
//!
//! What an abandoned request leaves in a cache need not change an answer: a prompt with a half-told answer behind it is often
//! answered rightly. So prompts are asked twice, given up in the middle of the answer, and asked again, and the third answer is
//! held against the first two: words and, where the server tells them, log-probabilities. Two prompts take turns, so that each
//! is also asked right behind the other's abandoned request.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use karat_bundle::{Finding, RequestRow, Verdict};
use karat_model::prompt::Message;

use crate::api::{Reply, Server};
use crate::requests::{Kind, Log};
use crate::talk::{Conversation, behind};
use crate::trouble::{Result, Trouble};
use crate::verdict::at_least;
use crate::words::{distance, words};

/// Prompts that are asked, at most. Nine of ten odd third answers have a chance of 4e-4.
const PROMPTS: usize = 10;
/// Tokens of an answer.
const MOST: usize = 48;
/// Pieces of an answer after which the client goes away.
const PIECES: u64 = 2;
/// A server notices after a step that its client left; what it does then is looked for.
const NOTICE: Duration = Duration::from_millis(50);
/// Of three answers of one kind the third is the odd one with this chance at most: each may be. (The first may be colder
/// than the others. That takes it farther from both, not them from each other.)
const ODD: f64 = 1.0 / 3.0;

/// What was seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interrupted {
    /// What bears on the verdict.
    pub findings: Vec<Finding>,
    /// What should be known.
    pub notes: Vec<String>,
    /// One row a request.
    pub requests: Vec<RequestRow>,
}

struct Prompt<'a> {
    conversation: &'a Conversation,
    messages: Vec<Message>,
    answers: Vec<Reply>,
}

/// Asks the shortest prompts of the conversations that have a question, as many as `requests` allow, one at a time. Nothing where
/// answers come whole: they can't be interrupted. `delta`: chance of a failure where interruptions do nothing.
///
/// # Errors
/// What ends a request: no answer, a refusal, garbage.
pub fn check(
    server: &Server<'_>,
    conversations: &[Conversation],
    seed: u64,
    requests: Option<u64>,
    (delta, patch_set): (f64, &str),
) -> Result<Interrupted> {
    let mut seen = Interrupted::default();
    let mut prompts = prompts(conversations, seed);
    // Nine requests two prompts.
    let pairs = (prompts.len() / 2).min(requests.map_or(usize::MAX, |n| (n / 9) as usize));
    prompts.truncate(2 * pairs);
    if !server.streams || prompts.is_empty() {
        return Ok(seen);
    }
    let sent = AtomicU64::new(0);
    for pair in prompts.chunks_exact_mut(2) {
        let [p, q] = pair else { continue };
        for _ in 0..2 {
            ask(server, p, &sent, patch_set, &mut seen)?;
            ask(server, q, &sent, patch_set, &mut seen)?;
        }
        let mut closed = give_up(server, p, &sent, patch_set, &mut seen)?;
        closed &= give_up(server, q, &sent, patch_set, &mut seen)?;
        ask(server, p, &sent, patch_set, &mut seen)?;
        closed &= give_up(server, p, &sent, patch_set, &mut seen)?;
        ask(server, q, &sent, patch_set, &mut seen)?;
        if !closed {
            // What came whole before it could be given up was no interruption.
            p.answers.clear();
            q.answers.clear();
        }
    }
    let told: Vec<[&Reply; 3]> =
        prompts.iter().filter_map(|p| <[&Reply; 3]>::try_from(p.answers.iter().collect::<Vec<_>>()).ok()).collect();
    let odd: Vec<&[&Reply; 3]> = told.iter().filter(|answers| third_is_odd(answers)).collect();
    let chance = at_least(odd.len(), &vec![ODD; told.len()]);
    let n = told.len();
    if let Some(first) = odd.first().filter(|_| chance <= delta) {
        let words = |r: &Reply| r.text(true).trim().chars().take(60).collect::<String>();
        let (a, b) = (words(first[1]), words(first[2]));
        let how = if a == b {
            let off = |a: &Reply, b: &Reply| nats(a, b).unwrap_or(0.0);
            format!(
                "the same words, their mean log-probability off by {:.1e} nats, by {:.1e} between the two before",
                off(first[1], first[2]),
                off(first[0], first[1])
            )
        } else {
            format!("{a:?} before, {b:?} behind")
        };
        seen.findings.push(Finding::new(
            Verdict::Fail,
            format!(
                "{patch_set}: {} of {n} prompts are answered otherwise behind a stream that was closed than twice before \
                 (by chance {chance:.0e}): {how}",
                odd.len()
            ),
        ));
    } else if !odd.is_empty() {
        seen.notes.push(format!(
            "{} of {n} prompts were answered otherwise behind a closed stream than twice before: chance explains that",
            odd.len()
        ));
    }
    if told.iter().flatten().all(|r| r.log_probs.1 == 0) {
        seen.notes
            .push("the server tells no log-probabilities: behind an interruption only words were compared".to_owned());
    }
    if at_least(n, &vec![ODD; n]) > delta {
        seen.notes.push(format!("{n} prompts were asked before and behind an interruption: too few to prove a fault"));
    }
    Ok(seen)
}

/// The shortest first, each behind words of its own.
fn prompts(conversations: &[Conversation], seed: u64) -> Vec<Prompt<'_>> {
    let mut all = Vec::new();
    for (number, conversation) in conversations.iter().enumerate() {
        for exchange in conversation.exchanges.iter().filter(|e| !e.questions.is_empty()) {
            let written = &conversation.talk.messages[..exchange.message];
            let bytes: usize = written.iter().flat_map(|m| &m.content).map(String::len).sum();
            let messages = behind(written, seed, ((number as u64) << 20) | exchange.message as u64);
            all.push((bytes, Prompt { conversation, messages, answers: Vec::new() }));
        }
    }
    all.sort_by_key(|(bytes, _)| *bytes);
    all.into_iter().take(PROMPTS).map(|(_, prompt)| prompt).collect()
}

fn request(
    server: &Server<'_>,
    prompt: &Prompt<'_>,
    (kind, sent, patch_set): (Kind, &AtomicU64, &str),
    seen: &mut Interrupted,
) -> Result<Reply> {
    let talk = &prompt.conversation.talk;
    let like = RequestRow {
        scenario: prompt.conversation.scenario.clone(),
        conversation: talk.name.clone(),
        patch_set: patch_set.to_owned(),
        ..RequestRow::default()
    };
    let mut log = Log { like, rows: Vec::new(), sent };
    let (result, retries) = server.client.patiently(|| {
        let mut enough = |r: &Reply| r.chunks >= PIECES;
        let enough: Option<&mut dyn FnMut(&Reply) -> bool> = if kind == Kind::Abort { Some(&mut enough) } else { None };
        server.ask(&prompt.messages, &talk.options, MOST, enough)
    });
    log.add(kind, prompt.messages.len(), retries, &result);
    seen.requests.append(&mut log.rows);
    result
}

fn ask(
    server: &Server<'_>,
    prompt: &mut Prompt<'_>,
    sent: &AtomicU64,
    patch_set: &str,
    seen: &mut Interrupted,
) -> Result<()> {
    let reply = request(server, prompt, (Kind::Again, sent, patch_set), seen)?;
    prompt.answers.push(reply);
    Ok(())
}

/// True when the client went away before the answer ended.
fn give_up(
    server: &Server<'_>,
    prompt: &Prompt<'_>,
    sent: &AtomicU64,
    patch_set: &str,
    seen: &mut Interrupted,
) -> Result<bool> {
    let result = request(server, prompt, (Kind::Abort, sent, patch_set), seen);
    std::thread::sleep(NOTICE);
    match result {
        Ok(reply) => Ok(reply.closed),
        // An abandoned answer need not be a whole one.
        Err(Trouble::Malformed(_)) => Ok(false),
        Err(other) => Err(other),
    }
}

/// The first two are nearer to each other than either is to the third.
fn third_is_odd([a, b, c]: &[&Reply; 3]) -> bool {
    let before = apart(a, b);
    before < apart(a, c) && before < apart(b, c)
}

/// Distance of two answers by words, and by mean log-probability where both have one.
fn apart(a: &Reply, b: &Reply) -> f64 {
    let text = |r: &Reply| words(&r.text(true));
    distance(&text(a), &text(b)) + nats(a, b).unwrap_or(0.0)
}

/// Difference of mean log-probabilities, where both have one.
fn nats(a: &Reply, b: &Reply) -> Option<f64> {
    let mean = |r: &Reply| (r.log_probs.1 > 0).then(|| r.log_probs.0 / r.log_probs.1 as f64);
    mean(a).zip(mean(b)).map(|(a, b)| (a - b).abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str, log_prob: f64, n: u64) -> Reply {
        Reply { content: text.to_owned(), log_probs: (log_prob * n as f64, n), ..Reply::default() }
    }

    #[test]
    fn the_third_answer_is_odd_by_words_or_by_log_probabilities() {
        let odd = |a, b, c| third_is_odd(&[&a, &b, &c]);
        let r = reply;
        assert!(odd(r("felix", 0.0, 0), r("felix", 0.0, 0), r("petra", 0.0, 0)));
        assert!(odd(r("felix", -0.1, 4), r("felix", -0.1000001, 4), r("felix", -0.2, 4)));
        // A cold first answer is its own: the two warm ones are alike.
        assert!(!odd(r("felix", -0.1000001, 4), r("felix", -0.1, 4), r("felix", -0.1, 4)));
        // All alike, or each its own.
        assert!(!odd(r("felix", -0.1, 4), r("felix", -0.1, 4), r("felix", -0.1, 4)));
        assert!(!odd(r("a b c", 0.0, 0), r("d e f", 0.0, 0), r("g h i", 0.0, 0)));
        // One of them tells nothing: words alone.
        assert!(!odd(r("felix", -0.1, 4), r("felix", -0.1, 4), r("felix", 0.0, 0)));
    }
}
