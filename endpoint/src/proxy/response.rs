//! What comes back through a proxy of scripted answers.

use serde_json::Value;

use super::upstream::{BETWEEN, CALLS, CONTENT, NAME, REASONING};
use super::{Check, State, request};
use crate::client::Client;
use crate::trouble::{Result, Trouble};

fn expect(wrong: &mut Vec<String>, what: &str, expected: &Value, found: &Value) {
    if expected != found {
        let short = |v: &Value| v.to_string().chars().take(60).collect::<String>();
        wrong.push(format!("{what}: {} became {}", short(expected), short(found)));
    }
}

/// The answer that came whole.
pub(super) fn whole(answer: &Value) -> Vec<Check> {
    let (choice, usage) = (&answer["choices"][0], &answer["usage"]);
    let check = |name: &'static str, pairs: &[(&str, Value, &Value)]| {
        let mut wrong = Vec::new();
        for (what, expected, found) in pairs {
            expect(&mut wrong, what, expected, found);
        }
        Check::of(name, &wrong)
    };
    vec![
        check("identity of the model that answered", &[("model", NAME.into(), &answer["model"])]),
        check("content of a whole answer", &[("content", CONTENT.concat().into(), &choice["message"]["content"])]),
        check(
            "reasoning of a whole answer",
            &[("reasoning_content", REASONING.concat().into(), &choice["message"]["reasoning_content"])],
        ),
        check("finish reason of a whole answer", &[("finish_reason", "length".into(), &choice["finish_reason"])]),
        check(
            "usage and log-probabilities",
            &[
                ("prompt_tokens", 41.into(), &usage["prompt_tokens"]),
                ("completion_tokens", 7.into(), &usage["completion_tokens"]),
                ("cached_tokens", 32.into(), &usage["prompt_tokens_details"]["cached_tokens"]),
                ("logprob", (-0.25).into(), &choice["logprobs"]["content"][0]["logprob"]),
            ],
        ),
    ]
}

/// A stream as it came: pieces in order with their times, and what ended it.
#[derive(Debug, Default)]
struct Streamed {
    reasoning: Vec<String>,
    content: Vec<(String, f64)>,
    calls: Vec<(String, String, String)>,
    /// Words for what came, in order, runs of one kind as one.
    order: Vec<&'static str>,
    finish: String,
    cached: Value,
    model: Value,
    done: bool,
}

fn read(client: &Client<'_>, script: &str) -> Result<Streamed> {
    let mut events = client.stream("/v1/chat/completions", &request::simple(script, true))?;
    let mut out = Streamed::default();
    while let Some(data) = events.next_data()? {
        let value: Value =
            serde_json::from_str(&data).map_err(|e| Trouble::malformed(format!("an event is not JSON: {e}")))?;
        let now = events.started.elapsed().as_secs_f64();
        let choice = &value["choices"][0];
        let delta = &choice["delta"];
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let mut kind = |word: &'static str| {
            if out.order.last() != Some(&word) {
                out.order.push(word);
            }
        };
        if out.model.is_null() {
            out.model = value["model"].clone();
        }
        let reasoning = text(&delta["reasoning_content"]) + &text(&delta["reasoning"]);
        if !reasoning.is_empty() {
            kind("reasoning");
            out.reasoning.push(reasoning);
        }
        let content = text(&delta["content"]);
        if !content.is_empty() {
            kind("content");
            out.content.push((content, now));
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            kind("calls");
            let at = call["index"].as_u64().unwrap_or(0).min(16) as usize;
            if out.calls.len() <= at {
                out.calls.resize(at + 1, Default::default());
            }
            let mine = &mut out.calls[at];
            mine.0 += &text(&call["id"]);
            mine.1 += &text(&call["function"]["name"]);
            mine.2 += &text(&call["function"]["arguments"]);
        }
        if choice["finish_reason"].is_string() {
            kind("finish");
            out.finish = text(&choice["finish_reason"]);
        }
        if value["usage"].is_object() {
            kind("usage");
            out.cached = value["usage"]["prompt_tokens_details"]["cached_tokens"].clone();
        }
    }
    out.done = events.done;
    Ok(out)
}

/// The two streams.
pub(super) fn streams(client: &Client<'_>) -> Vec<Check> {
    let mut out = Vec::new();
    match read(client, "stream") {
        Err(trouble) => out.push(Check::unseen("a stream", &trouble)),
        Ok(s) => {
            let mut wrong = Vec::new();
            let text: String = s.content.iter().map(|(t, _)| t.as_str()).collect();
            expect(&mut wrong, "content", &CONTENT.concat().into(), &text.into());
            out.push(Check::of("content of a stream", &wrong));
            let mut wrong = Vec::new();
            expect(&mut wrong, "reasoning_content", &REASONING.concat().into(), &s.reasoning.concat().into());
            out.push(Check::of("reasoning of a stream", &wrong));
            let mut wrong = Vec::new();
            if s.order != ["reasoning", "content", "finish", "usage"] {
                wrong.push(format!("reasoning, content, finish, usage came as {}", s.order.join(", ")));
            }
            if !s.done {
                wrong.push("[DONE] is lost".to_owned());
            }
            expect(&mut wrong, "finish_reason", &"stop".into(), &s.finish.as_str().into());
            expect(&mut wrong, "cached_tokens", &32.into(), &s.cached);
            expect(&mut wrong, "model", &NAME.into(), &s.model);
            out.push(Check::of("order and end of a stream", &wrong));
            out.push(Check::of("a stream is not held back", &held_back(&s)));
        }
    }
    out.push(match read(client, "tools") {
        Err(trouble) => Check::unseen("tool calls of a stream", &trouble),
        Ok(s) => {
            let mut wrong = Vec::new();
            let expected: Vec<(String, String, String)> =
                CALLS.iter().map(|(id, name, a)| ((*id).to_owned(), (*name).to_owned(), a.concat())).collect();
            if s.calls != expected {
                wrong.push(format!("{expected:?} became {:?}", s.calls));
            }
            expect(&mut wrong, "finish_reason", &"tool_calls".into(), &s.finish.as_str().into());
            Check::of("tool calls of a stream", &wrong)
        }
    });
    out
}

/// Pieces that were sent one by one and came together.
fn held_back(s: &Streamed) -> Vec<String> {
    let (Some(first), Some(last)) = (s.content.first(), s.content.last()) else { return Vec::new() };
    let sent = BETWEEN.as_secs_f64() * (CONTENT.len() - 1) as f64;
    let came = last.1 - first.1;
    if came < 0.5 * sent {
        return vec![format!("pieces sent over {sent:.2} s came within {came:.2} s")];
    }
    Vec::new()
}

/// A rate limit must stay one.
pub(super) fn limit(client: &Client<'_>) -> Check {
    let name = "a rate limit stays one";
    match client.post("/v1/chat/completions", &request::simple("limit", false)) {
        Err(Trouble::Infra(what, Some(after))) if what.contains("429") && after.as_secs() == 3 => {
            Check { name, state: State::Right, detail: String::new() }
        }
        Err(Trouble::Infra(what, _)) if what.contains("429") => Check::of(name, &["retry-after is lost".to_owned()]),
        Err(other) => Check::of(name, &[format!("429 became: {other}")]),
        Ok(_) => Check::of(name, &["429 became an answer".to_owned()]),
    }
}
