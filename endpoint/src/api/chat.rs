//! `/v1/chat/completions`.

use karat_model::prompt::{Arguments, EncodeOptions, Json, Message};
use serde_json::{Map, Value, json};

use super::reply::{kind, text};
use super::{Api, Call, Reply, Server, common};
use crate::trouble::{Result, Trouble};

pub(super) fn body(server: &Server<'_>, messages: &[Message], options: &EncodeOptions, most: usize) -> Value {
    let mut fields = common(server, most);
    fields.insert("messages".to_owned(), messages.iter().map(message_json).collect());
    let tools = tools_json(messages);
    if !tools.is_empty() {
        fields.insert("tools".to_owned(), Value::Array(tools));
    }
    if server.api != Api::OpenAi {
        // Engines hand these to the model's template; other services refuse them.
        fields.insert("chat_template_kwargs".to_owned(), json!({"thinking": options.thinking}));
        fields.insert("logprobs".to_owned(), json!(true));
    }
    Value::Object(fields)
}

/// Every tool that a message of the conversation brings, in the shape of a request.
pub fn tools_json(messages: &[Message]) -> Vec<Value> {
    let tools = messages.iter().flat_map(|m| &m.tools);
    tools.map(|function| json!({"type": "function", "function": plain(function)})).collect()
}

/// A message in the shape of a request. Its tools are the request's ([`tools_json`]).
pub fn message_json(message: &Message) -> Value {
    let mut fields = Map::new();
    fields.insert("role".to_owned(), json!(message.role.name()));
    fields.insert("content".to_owned(), json!(message.content.join("\n\n")));
    if let Some(reasoning) = &message.reasoning_content {
        fields.insert("reasoning_content".to_owned(), json!(reasoning));
    }
    if !message.tool_call_id.is_empty() {
        fields.insert("tool_call_id".to_owned(), json!(message.tool_call_id));
    }
    if !message.tool_calls.is_empty() {
        let call = |call: &karat_model::prompt::ToolCall| {
            let arguments = match &call.arguments {
                Arguments::Text(text) => text.clone(),
                Arguments::Object(entries) => Json::Object(entries.clone()).dumps(),
            };
            json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
        };
        fields.insert("tool_calls".to_owned(), message.tool_calls.iter().map(call).collect());
    }
    Value::Object(fields)
}

fn plain(json: &Json) -> Value {
    // Text in between: both sides keep the order of keys.
    serde_json::from_str(&json.dumps()).unwrap_or(Value::Null)
}

/// Takes an answer, or one event of a stream.
pub(super) fn read(value: &Value, reply: &mut Reply, is_event: bool) -> Result<()> {
    reply.count(value.get("usage"));
    let Some(choices) = value.get("choices").and_then(Value::as_array) else {
        return Err(Trouble::malformed("the answer has no list of choices"));
    };
    let part = if is_event { "delta" } else { "message" };
    let Some(choice) = choices.first() else {
        // The event of the usage has none.
        return if is_event { Ok(()) } else { Err(Trouble::malformed("the answer has no choice")) };
    };
    let said = choice.get(part).unwrap_or(&Value::Null);
    if !said.is_object() && !said.is_null() {
        return Err(Trouble::malformed(format!("{part}: expected an object, found {}", kind(said))));
    }
    reply.content.push_str(text(said, "content")?);
    // Two names of one thing: SGLang and DeepSeek, vLLM.
    let reasoning = text(said, "reasoning_content")?;
    reply.reasoning.push_str(if reasoning.is_empty() { text(said, "reasoning")? } else { reasoning });
    for call in said.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
        take_call(call, reply, is_event)?;
    }
    let finish = text(choice, "finish_reason")?;
    if !finish.is_empty() {
        reply.finish = Some(finish.to_owned());
    }
    let log_probs = choice.get("logprobs").and_then(|l| l.get("content")).and_then(Value::as_array);
    for p in log_probs.into_iter().flatten().filter_map(|t| t.get("logprob").and_then(Value::as_f64)) {
        reply.log_probs.0 += p;
        reply.log_probs.1 += 1;
    }
    Ok(())
}

fn take_call(call: &Value, reply: &mut Reply, is_event: bool) -> Result<()> {
    let function = call.get("function").unwrap_or(&Value::Null);
    let (id, name, arguments) = (text(call, "id")?, text(function, "name")?, text(function, "arguments")?);
    // A stream brings a call in pieces, under its index.
    let index = match call.get("index").and_then(Value::as_u64) {
        Some(index) => index as usize,
        None if is_event && name.is_empty() => reply.calls.len().saturating_sub(1),
        None => reply.calls.len(),
    };
    if index > reply.calls.len() || index > 128 {
        return Err(Trouble::malformed(format!("tool_calls: index {index} behind {} calls", reply.calls.len())));
    }
    if index == reply.calls.len() {
        reply.calls.push(Call::default());
    }
    let mine = &mut reply.calls[index];
    if mine.id.is_empty() {
        id.clone_into(&mut mine.id);
    }
    mine.name.push_str(name);
    mine.arguments.push_str(arguments);
    Ok(())
}
