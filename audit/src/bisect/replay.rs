//! The replay file: every answer of a search as a line of json, so that an interrupted search goes on where it was, and a
//! finished one can be read again without running anything.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use karat_model::Error;
use serde::{Deserialize, Serialize};

use super::search::Answer;
use crate::Result;

/// The first line's `format`.
const FORMAT: &str = "karat-replay/1";

/// What a question came to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Seen {
    /// A measurement; whether it is bad follows from the limit.
    Value(f64),
    /// An answer.
    Answer(Answer),
}

/// What a question came to, and what it took.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    /// The answer or the number.
    pub(super) seen: Seen,
    /// For people; may be empty.
    pub(super) note: String,
    /// Forward-equivalents that it took (0 where everything was known).
    pub(super) cost: f64,
}

/// Whose answers a file holds, field by field: a search with any other field is another search.
pub(super) type Identity = BTreeMap<String, String>;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    format: String,
    identity: Identity,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    question: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    answer: Option<String>,
    /// Numbers that json has none for are strings, as everywhere.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    value: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "String::is_empty", default)]
    note: String,
    #[serde(default)]
    cost: f64,
}

/// A replay file, open: answers that it holds and that were not taken yet, and where new ones go.
#[derive(Debug)]
pub(super) struct Replay {
    path: PathBuf,
    held: BTreeMap<String, VecDeque<Measured>>,
    file: File,
}

impl Replay {
    /// Opens a file, or begins one.
    ///
    /// # Errors
    /// Usage: the file is another search's; the message names the field that differs. Input: it can't be read or written,
    /// or a line is none. A last line without an end was cut by an interruption, and is left out.
    pub(super) fn open(path: &Path, identity: &Identity) -> Result<Self> {
        let place = path.display().to_string();
        let text = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Error::input("the replay file can't be read").at(place).found(e).into()),
        };
        let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        let text = std::str::from_utf8(&text[..whole])
            .map_err(|e| Error::input("the replay file is not UTF-8").at(&place).found(e))?;
        let mut lines = (1..).zip(text.lines());
        if let Some((_, head)) = lines.next() {
            check(head, identity, &place)?;
        }
        let mut held: BTreeMap<String, VecDeque<Measured>> = BTreeMap::new();
        for (number, line) in lines {
            let (question, measured) = parse(line).map_err(|e| e.at(format!("{place}: line {number}")))?;
            held.entry(question).or_default().push_back(measured);
        }
        let unwritable = |e| Error::input("the replay file can't be written").at(&place).found(e);
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(unwritable)?;
        let mut out = Self { path: path.to_path_buf(), held, file };
        if whole == 0 {
            out.file.set_len(0).map_err(unwritable)?;
            out.line(&Head { format: FORMAT.to_string(), identity: identity.clone() })?;
        } else {
            out.file.set_len(whole as u64).map_err(unwritable)?;
        }
        Ok(out)
    }

    /// The next answer that the file holds for a question.
    pub(super) fn take(&mut self, question: &str) -> Option<Measured> {
        self.held.get_mut(question)?.pop_front()
    }

    /// Writes an answer down.
    pub(super) fn keep(&mut self, question: &str, measured: &Measured) -> Result<()> {
        let (answer, value) = match &measured.seen {
            Seen::Answer(answer) => (Some(answer.name().to_string()), None),
            Seen::Value(v) if v.is_finite() => (None, Some(serde_json::json!(v))),
            Seen::Value(v) => (None, Some(serde_json::json!(format!("{v:?}")))),
        };
        let (note, cost) = (measured.note.clone(), measured.cost);
        self.line(&Line { question: question.to_string(), answer, value, note, cost })
    }

    fn line(&mut self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(value).unwrap_or_default() + "\n";
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.flush());
        written.map_err(|e| {
            Error::input("the replay file can't be written").at(self.path.display().to_string()).found(e).into()
        })
    }
}

fn check(head: &str, identity: &Identity, place: &str) -> Result<()> {
    let none = |found: String| {
        Error::input("this is no replay file").at(format!("{place}: line 1")).expected(FORMAT).found(found)
    };
    let head: Head = serde_json::from_str(head).map_err(|e| none(e.to_string()))?;
    if head.format != FORMAT {
        return Err(none(head.format).into());
    }
    let names = identity.keys().chain(head.identity.keys());
    let differs = names.into_iter().find(|name| identity.get(*name) != head.identity.get(*name));
    let Some(name) = differs else { return Ok(()) };
    let shown = |of: &Identity| of.get(name).map_or("nothing".to_string(), |v| format!("`{v}`"));
    Err(Error::usage(format!("this replay file belongs to another search: its {name} differs"))
        .at(place)
        .expected(shown(identity))
        .found(shown(&head.identity))
        .hint("give another file, or the arguments that it was begun with")
        .into())
}

fn parse(line: &str) -> std::result::Result<(String, Measured), Error> {
    let line: Line = serde_json::from_str(line).map_err(|e| Error::input("this is no answer").found(e))?;
    let number = |v: &serde_json::Value| match v {
        serde_json::Value::String(text) if ["NaN", "inf", "-inf"].contains(&text.as_str()) => text.parse().ok(),
        other => other.as_f64(),
    };
    let seen = match (line.answer.as_deref(), &line.value) {
        (Some(word), None) => Answer::from_name(word).map(Seen::Answer),
        (None, Some(value)) => number(value).map(Seen::Value),
        _ => None,
    };
    let Some(seen) = seen.filter(|_| line.cost.is_finite() && line.cost >= 0.0) else {
        return Err(Error::input("this is no answer").expected("`answer`: good, bad or skip; or `value`: a number"));
    };
    Ok((line.question, Measured { seen, note: line.note, cost: line.cost }))
}

#[cfg(test)]
mod tests;
