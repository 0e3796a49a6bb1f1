//! Conversations out of files that people have: arrays of messages in the OpenAI shape (JSON, or JSON a line) and the
//! request log of SGLang (`--log-requests`), whose records hold what a client asked beside what the server made of it.

mod literal;
mod log;
mod record;
mod request;
mod scenario;

pub use request::Asked;

use karat_model::prompt::{Json, Message};
use karat_model::{Error, Result};

use record::Line;

/// The prompt that a server really made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served {
    /// As text.
    Text(String),
    /// As token ids.
    Ids(Vec<u32>),
}

/// A conversation and, where the file has it, the prompt that was made of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// Where it stands: file and line.
    pub place: String,
    /// The server's id of the request.
    pub rid: Option<String>,
    /// The conversation in the OpenAI shape, tools on its system message.
    pub messages: Vec<Message>,
    /// How the request wants to be rendered.
    pub asked: Asked,
    /// What the server made of it.
    pub served: Option<Served>,
    /// What the model answered.
    pub answer: Option<String>,
    /// True where the server says that the client went away.
    pub aborted: bool,
    /// What was left out, for people.
    pub notes: Vec<String>,
}

/// Reads all conversations of a file in which `grep` is found, in the order of the file. `label` names it in messages.
/// A line that is cut short, in the log or in itself, is an input error, unless `grep` leaves it out.
pub fn read(label: &str, bytes: &[u8], grep: Option<&str>) -> Result<Vec<Exchange>> {
    let text = std::str::from_utf8(bytes)
        .map_err(|e| Error::input("not a UTF-8 text").at(label).found(format!("other bytes at {}", e.valid_up_to())))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let starts_json = text.trim_start().starts_with(['{', '[']);
    if starts_json && let Ok(json) = Json::parse(text) {
        return whole(label, text, &json, grep);
    }
    let mut found = lines(label, text)?;
    if found.is_empty() {
        return Err(Error::input("nothing that could be imported")
            .at(label)
            .expected("messages in the OpenAI shape (JSON, or JSON a line) or a server's log with --log-requests"));
    }
    found.retain(|entry| grep.is_none_or(|g| entry.lines.iter().any(|line| line.contains(g))));
    found.into_iter().map(|entry| entry.exchange.map_err(|e| e.at(&entry.place))).collect()
}

/// An exchange with the lines it was made of.
struct Entry<'a> {
    place: String,
    lines: Vec<&'a str>,
    exchange: Result<Exchange>,
}

/// A file that is one JSON value: a conversation, a request, or a list of either.
fn whole(label: &str, text: &str, json: &Json, grep: Option<&str>) -> Result<Vec<Exchange>> {
    let is_list_of_conversations = |items: &[Json]| {
        !items.is_empty() && items.iter().all(|i| matches!(i, Json::Array(_)) || i.get("messages").is_some())
    };
    match json {
        Json::Array(items) if is_list_of_conversations(items) => {
            let one = |(i, item): (usize, &Json)| of_value(&format!("{label}: [{i}]"), item);
            let kept = items.iter().enumerate().filter(|(_, item)| grep.is_none_or(|g| holds(item, g)));
            kept.map(one).collect()
        }
        _ if grep.is_some_and(|g| !text.contains(g) && !holds(json, g)) => Ok(Vec::new()),
        _ => Ok(vec![of_value(label, json)?]),
    }
}

/// True where a text of the value contains `grep`.
fn holds(json: &Json, grep: &str) -> bool {
    match json {
        Json::Str(text) => text.contains(grep),
        Json::Array(items) => items.iter().any(|item| holds(item, grep)),
        Json::Object(entries) => entries.iter().any(|(_, value)| holds(value, grep)),
        _ => false,
    }
}

/// A line a conversation, or a log.
fn lines<'a>(label: &str, text: &'a str) -> Result<Vec<Entry<'a>>> {
    let mut log = log::Log::default();
    for (i, line) in text.lines().enumerate() {
        let place = format!("{label}:{}", i + 1);
        match record::classify(line) {
            Line::Noise => {}
            Line::Log(event, behind) => {
                log.add(place, line, event, record::parse_log(event, behind));
            }
            Line::Json(json) => match record::parse_json(json) {
                Err(e) => log.other(Entry { place, lines: vec![line], exchange: Err(e) }),
                Ok(json) => match (record::of_json(&json), json.get("event")) {
                    (Some(record), _) => log.add(place, line, record.event, Ok(record)),
                    (None, Some(_)) => {}
                    (None, None) => {
                        let exchange = of_value("", &json).map(|e| Exchange { place: place.clone(), ..e });
                        log.other(Entry { place, lines: vec![line], exchange });
                    }
                },
            },
        }
    }
    log.entries()
}

/// A conversation: an array of messages, or an object with `messages` and perhaps the prompt that a server made of
/// them (`prompt` or `text`; `input_ids` or `prompt_token_ids`).
fn of_value(place: &str, json: &Json) -> Result<Exchange> {
    let at = |e: Error| if place.is_empty() { e } else { e.at(place) };
    let request = match json {
        Json::Array(_) => request::of_messages(json),
        _ => request::of_object(json),
    };
    let request = request.map_err(at)?;
    let answer = match json.get("response").or(json.get("answer")) {
        Some(Json::Str(text)) => Some(text.clone()),
        _ => None,
    };
    let served = served(json, &["input_ids", "prompt_token_ids"], &["prompt", "text"]).map_err(at)?;
    Ok(Exchange {
        place: place.to_owned(),
        rid: None,
        messages: request.messages,
        asked: request.asked,
        served,
        answer,
        aborted: false,
        notes: request.notes,
    })
}

/// The prompt in one of these fields; ids say more than text.
fn served(object: &Json, ids: &[&str], texts: &[&str]) -> Result<Option<Served>> {
    for name in ids {
        if let Some(json) = object.get(name) {
            return token_ids(json).map(|ids| Some(Served::Ids(ids))).map_err(|e| e.at(name));
        }
    }
    let text = texts.iter().find_map(|name| match object.get(name) {
        Some(Json::Str(text)) => Some(Served::Text(text.clone())),
        _ => None,
    });
    Ok(text)
}

fn token_ids(json: &Json) -> Result<Vec<u32>> {
    let Json::Array(items) = json else {
        return Err(Error::input("token ids are an array").found(json.kind()));
    };
    let id = |(i, item): (usize, &Json)| match item {
        Json::Int(digits) => {
            digits.parse().map_err(|_| Error::input("not a token id").at(format!("[{i}]")).found(digits))
        }
        other => Err(Error::input("not a token id").at(format!("[{i}]")).found(other.kind())),
    };
    items.iter().enumerate().map(id).collect()
}

#[cfg(test)]
mod tests;
