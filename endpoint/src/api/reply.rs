//! An answer, as far as it came.

use serde_json::Value;

use crate::trouble::{Result, Trouble};

/// A call of a tool in an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    /// Its id.
    pub id: String,
    /// Name of the function.
    pub name: String,
    /// JSON text of the arguments.
    pub arguments: String,
}

/// What the server counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: Option<u64>,
    /// Tokens of the answer.
    pub completion: Option<u64>,
    /// Tokens of the prompt that came from a prefix cache. `None` when the server does not say.
    pub cached: Option<u64>,
}

/// Seconds since the request was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Times {
    /// The first text came.
    pub first: Option<f64>,
    /// The last text came.
    pub last: f64,
    /// Everything had come.
    pub total: f64,
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    /// Reasoning.
    pub reasoning: String,
    /// Content.
    pub content: String,
    /// Calls of tools.
    pub calls: Vec<Call>,
    /// Why it ended; `None` while it hasn't, and when the client closed the stream.
    pub finish: Option<String>,
    /// What the server counted.
    pub usage: Usage,
    /// When it came.
    pub times: Times,
    /// Pieces of text that came one by one.
    pub chunks: u64,
    /// Sum of the log-probabilities that the server gave to its own tokens (nats), and how many.
    pub log_probs: (f64, u64),
    /// The client closed the stream.
    pub closed: bool,
    /// `[DONE]` came.
    pub done: bool,
}

impl Reply {
    /// Bytes of everything that was said.
    pub fn said_bytes(&self) -> usize {
        let calls: usize = self.calls.iter().map(|c| c.name.len() + c.arguments.len()).sum();
        self.reasoning.len() + self.content.len() + calls
    }

    /// Everything that counts as the answer: content and calls; with `reasoning` that too.
    pub fn text(&self, reasoning: bool) -> String {
        let mut text = if reasoning { format!("{}\n", self.reasoning) } else { String::new() };
        text.push_str(&self.content);
        for call in &self.calls {
            text.push_str(&format!("\n{} {}", call.name, call.arguments));
        }
        text
    }

    /// Tokens a second behind the first.
    pub fn tokens_per_second(&self) -> Option<f64> {
        let seconds = self.times.last - self.times.first?;
        let n = self.usage.completion.unwrap_or(self.chunks).checked_sub(1).filter(|n| *n > 0)?;
        (seconds > 0.0).then(|| n as f64 / seconds)
    }

    /// The answer, unless its end is missing.
    pub(super) fn whole(self) -> Result<Self> {
        if self.finish.is_none() && !self.done {
            return Err(Trouble::infra("the answer was cut: it ended without a finish reason"));
        }
        if let (Some(cached), Some(prompt)) = (self.usage.cached, self.usage.prompt)
            && cached > prompt
        {
            return Err(Trouble::malformed(format!("usage: {cached} cached tokens of a prompt of {prompt}")));
        }
        Ok(self)
    }

    /// Takes an OpenAI-like `usage` object.
    pub(super) fn count(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage.filter(|u| u.is_object()) else { return };
        let number = |value: Option<&Value>| value.and_then(Value::as_u64);
        let usage_of = |name: &str| number(usage.get(name));
        self.usage.prompt = usage_of("prompt_tokens").or(self.usage.prompt);
        self.usage.completion = usage_of("completion_tokens").or(self.usage.completion);
        let details = usage.get("prompt_tokens_details").and_then(|d| d.get("cached_tokens"));
        // DeepSeek's own service has another name for it.
        self.usage.cached = number(details).or(usage_of("prompt_cache_hit_tokens")).or(self.usage.cached);
    }
}

/// A text field; absent and null are nothing, another kind is an error.
pub(super) fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str> {
    match value.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(Trouble::malformed(format!("{name}: expected a text, found {}", kind(other)))),
    }
}

/// A word for the kind of a value.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
