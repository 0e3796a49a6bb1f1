//! What is sent through a proxy, and what of it arrives.

use serde_json::{Value, json};

use super::Check;
use crate::serve::Request;

/// A request that asks for one of the scripted answers.
pub(super) fn simple(script: &str, stream: bool) -> Value {
    json!({
        "model": "karat-check",
        "messages": [{"role": "user", "content": format!("karat check: {script}")}],
        "max_tokens": 64, "temperature": 0, "stream": stream, "stream_options": {"include_usage": true},
    })
}

/// A request with every field that changes what a model does.
pub(super) fn everything() -> Value {
    json!({
        "model": "karat-check",
        "messages": [
            {"role": "system", "content": "be brief. \u{fc}ber \u{4f60}\u{597d} \u{1f980}\n\ttabs and lines stay"},
            {"role": "user", "content": "look the code up"},
            {"role": "assistant", "content": "", "reasoning_content": "i look it up.", "tool_calls": [
                {"id": "call_0", "type": "function", "function": {"name": "lookup", "arguments": "{\"b\": 1, \"a\": \"K472\"}"}}]},
            {"role": "tool", "tool_call_id": "call_0", "content": "{\"code\": \"K472\"}"},
            {"role": "assistant", "content": "it is K472.", "reasoning_content": "the tool has it."},
            {"role": "user", "content": "karat check: whole"},
        ],
        "tools": [{"type": "function", "function": {"name": "lookup", "description": "finds a value",
            "parameters": {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["b"]}}}],
        "tool_choice": "auto",
        "max_tokens": 77, "temperature": 0.37, "top_p": 0.83, "top_k": 17, "min_p": 0.05, "seed": 4242,
        "presence_penalty": 0.11, "frequency_penalty": 0.13, "repetition_penalty": 1.07, "stop": ["xyzzy"],
        "logit_bias": {"5": -3}, "logprobs": true, "top_logprobs": 3, "n": 1,
        "chat_template_kwargs": {"thinking": true}, "response_format": {"type": "text"}, "stream": false,
    })
}

/// Which group a field is told under.
fn group(field: &str) -> &'static str {
    match field {
        "model" => "identity of the model asked for",
        "messages" => "messages arrive",
        "tools" | "tool_choice" => "tools arrive",
        _ => "parameters arrive",
    }
}

/// Compares a request with what came out behind the proxy, field by field and in the order of keys.
pub(super) fn compare(sent: &Value, arrived: &Request) -> Vec<Check> {
    let theirs = arrived.json();
    let names = ["identity of the model asked for", "messages arrive", "tools arrive", "parameters arrive"];
    let mut wrong: Vec<Vec<String>> = vec![Vec::new(); names.len()];
    for (field, value) in sent.as_object().into_iter().flatten() {
        let at = names.iter().position(|n| *n == group(field)).unwrap_or(names.len() - 1);
        match theirs.get(field) {
            // A default that is left out is the same request.
            None if field == "n" || field == "stream" => {}
            None => wrong[at].push(format!("{field} is lost")),
            Some(other) if field == "messages" => wrong[at].extend(messages(value, other)),
            Some(other) if same(value, other) => {}
            Some(other) => wrong[at].push(format!("{field}: {} became {}", short(value), short(other))),
        }
    }
    let own = theirs.as_object().into_iter().flatten().map(|(k, _)| k).filter(|k| sent.get(k.as_str()).is_none());
    let added: Vec<String> = own.map(|k| format!("{k} is added")).collect();
    let mut out: Vec<Check> = names.iter().zip(wrong).map(|(name, wrong)| Check::of(name, &wrong)).collect();
    out.push(Check::of("nothing is added to the request", &added));
    out
}

fn messages(ours: &Value, theirs: &Value) -> Vec<String> {
    let empty = Vec::new();
    let (ours, theirs) = (ours.as_array().unwrap_or(&empty), theirs.as_array().unwrap_or(&empty));
    if ours.len() != theirs.len() {
        return vec![format!("{} messages became {}", ours.len(), theirs.len())];
    }
    let mut wrong = Vec::new();
    for (i, (a, b)) in ours.iter().zip(theirs).enumerate() {
        for (field, value) in a.as_object().into_iter().flatten() {
            match b.get(field) {
                Some(other) if same(value, other) => {}
                Some(other) => wrong.push(format!("message {i}, {field}: {} became {}", short(value), short(other))),
                None => wrong.push(format!("message {i} lost its {field}")),
            }
        }
    }
    wrong
}

/// Equal with the order of keys: a prompt is rendered in it. 1 and 1.0 are one number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && same(a, b))
        }
        _ => a == b,
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}
