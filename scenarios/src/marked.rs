//! Stretches of messages whose role recall must know: where a value is told, and where the model must answer it.

use std::ops::Range;

use karat_model::prompt::{Arguments, Json, Message};
use karat_model::{Error, Result};

use crate::grammar::marks::{Mark, mark, pieces};
use crate::grammar::talk::KINDS;

/// Which text of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// One of its content texts.
    Content(usize),
    /// Its reasoning.
    Reasoning,
    /// The arguments of one of its calls.
    Arguments(usize),
}

/// A marked stretch of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marked {
    pub(crate) place: Place,
    /// Bytes of that text.
    pub(crate) range: Range<usize>,
    pub(crate) mark: Mark,
}

fn text(message: &Message, place: Place) -> Option<&String> {
    match place {
        Place::Content(i) => message.content.get(i),
        Place::Reasoning => message.reasoning_content.as_ref(),
        Place::Arguments(i) => match message.tool_calls.get(i).map(|call| &call.arguments) {
            Some(Arguments::Text(text)) => Some(text),
            _ => None,
        },
    }
}

fn text_mut(message: &mut Message, place: Place) -> Option<&mut String> {
    match place {
        Place::Content(i) => message.content.get_mut(i),
        Place::Reasoning => message.reasoning_content.as_mut(),
        Place::Arguments(i) => match message.tool_calls.get_mut(i).map(|call| &mut call.arguments) {
            Some(Arguments::Text(text)) => Some(text),
            _ => None,
        },
    }
}

fn places(message: &Message) -> Vec<Place> {
    let content = (0..message.content.len()).map(Place::Content);
    let calls = (0..message.tool_calls.len()).map(Place::Arguments);
    std::iter::once(Place::Reasoning).chain(content).chain(calls).collect()
}

/// A message of the grammar as a plain one, and its marks.
pub(crate) fn take(mut message: Message) -> (Message, Vec<Marked>) {
    let mut marks = Vec::new();
    for place in places(&message) {
        let Some(marked) = text_mut(&mut message, place) else { continue };
        let mut clean = String::with_capacity(marked.len());
        for (piece, mark) in pieces(marked) {
            let start = clean.len();
            clean.push_str(&piece);
            marks.extend(mark.map(|mark| Marked { place, range: start..clean.len(), mark }));
        }
        *marked = clean;
    }
    (message, marks)
}

/// The message with its marks written into its texts. A mark behind the end of a text (the client cut it) is left out.
pub(crate) fn write(message: &Message, marks: &[Marked]) -> Message {
    let mut out = message.clone();
    // From the back, so that ranges stay where they are.
    let mut order: Vec<&Marked> = marks.iter().collect();
    order.sort_by_key(|m| (m.place, std::cmp::Reverse(m.range.start)));
    for m in order {
        let Some(text) = text_mut(&mut out, m.place) else { continue };
        let Some(inner) = text.get(m.range.clone()) else { continue };
        let wrapped = mark(inner, m.mark);
        text.replace_range(m.range.clone(), &wrapped);
    }
    out
}

/// Reads `plants` or `answers` of a message: `[{ fact = 1, text = "K472" }]`, for answers with `kind`; `nth` (from 0)
/// where the text occurs more than once, `in` for another text than the content: `reasoning` or `arguments`.
pub(crate) fn read(field: &str, json: &Json, message: &Message) -> Result<Vec<Marked>> {
    let list = match json {
        Json::Array(list) => list,
        other => return Err(Error::input("wrong kind of value").at(field).expected("a list").found(other.kind())),
    };
    list.iter()
        .enumerate()
        .map(|(i, json)| one(field, json, message).map_err(|e| e.at(format!("{field}[{i}]"))))
        .collect()
}

fn one(field: &str, json: &Json, message: &Message) -> Result<Marked> {
    let expected = "{ fact = NUMBER, text = \"...\" }, with `kind`, `nth` and `in` where they are needed";
    let refuse = |what: &str| Error::input(what.to_owned()).expected(expected).found(json.dumps());
    let Json::Object(entries) = json else { return Err(refuse("not a mark")) };
    let (mut fact, mut wanted, mut kind, mut nth, mut within) = (None, None, 0, 0, Place::Content(0));
    for (name, value) in entries {
        match (name.as_str(), value) {
            ("fact", Json::Int(n)) => fact = n.parse::<u16>().ok().filter(|&n| n < 10_000),
            ("nth", Json::Int(n)) => nth = n.parse::<usize>().map_err(|_| refuse("not a count"))?,
            ("text", Json::Str(text)) => wanted = Some(text.as_str()),
            ("kind", Json::Str(name)) if field == "answers" => {
                kind = KINDS.iter().position(|k| k == name).ok_or_else(|| {
                    Error::input("unknown kind of question").expected(KINDS.join(", ")).found(format!("{name:?}"))
                })?;
            }
            ("in", Json::Str(name)) if name == "reasoning" => within = Place::Reasoning,
            ("in", Json::Str(name)) if name == "arguments" => within = Place::Arguments(0),
            _ => return Err(refuse("not a mark")),
        }
    }
    let (Some(fact), Some(wanted)) = (fact, wanted.filter(|t| !t.is_empty())) else { return Err(refuse("not a mark")) };
    let text = text(message, within).map_or("", String::as_str);
    let Some((at, _)) = text.match_indices(wanted).nth(nth) else {
        return Err(Error::input("the message does not say this").at("text").found(format!("{wanted:?}")));
    };
    // Tokens of words begin with the space before them.
    let start = if at > 0 && text.as_bytes()[at - 1] == b' ' { at - 1 } else { at };
    let mark = match field {
        "plants" => Mark::Plant { fact },
        _ => Mark::Answer { fact, kind: kind as u8 },
    };
    Ok(Marked { place: within, range: start..at + wanted.len(), mark })
}

#[cfg(test)]
mod tests;
