//! One line of a file: a log record, a JSON value, or noise.

use karat_model::prompt::Json;
use karat_model::{Error, Result};

use super::literal::{self, Broken};

/// What a line of a server's log says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A chat request as the client sent it.
    OpenAi,
    /// A request for the engine, templated: text or ids.
    Receive,
    /// The same with its answer.
    Finish,
}

/// A parsed record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Record {
    pub(super) event: Event,
    pub(super) object: Json,
    /// The answer (`Finish`).
    pub(super) out: Option<Json>,
    /// Top-level fields of the object that the log cut short.
    pub(super) cut: Vec<String>,
}

/// What stands in a line.
#[derive(Debug)]
pub(super) enum Line<'a> {
    /// A log record; the text behind the event's mark is not parsed yet.
    Log(Event, &'a str),
    /// A log record in JSON, or any other JSON value.
    Json(&'a str),
    /// Something else that a server writes.
    Noise,
}

const MARKS: [(&str, Event); 3] =
    [("Receive OpenAI: obj=", Event::OpenAi), ("Receive: obj=", Event::Receive), ("Finish: obj=", Event::Finish)];

/// Tells what a line is. Text that a user typed can hold a mark too: the first one counts, and none inside JSON.
pub(super) fn classify(line: &str) -> Line<'_> {
    let line = line.trim();
    if line.starts_with('{') {
        return Line::Json(line);
    }
    if let Some(rest) = line.strip_prefix('[') {
        // `[2026-11-29 21:00:00 TP0] ...` is a log's prefix, anything else a list.
        let is_prefix = rest.starts_with(|c: char| c.is_ascii_digit()) && rest.contains("] ");
        let behind = rest.split_once("] ").map_or("", |(_, behind)| behind.trim_start());
        match (is_prefix, behind.starts_with('{')) {
            (false, _) => return Line::Json(line),
            (true, true) => return Line::Json(behind),
            (true, false) => {}
        }
    }
    let found =
        MARKS.iter().filter_map(|(mark, event)| line.find(mark).map(|at| (at, &line[at + mark.len()..], event)));
    match found.min_by_key(|(at, ..)| *at) {
        Some((_, behind, event)) => Line::Log(*event, behind),
        None => Line::Noise,
    }
}

/// Parses a log record: `OBJECT[, headers=...][, out=...]`.
pub(super) fn parse_log(event: Event, text: &str) -> Result<Record> {
    let (object, mut at) = literal::parse(text).map_err(|e| truncated(&e, 0))?;
    let mut out = None;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let field =
            ["headers=", "out="].into_iter().find(|f| rest.strip_prefix(", ").is_some_and(|r| r.starts_with(f)));
        let Some(field) = field else {
            return Err(truncated(&Broken { what: "expected the end of the line or the next field", at }, 0));
        };
        let start = at + 2 + field.len();
        let (value, n) = literal::parse(text.get(start..).unwrap_or_default()).map_err(|e| truncated(&e, start))?;
        if field == "out=" {
            out = Some(value.value);
        }
        at = start + n;
    }
    if event == Event::Finish && out.is_none() {
        return Err(Error::input("the log line is truncated").expected("the answer behind `out=`").found("nothing"));
    }
    Ok(Record { event, object: object.value, out, cut: tops(&object.cut) })
}

/// The request id in a line that can't be parsed whole: it stands near its start.
pub(super) fn rid_of(text: &str) -> Option<String> {
    let behind = ["rid='", "\"rid\": \""].iter().find_map(|mark| text.split_once(mark)).map(|(_, behind)| behind)?;
    behind.split_once(['\'', '"']).map(|(rid, _)| rid.to_owned())
}

/// Parses a JSON log record; `None` for JSON that is none.
pub(super) fn of_json(json: &Json) -> Option<Record> {
    let Some(Json::Str(name)) = json.get("event") else { return None };
    let event = match name.as_str() {
        "request.received.openai" => Event::OpenAi,
        "request.received" => Event::Receive,
        "request.finished" => Event::Finish,
        _ => return None,
    };
    let mut cut = Vec::new();
    let object = json.get("obj")?.clone();
    json_cuts(&object, &mut Vec::new(), &mut cut);
    Some(Record { event, object, out: json.get("out").cloned(), cut: tops(&cut) })
}

/// Parses a line of JSON.
pub(super) fn parse_json(text: &str) -> Result<Json> {
    Json::parse(text).map_err(|e| {
        let cut_off = e.at >= text.trim_end().len() || e.what == "unterminated string";
        Error::input(if cut_off { "the line is truncated" } else { "not JSON" }).found(e)
    })
}

fn truncated(e: &Broken, offset: usize) -> Error {
    Error::input("the log line is truncated or damaged")
        .found(format!("{} at byte {} of the object", e.what, e.at + offset))
        .hint("the whole line is needed: log with --log-requests-level 3, and let nothing cut long lines")
}

/// First keys of paths.
fn tops(paths: &[String]) -> Vec<String> {
    let mut tops: Vec<String> = paths.iter().map(|p| p.split('.').next().unwrap_or_default().to_owned()).collect();
    tops.dedup();
    tops
}

/// At level 2 a JSON log cuts texts and lists to this length, with "..." in the middle.
const LEVEL_2: usize = 2048;

fn json_cuts(json: &Json, path: &mut Vec<String>, cut: &mut Vec<String>) {
    match json {
        Json::Str(text) => {
            // Counting stops early: most texts are shorter, and some are very long.
            let exact = text.chars().take(LEVEL_2 + 4).count() == LEVEL_2 + 3;
            if exact && text.chars().skip(LEVEL_2 / 2).take(3).all(|c| c == '.') {
                cut.push(path.join("."));
            }
        }
        Json::Array(items) => {
            if items.len() == LEVEL_2 + 1 && items[LEVEL_2 / 2] == Json::Str("...".to_owned()) {
                cut.push(path.join("."));
            }
            items.iter().for_each(|item| json_cuts(item, path, cut));
        }
        Json::Object(entries) => {
            for (key, value) in entries {
                path.push(key.clone());
                json_cuts(value, path, cut);
                path.pop();
            }
        }
        _ => {}
    }
}
