//! One conversation with a server, turn by turn, as a client holds it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use karat_model::prompt::{Message, Role};
use karat_scenarios::grammar::random::Random;
use karat_scenarios::grammar::small_talk::SmallTalk;
use karat_scenarios::{Exchange, Scenario, Stop, Told};

use crate::api::{Reply, Server};
use crate::requests::{Kind, Log};
use crate::trouble::{Result, Trouble};
use crate::words::{found, words};

/// A conversation to hold.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// Name of its scenario.
    pub scenario: String,
    /// The conversation.
    pub talk: Scenario,
    /// What the server is asked in it.
    pub exchanges: Vec<Exchange>,
}

impl Conversation {
    /// A conversation of a scenario.
    pub fn new(scenario: &str, talk: Scenario) -> Self {
        Self { scenario: scenario.to_owned(), exchanges: talk.exchanges(), talk }
    }
}

/// How conversations are held.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// Every so manieth question is asked once before, and given up while the answer comes; 0 for never.
    pub abort_every: usize,
    /// Tokens of an answer at least allowed.
    pub most: usize,
    /// Seed of the words that make a prompt unlike every earlier one.
    pub seed: u64,
    /// Which time over.
    pub repeat: u64,
    /// No question is asked once so many requests were sent.
    pub budget: Option<u64>,
}

/// What the server had been through in this conversation when it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Nothing: the first request.
    Cold,
    /// Earlier turns.
    Warm,
    /// A stream that the client closed.
    AfterAbort,
}

impl Before {
    /// The word in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::AfterAbort => "after-abort",
        }
    }
}

/// The answer to the questions of one exchange.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// Index of the exchange.
    pub exchange: usize,
    /// What the server had been through.
    pub before: Before,
    /// The answer.
    pub reply: Reply,
    /// Which of the questions it gives.
    pub right: Vec<bool>,
    /// The same prompt behind words that no cache knows; asked when a question is not given.
    pub cold: Option<(Reply, Vec<bool>)>,
    /// The last turn alone; asked with `cold`.
    pub alone: Option<Reply>,
    /// The question behind what told its answer and nothing else; asked when the cold prompt doesn't give it either.
    pub near: Option<(Reply, Vec<bool>)>,
    /// The cold answer has a word of the history that neither the last turn alone nor what told the answer brings.
    pub takes: bool,
}

/// Holds one conversation. Stops at a request that gets no answer; what had been answered until then is kept.
pub(crate) fn hold(
    server: &Server<'_>,
    number: u64,
    conversation: &Conversation,
    habits: &Habits,
    log: &mut Log<'_>,
) -> (Vec<Answered>, Option<Trouble>) {
    let mut hand = Hand { server, conversation, habits, log, sent: Vec::new(), before: Before::Cold, asked: 0, number };
    let mut out = Vec::new();
    let end = hand.run(&mut out);
    (out, end.err())
}

struct Hand<'h, 'l> {
    server: &'h Server<'h>,
    conversation: &'h Conversation,
    habits: &'h Habits,
    log: &'h mut Log<'l>,
    sent: Vec<Message>,
    before: Before,
    /// Exchanges with questions so far.
    asked: usize,
    number: u64,
}

impl Hand<'_, '_> {
    fn run(&mut self, out: &mut Vec<Answered>) -> Result<()> {
        let conversation = self.conversation;
        for (index, message) in conversation.talk.messages.iter().enumerate() {
            let Some(at) = conversation.exchanges.iter().position(|e| e.message == index) else {
                self.sent.push(message.clone());
                continue;
            };
            let exchange = &conversation.exchanges[at];
            if let Some(stop) = exchange.stop.filter(|_| self.server.streams) {
                let got = self.cut(exchange, stop)?;
                self.sent.push(Message { tool_calls: Vec::new(), ..got });
                continue;
            }
            if exchange.questions.is_empty() {
                self.sent.push(message.clone());
                continue;
            }
            if self.habits.budget.is_some_and(|most| self.log.sent.load(Ordering::Relaxed) >= most) {
                return Ok(());
            }
            let every = self.habits.abort_every;
            if every > 0 && self.server.streams && self.asked.is_multiple_of(every) {
                self.abort(exchange)?;
            }
            self.asked += 1;
            out.push(self.ask(at, exchange)?);
            // The conversation goes on as written, whatever was said: every server is asked the same.
            self.sent.push(message.clone());
        }
        Ok(())
    }

    /// Asks for an answer and stops reading in the middle of it. What had come is what the client keeps.
    fn cut(&mut self, exchange: &Exchange, stop: Stop) -> Result<Message> {
        let enough = |r: &Reply| match stop {
            Stop::Characters(n) => r.reasoning.chars().count() + r.content.chars().count() >= n,
            Stop::Tokens(n) => r.chunks >= n as u64,
        };
        let (most, sent) = (self.most(exchange) * 2, self.sent.clone());
        let reply = self.request(Kind::Cut, &sent, most, Some(&enough))?;
        self.before = if reply.closed { Before::AfterAbort } else { self.before.max(Before::Warm) };
        let mut message = Message::new(Role::Assistant, reply.content);
        message.reasoning_content = (!reply.reasoning.is_empty()).then_some(reply.reasoning);
        Ok(message)
    }

