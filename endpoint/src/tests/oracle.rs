//! A scripted server: it knows the right answer of every conversation by its messages, and one way to be wrong.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use karat_golden::files;
use karat_model::Checkpoint;
use karat_model::prompt::{Encoder, Role, Tokenizer};
use karat_scenarios::Content;
use serde_json::{Value, json};

use crate::api::{Api, Route, Server};
use crate::client::{Client, Manners};
use crate::serve::{Answer, Request, Serving};
use crate::talk::Conversation;
use crate::words::words;
use crate::{Address, api};

/// What is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing.
    None,
    /// After a stream that the client closed, the next request is answered from another conversation's history.
    WrongPrefixAfterAbort,
    /// A prompt that was given up is answered with the same words and other log-probabilities from then on.
    StaleAbort,
    /// Prompts of more than this many messages lose their history.
    Forgets(usize),
    /// Prompts of which most came from the cache lose their history.
    ForgetsCached,
    /// The template leaves system messages and tools out.
    NoSystem,
    /// Every answer breaks off.
    Cut,
    /// This status, so many times.
    Status(u16, usize),
    /// Nothing comes for so many milliseconds.
    Slow(u64),
    /// Events that are no JSON.
    Garbage,
}

/// Conversations of built-in scenarios.
pub(super) fn conversations(names: &[&str]) -> Vec<Conversation> {
    let checkpoint = Checkpoint::from_memory("mini", files()).unwrap();
    let (tokenizer, encoder) = (Tokenizer::of(&checkpoint).unwrap(), Encoder::of(&checkpoint).unwrap());
    let mut out = Vec::new();
    for name in names {
        let talks = Content::builtin(name).unwrap().conversations(&tokenizer, &encoder).unwrap();
        out.extend(talks.into_iter().map(|talk| Conversation::new(name, talk)));
    }
    out
}

pub(super) static STOP: AtomicBool = AtomicBool::new(false);

/// A client of the scripted server.
pub(super) fn server(url: &str) -> Server<'static> {
    patient_server(url, Duration::from_secs(20))
}

/// The same with another patience.
pub(super) fn patient_server(url: &str, timeout: Duration) -> Server<'static> {
    let manners = Manners { timeout, retries: 1, wait: Duration::from_millis(1), stop: &STOP };
    Server {
        client: Client::new(Address::parse(url).unwrap(), Some("s3cret-key".to_owned()), manners),
        api: Api::OpenAi,
        route: Route::Chat,
        model: "scripted".to_owned(),
        streams: true,
        extra: serde_json::Map::new(),
        renderer: None,
    }
}

struct Oracle {
    fault: Fault,
    conversations: Vec<Conversation>,
    /// The next answer comes from another conversation.
    poisoned: AtomicBool,
    /// Prompts that were given up.
    left: Mutex<Vec<Vec<String>>>,
    refused: AtomicUsize,
    /// Words of earlier prompts, for the cached tokens of the usage.
    seen: Mutex<Vec<Vec<String>>>,
}

/// Starts the server.
pub(super) fn start(fault: Fault, conversations: &[Conversation]) -> Serving {
    let oracle = Oracle {
        fault,
        conversations: conversations.to_vec(),
        poisoned: AtomicBool::new(false),
        left: Mutex::new(Vec::new()),
        refused: AtomicUsize::new(0),
        seen: Mutex::new(Vec::new()),
    };
    Serving::start(
        "127.0.0.1:0",
        Arc::new(move |request: &Request, answer: &mut Answer| oracle.answer(request, answer)),
    )
    .unwrap()
}

fn content(message: &Value) -> String {
    message["content"].as_str().unwrap_or_default().to_owned()
}

