//! A request in the OpenAI shape: its messages, and how it asks for thinking.

use karat_model::prompt::{Json, Message, Role};
use karat_model::{Error, Result};

/// What a request says about its rendering.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Thinking mode or chat mode; `None` where the request leaves it to the server.
    pub thinking: Option<bool>,
    /// The word of the effort tier.
    pub effort: Option<String>,
}

/// A request, read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    pub(super) messages: Vec<Message>,
    pub(super) asked: Asked,
    /// What was left out, for people.
    pub(super) notes: Vec<String>,
}

/// Fields of a message that the encoder knows.
const KNOWN: [&str; 10] = [
    "role",
    "content",
    "name",
    "reasoning_content",
    "tool_calls",
    "tool_call_id",
    "tools",
    "response_format",
    "task",
    "wo_eos",
];

/// Reads `{"messages": [...], "tools": [...], ...}`.
pub(super) fn of_object(object: &Json) -> Result<Request> {
    let list = object.get("messages").ok_or_else(|| Error::input("the request has no messages"))?;
    let mut request = of_messages(list)?;
    request.asked = asked(object);
    let Some(tools) = object.get("tools") else { return Ok(request) };
    if object.get("tool_choice") == Some(&Json::Str("none".to_owned())) {
        request.notes.push("tool_choice is none: the tools are not rendered".to_owned());
        return Ok(request);
    }
    add_tools(&mut request.messages, tools)?;
    Ok(request)
}

/// Reads an array of messages.
pub(super) fn of_messages(list: &Json) -> Result<Request> {
    let Json::Array(items) = list else {
        return Err(Error::input("messages are an array").at("messages").found(list.kind()));
    };
    let mut notes = Vec::new();
    let mut messages = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let place = || format!("messages[{i}]");
        let known = known_fields(item, i, &mut notes);
        messages.push(Message::from_json(&known).map_err(|e| e.at(place()))?);
    }
    if messages.is_empty() {
        return Err(Error::input("a conversation needs messages").at("messages"));
    }
    Ok(Request { messages, asked: Asked::default(), notes })
}

/// A message without the fields that no prompt shows (refusal, annotations, ...); `reasoning` is another server's word
/// for `reasoning_content`.
fn known_fields(item: &Json, index: usize, notes: &mut Vec<String>) -> Json {
    let Json::Object(fields) = item else { return item.clone() };
    let has_reasoning = item.get("reasoning_content").is_some();
    let mut kept = Vec::with_capacity(fields.len());
    for (name, value) in fields.iter().filter(|(_, v)| *v != Json::Null) {
        match name.as_str() {
            "reasoning" if !has_reasoning => kept.push(("reasoning_content".to_owned(), value.clone())),
            // A server's model dump writes empty lists where a client wrote nothing.
            "tool_calls" | "tools" if *value == Json::Array(Vec::new()) => {}
            known if KNOWN.contains(&known) => kept.push((name.clone(), value.clone())),
            other => notes.push(format!("messages[{index}]: the field {other:?} is in no prompt and was left out")),
        }
    }
    Json::Object(kept)
}

/// Tools of a request belong to its first system message; without one they get an empty one in front.
fn add_tools(messages: &mut Vec<Message>, tools: &Json) -> Result<()> {
    let carrier = Json::Object(vec![
        ("role".to_owned(), Json::Str("system".to_owned())),
        ("content".to_owned(), Json::Str(String::new())),
        ("tools".to_owned(), tools.clone()),
    ]);
    let carrier = Message::from_json(&carrier)?;
    match messages.iter_mut().find(|m| m.role == Role::System) {
        Some(system) if system.tools.is_empty() => system.tools = carrier.tools,
        Some(_) => return Err(Error::input("the request and its system message both have tools").at("tools")),
        None => messages.insert(0, carrier),
    }
    Ok(())
}

/// Every place in which requests name mode and effort.
fn asked(object: &Json) -> Asked {
    let boolean = |json: Option<&Json>| match json {
        Some(Json::Bool(v)) => Some(*v),
        _ => None,
    };
    let word = |json: Option<&Json>| match json {
        Some(Json::Str(v)) => Some(v.clone()),
        _ => None,
    };
    let template = object.get("chat_template_kwargs");
    let of_template = |name: &str| template.and_then(|t| t.get(name));
    let effort = word(object.get("reasoning_effort")).or_else(|| word(of_template("reasoning_effort")));
    let kind = word(object.get("thinking").and_then(|t| t.get("type"))).or_else(|| word(of_template("thinking_mode")));
    let of_kind = kind.and_then(|kind| match kind.as_str() {
        "enabled" | "thinking" => Some(true),
        "disabled" | "chat" => Some(false),
        _ => None,
    });
    let thinking = boolean(of_template("thinking"))
        .or_else(|| boolean(of_template("enable_thinking")))
        .or(of_kind)
        .or_else(|| boolean(object.get("thinking")))
        .or(if effort.as_deref() == Some("none") { Some(false) } else { None });
    Asked { thinking, effort: effort.filter(|e| e != "none") }
}
