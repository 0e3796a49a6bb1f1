//! The model's place behind a proxy: scripted answers, and a record of what came.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::serve::{Answer, Request, Serving};

/// Name that the model gives itself.
pub(super) const NAME: &str = "karat-upstream-7";
/// Reasoning, content and their pieces in a stream.
pub(super) const REASONING: [&str; 2] = ["first i ", "think."];
pub(super) const CONTENT: [&str; 5] = ["alpha ", "beta ", "\u{3b3} ", "\u{1f980} ", "omega"];
/// Between two pieces of a stream.
pub(super) const BETWEEN: Duration = Duration::from_millis(60);
/// How long an endless answer goes on when nobody closes it.
const ENDLESS: Duration = Duration::from_secs(3);
/// Arguments of the two calls, in pieces.
pub(super) const CALLS: [(&str, &str, [&str; 2]); 2] =
    [("call_a", "lookup", ["{\"name\": ", "\"rain\"}"]), ("call_b", "get_time", ["{\"zone\"", ": \"utc\"}"])];

#[derive(Debug, Default)]
struct Seen {
    requests: Vec<Request>,
    closed: bool,
}

/// What stands behind the proxy.
#[derive(Debug)]
pub struct Upstream {
    serving: Serving,
    seen: Arc<(Mutex<Seen>, Condvar)>,
}

impl Upstream {
    /// Listens at `address` (host and port).
    ///
    /// # Errors
    /// The address can't be listened on.
    pub fn start(address: &str) -> std::io::Result<Self> {
        let seen: Arc<(Mutex<Seen>, Condvar)> = Arc::default();
        let inner = seen.clone();
        let handler = move |request: &Request, answer: &mut Answer| {
            if request.method == "GET" {
                return answer
                    .json(200, &json!({"object": "list", "data": [{"id": "karat-check", "object": "model"}]}));
            }
            let lock = || inner.0.lock().unwrap_or_else(PoisonError::into_inner);
            lock().requests.push(request.clone());
            let asked = request.json();
            if say(&asked, answer)? {
                lock().closed = true;
                inner.1.notify_all();
            }
            Ok(())
        };
        Ok(Self { serving: Serving::start(address, Arc::new(handler))?, seen })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        self.serving.url()
    }

    /// The latest request.
    pub(super) fn last(&self) -> Option<Request> {
        self.seen.0.lock().unwrap_or_else(PoisonError::into_inner).requests.last().cloned()
    }

    /// True as soon as an endless answer was closed from the other side.
    pub(super) fn was_closed_within(&self, wait: Duration) -> bool {
        let seen = self.seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.seen.1.wait_timeout_while(seen, wait, |seen| !seen.closed);
        waited.is_ok_and(|(seen, _)| seen.closed)
    }
}

fn usage() -> Value {
    json!({"prompt_tokens": 41, "completion_tokens": 7, "total_tokens": 48,
           "prompt_tokens_details": {"cached_tokens": 32}, "completion_tokens_details": {"reasoning_tokens": 2}})
}

fn event(delta: &Value, finish: Option<&str>) -> String {
    json!({"id": "chatcmpl-karat", "object": "chat.completion.chunk", "created": 7, "model": NAME,
           "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    .to_string()
}

/// Answers by what the last message asks for; true when the client went before an endless answer had ended.
fn say(asked: &Value, answer: &mut Answer) -> std::io::Result<bool> {
    let last = asked["messages"].as_array().and_then(|m| m.last()).map_or("", |m| m["content"].as_str().unwrap_or(""));
    let script = last.rsplit(": ").next().unwrap_or_default();
    if script == "limit" {
        let error = json!({"error": {"message": "slow down", "type": "rate_limit", "code": 429}}).to_string();
        answer.with_headers(429, "application/json", "retry-after: 3\r\n", &error)?;
        return Ok(false);
    }
    if asked["stream"] != true {
        let message =
            json!({"role": "assistant", "content": CONTENT.concat(), "reasoning_content": REASONING.concat()});
        answer.json(
            200,
            &json!({"id": "chatcmpl-karat", "object": "chat.completion", "created": 7, "model": NAME,
            "choices": [{"index": 0, "message": message, "finish_reason": "length",
                         "logprobs": {"content": [{"token": "alpha", "logprob": -0.25, "top_logprobs": []}]}}],
            "usage": usage()}),
        )?;
        return Ok(false);
    }
    answer.begin()?;
    answer.event(&event(&json!({"role": "assistant", "content": ""}), None))?;
    if script == "endless" {
        let begun = Instant::now();
        while begun.elapsed() < ENDLESS {
            if answer.is_closed_within(Duration::from_millis(20))
                || answer.event(&event(&json!({"content": "on "}), None)).is_err()
            {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    if script == "tools" {
        for piece in 0..2 {
            for (index, (id, name, arguments)) in CALLS.iter().enumerate() {
                let call = match piece {
                    0 => {
                        json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments[0]}})
                    }
                    _ => json!({"index": index, "function": {"arguments": arguments[piece]}}),
                };
                answer.event(&event(&json!({"tool_calls": [call]}), None))?;
            }
        }
        answer.event(&event(&json!({}), Some("tool_calls")))?;
    } else {
        for piece in REASONING {
            answer.event(&event(&json!({"reasoning_content": piece}), None))?;
        }
        for piece in CONTENT {
            answer.event(&event(&json!({"content": piece}), None))?;
            std::thread::sleep(BETWEEN);
        }
        answer.event(&event(&json!({}), Some("stop")))?;
    }
    answer.event(
        &json!({"id": "chatcmpl-karat", "object": "chat.completion.chunk", "created": 7, "model": NAME,
                         "choices": [], "usage": usage()})
        .to_string(),
    )?;
    answer.event("[DONE]")?;
    answer.end()?;
    Ok(false)
}