    /// Asks and gives up: by turns before anything came, and after the first pieces.
    fn abort(&mut self, exchange: &Exchange) -> Result<()> {
        let pieces = if (self.asked / self.habits.abort_every).is_multiple_of(2) { 2 } else { 0 };
        let (most, sent) = (self.most(exchange), self.sent.clone());
        let reply = self.request(Kind::Abort, &sent, most, Some(&|r: &Reply| r.chunks >= pieces))?;
        self.before = if reply.closed { Before::AfterAbort } else { self.before.max(Before::Warm) };
        Ok(())
    }

    fn ask(&mut self, at: usize, exchange: &Exchange) -> Result<Answered> {
        let (most, sent) = (self.most(exchange), self.sent.clone());
        let reply = self.request(Kind::Ask, &sent, most, None)?;
        let before = self.before;
        self.before = before.max(Before::Warm);
        let right = rights(exchange, &reply);
        let truncated = reply.finish.as_deref() == Some("length");
        let (mut cold, mut alone, mut near) = (None, None, None);
        if right.contains(&false) && !truncated {
            let unlike = self.unlike_any(at);
            let control = self.request(Kind::Cold, &unlike, most, None)?;
            let of_cold = rights(exchange, &control);
            alone = Some(self.request(Kind::Alone, &last_turn(&sent), most, None)?);
            let lacks = |q: usize| !right[q] && !of_cold[q];
            let told = (0..right.len()).filter(|q| lacks(*q)).find_map(|q| exchange.questions[q].told.as_ref());
            if let Some(beside) = told.and_then(|told| beside(&sent, told)) {
                let reply = self.request(Kind::Near, &beside, most, None)?;
                let right = rights(exchange, &reply);
                near = Some((reply, right));
            }
            cold = Some((control, of_cold));
        }
        let replies = [cold.as_ref().map(|c| &c.0), near.as_ref().map(|n| &n.0), alone.as_ref()];
        let takes = matches!(replies, [Some(cold), Some(near), Some(alone)] if takes(cold, [near, alone], &sent));
        Ok(Answered { exchange: at, before, reply, right, cold, alone, near, takes })
    }

    /// The conversation behind a sentence that no earlier prompt began with: no cache can hold any of it.
    fn unlike_any(&self, at: usize) -> Vec<Message> {
        let seed = self.habits.seed ^ self.habits.repeat.wrapping_mul(0x9e37);
        behind(&self.sent, seed, self.number << 20 | at as u64)
    }

    fn most(&self, exchange: &Exchange) -> usize {
        self.habits.most.max(2 * exchange.tokens + 32)
    }

    fn request(
        &mut self,
        kind: Kind,
        messages: &[Message],
        most: usize,
        enough: Option<&dyn Fn(&Reply) -> bool>,
    ) -> Result<Reply> {
        let (server, options) = (self.server, &self.conversation.talk.options);
        let once = || match enough {
            None => server.ask(messages, options, most, None),
            Some(enough) => server.ask(messages, options, most, Some(&mut |r: &Reply| enough(r))),
        };
        let (result, retries) = server.client.patiently(once);
        self.log.add(kind, self.sent.len(), retries, &result);
        result
    }
}

impl Before {
    fn max(self, other: Self) -> Self {
        if self == Self::Cold { other } else { self }
    }
}

/// Messages behind two sentences of their own, so that no earlier prompt begins as they do.
pub(crate) fn behind(messages: &[Message], seed: u64, number: u64) -> Vec<Message> {
    let mut r = Random::new(seed, number);
    let sentence = SmallTalk::new(&mut r).sentences(&mut r, 2);
    let mut messages = messages.to_vec();
    if let Some(first) = messages.first_mut() {
        let text = first.content.join("\n\n");
        first.content = vec![format!("{sentence} {text}").trim_end().to_owned()];
    }
    messages
}

/// One user message: what told the answer, then the last turn's question. `None` where they are one message.
fn beside(messages: &[Message], told: &Told) -> Option<Vec<Message>> {
    let user = messages.iter().rposition(|m| m.role == Role::User).filter(|user| told.message < *user)?;
    let both = format!("{}\n\n{}", told.sentence, messages[user].content.join("\n\n"));
    Some(vec![Message { content: vec![both], ..messages[user].clone() }])
}

/// True when an answer has a word of the messages that none of these others has.
fn takes(answer: &Reply, others: [&Reply; 2], messages: &[Message]) -> bool {
    let of = |r: &Reply| words(&r.text(true));
    let known: BTreeSet<String> = others.into_iter().flat_map(of).collect();
    let texts = messages.iter().flat_map(|m| m.content.iter().chain(&m.reasoning_content));
    let history: BTreeSet<String> = texts.flat_map(|text| words(text)).collect();
    of(answer).iter().any(|word| !known.contains(word) && history.contains(word))
}

/// Which of an exchange's questions an answer gives.
fn rights(exchange: &Exchange, reply: &Reply) -> Vec<bool> {
    let anywhere = exchange.questions.iter().any(|q| q.anywhere);
    let said = words(&reply.text(anywhere));
    let expected: Vec<Vec<String>> = exchange.questions.iter().map(|q| words(&q.expected)).collect();
    found(&said, &expected)
}

/// What a model is left with that lost the history: instructions, and everything from the last user message on.
fn last_turn(messages: &[Message]) -> Vec<Message> {
    let user = messages.iter().rposition(|m| m.role == Role::User).unwrap_or(0);
    let instructions = messages[..user].iter().take_while(|m| m.role == Role::System || m.role == Role::Developer);
    instructions.chain(&messages[user..]).cloned().collect()
}