impl Oracle {
    fn answer(&self, request: &Request, answer: &mut Answer) -> std::io::Result<()> {
        if request.header("authorization") != Some("Bearer s3cret-key") {
            return answer.json(401, &json!({"error": {"message": "no key"}}));
        }
        match self.fault {
            Fault::Status(status, times) if self.refused.fetch_add(1, Ordering::Relaxed) < times => {
                // Some services tell the key in their errors.
                return answer.json(status, &json!({"error": {"message": "not now, s3cret-key"}}));
            }
            Fault::Slow(wait) => std::thread::sleep(Duration::from_millis(wait)),
            _ => {}
        }
        let asked = request.json();
        let mut messages: Vec<Value> = asked["messages"].as_array().cloned().unwrap_or_default();
        match self.fault {
            Fault::NoSystem => messages.retain(|m| m["role"] != "system"),
            Fault::Forgets(most) if messages.len() > most => {
                let user = messages.iter().rposition(|m| m["role"] == "user").unwrap_or(0);
                messages.drain(1..user.max(1));
            }
            _ => {}
        }
        let tools = if self.fault == Fault::NoSystem { "[]".to_owned() } else { asked["tools"].to_string() };
        let mut prompt: Vec<String> = messages.iter().flat_map(|m| words(&m.to_string())).collect();
        prompt.extend(words(&tools));
        let cached = {
            let mut seen = self.seen.lock().unwrap();
            let common = |p: &Vec<String>| p.iter().zip(&prompt).take_while(|(a, b)| a == b).count();
            let most = seen.iter().map(common).max().unwrap_or(0);
            seen.push(prompt.clone());
            most
        };
        if self.fault == Fault::ForgetsCached && 2 * cached > prompt.len() {
            let user = messages.iter().rposition(|m| m["role"] == "user").unwrap_or(0);
            messages.drain(1..user.max(1));
        }
        let poisoned = self.poisoned.swap(false, Ordering::Relaxed);
        let said = self.says(&messages, poisoned);
        let pieces: Vec<&str> = said.split_inclusive(' ').collect();
        let usage = json!({"prompt_tokens": prompt.len(), "completion_tokens": pieces.len(),
                           "prompt_tokens_details": {"cached_tokens": cached}});
        if asked["stream"] != true {
            let message = json!({"role": "assistant", "content": said});
            return answer
                .json(200, &json!({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}));
        }
        let is_stale = self.fault == Fault::StaleAbort && self.left.lock().unwrap().contains(&prompt);
        let log_probs = json!({"content": [{"logprob": if is_stale { -0.11 } else { -0.1 }}]});
        answer.begin()?;
        for (i, piece) in pieces.iter().enumerate() {
            // Time for a client that gives up to be noticed.
            if (i == 0 || i == 2 || i % 10 == 9 || i + 1 == pieces.len())
                && asked["max_tokens"] != 1
                && answer.is_closed_within(Duration::from_millis(if i < 3 { 12 } else { 4 }))
            {
                self.poisoned.store(self.fault == Fault::WrongPrefixAfterAbort, Ordering::Relaxed);
                self.left.lock().unwrap().push(prompt);
                return Ok(());
            }
            if self.fault == Fault::Cut && i == 1 {
                return Ok(());
            }
            if self.fault == Fault::Garbage && i == 1 {
                answer.event("{\"choices\": [{\"delta\":")?;
            }
            let choice = json!({"delta": {"content": piece}, "logprobs": log_probs, "finish_reason": null});
            answer.event(&json!({"choices": [choice]}).to_string())?;
        }
        answer.event(&json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}).to_string())?;
        answer.event(&json!({"choices": [], "usage": usage}).to_string())?;
        answer.event("[DONE]")?;
        answer.end()
    }

    /// The answer to a question that stands behind what told it, in one message.
    fn beside(&self, text: &str) -> Option<String> {
        self.conversations.iter().find_map(|conversation| {
            let all = &conversation.talk.messages;
            let told = |e: &karat_scenarios::Exchange| e.questions.iter().find_map(|q| q.told.clone());
            conversation.exchanges.iter().find_map(|exchange| {
                let user = all[..exchange.message].iter().rfind(|m| m.role == Role::User)?;
                let beside = text.ends_with(&user.content.join("\n\n")) && text.starts_with(&told(exchange)?.sentence);
                beside.then(|| content(&api::message_json(&all[exchange.message])))
            })
        })
    }

    /// The answer that the conversation itself gives behind these messages.
    fn says(&self, messages: &[Value], poisoned: bool) -> String {
        if let [one] = messages
            && let Some(said) = self.beside(&content(one))
        {
            return said;
        }
        let given: Vec<String> = messages.iter().filter(|m| m["role"] != "assistant").map(content).collect();
        for (at, conversation) in self.conversations.iter().enumerate() {
            let all = &conversation.talk.messages;
            for exchange in &conversation.exchanges {
                let before = all[..exchange.message].iter().filter(|m| m.role != Role::Assistant);
                let before: Vec<String> = before.map(|m| m.content.join("\n\n")).collect();
                let same = before.len() == given.len()
                    && before
                        .iter()
                        .zip(&given)
                        .enumerate()
                        .all(|(i, (b, g))| if i == 0 { g.ends_with(b) } else { b == g });
                if !same {
                    continue;
                }
                let written = api::message_json(&all[exchange.message]);
                let mut said = format!("{} {}", content(&written), written["tool_calls"]);
                if exchange.questions.iter().any(|q| q.anywhere) {
                    said = format!("{} {said}", written["reasoning_content"].as_str().unwrap_or_default());
                }
                if poisoned {
                    // A fluent answer with what another conversation would say.
                    let others = self.conversations.iter().enumerate().filter(|(i, _)| *i != at);
                    let other = others.flat_map(|(_, c)| &c.exchanges).flat_map(|e| &e.questions);
                    for question in &exchange.questions {
                        let wrong = other.clone().find(|q| q.expected != question.expected);
                        let wrong = wrong.map_or("nothing", |q| q.expected.as_str());
                        said = said
                            .replace(&question.expected, wrong)
                            .replace(&question.expected.replace(' ', "_"), wrong);
                    }
                }
                return said;
            }
        }
        "i do not know that from what i was told here, please say it once more".to_owned()
    }
}
