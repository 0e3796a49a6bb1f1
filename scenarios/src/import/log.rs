//! Which records of a log belong together: what a client asked, and what the engine got.

use karat_model::prompt::{Json, Message, Role};
use karat_model::{Error, Result};

use super::record::{Event, Record, rid_of};
use super::{Entry, Exchange, request, served};

/// A log under construction.
#[derive(Default)]
pub(super) struct Log<'a> {
    asked: Vec<Line<'a>>,
    engine: Vec<Engine<'a>>,
    others: Vec<(usize, Entry<'a>)>,
    /// Records so far: their order in the file.
    count: usize,
}

struct Line<'a> {
    order: usize,
    place: String,
    text: &'a str,
    record: Result<Record>,
}

/// Records of one request for the engine.
struct Engine<'a> {
    rid: Option<String>,
    lines: Vec<Line<'a>>,
    taken: bool,
}

impl<'a> Log<'a> {
    /// Adds a record, parsed or not.
    pub(super) fn add(&mut self, place: String, text: &'a str, event: Event, record: Result<Record>) {
        self.count += 1;
        let line = Line { order: self.count, place, text, record };
        if event == Event::OpenAi {
            self.asked.push(line);
            return;
        }
        let rid = match &line.record {
            Ok(record) => word(&record.object, "rid"),
            Err(_) => rid_of(text),
        };
        match self.engine.iter_mut().rev().find(|e| rid.is_some() && e.rid == rid) {
            Some(engine) => engine.lines.push(line),
            None => self.engine.push(Engine { rid, lines: vec![line], taken: false }),
        }
    }

    /// Adds a line that stands for itself.
    pub(super) fn other(&mut self, entry: Entry<'a>) {
        self.count += 1;
        self.others.push((self.count, entry));
    }

    /// All exchanges in the order of the file.
    pub(super) fn entries(mut self) -> Result<Vec<Entry<'a>>> {
        let asked = std::mem::take(&mut self.asked);
        if asked.is_empty() && self.others.is_empty() && !self.engine.is_empty() {
            return Err(Error::input(
                "the log has prompts but no chat requests (`Receive OpenAI`) to compare them with",
            )
            .at(&self.engine[0].lines[0].place));
        }
        let mut entries = std::mem::take(&mut self.others);
        for line in asked {
            let mut lines = vec![line.text];
            let order = line.order;
            let place = line.place.clone();
            let exchange = self.exchange(line, &mut lines);
            entries.push((order, Entry { place, lines, exchange }));
        }
        // A broken record that belongs to no request is not passed over.
        for line in self.engine.into_iter().filter(|e| !e.taken).flat_map(|e| e.lines) {
            if let Err(e) = line.record {
                entries.push((line.order, Entry { place: line.place, lines: vec![line.text], exchange: Err(e) }));
            }
        }
        entries.sort_by_key(|(order, _)| *order);
        Ok(entries.into_iter().map(|(_, entry)| entry).collect())
    }

    fn exchange(&mut self, line: Line<'a>, lines: &mut Vec<&'a str>) -> Result<Exchange> {
        let record = line.record?;
        refuse_cut(&record, &["messages", "tools"])?;
        let request = request::of_object(&record.object)?;
        let mut exchange = Exchange {
            place: line.place,
            rid: word(&record.object, "rid"),
            messages: request.messages,
            asked: request.asked,
            served: None,
            answer: None,
            aborted: false,
            notes: request.notes,
        };
        let best = [Fit::Surely, Fit::Perhaps];
        let mut best =
            best.iter().filter_map(|fit| self.engine.iter().position(|e| e.fit(line.order, &exchange) == *fit));
        let Some(engine) = best.next().map(|i| &mut self.engine[i]) else {
            exchange.notes.push("the log has no prompt of this request".to_owned());
            return Ok(exchange);
        };
        engine.taken = true;
        exchange.rid = exchange.rid.or_else(|| engine.rid.clone());
        for line in &engine.lines {
            lines.push(line.text);
            let record = line.record.as_ref().map_err(|e| e.clone().at(&line.place))?;
            let named = |e: Error| e.at(&line.place);
            // The later record of a request holds the text too, which the server decodes after the first.
            refuse_cut(record, &["input_ids", "text"]).map_err(named)?;
            if let Some(found) = served(&record.object, &["input_ids"], &["text"]).map_err(named)? {
                exchange.served = Some(found);
            }
            if let Some(out) = &record.out {
                exchange.answer = word(out, "text");
                let reason = out.get("meta_info").and_then(|m| m.get("finish_reason"));
                exchange.aborted = reason.and_then(|r| word(r, "type")).as_deref() == Some("abort");
            }
        }
        Ok(exchange)
    }
}

/// Whether records of the engine are of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// By its id, or by a text that has what was asked last.
    Surely,
    /// They come behind it, and nothing speaks against it.
    Perhaps,
    /// They are another's.
    No,
}

impl Engine<'_> {
    fn fit(&self, order: usize, exchange: &Exchange) -> Fit {
        if self.taken || self.lines.first().is_none_or(|line| line.order < order) {
            return Fit::No;
        }
        if exchange.rid.is_some() && self.rid.is_some() {
            return if exchange.rid == self.rid { Fit::Surely } else { Fit::No };
        }
        let records = self.lines.iter().filter_map(|line| line.record.as_ref().ok());
        let texts: Vec<String> = records.filter_map(|record| word(&record.object, "text")).collect();
        if texts.is_empty() {
            // Nothing of it could be read, or it was never finished.
            let some_read = self.lines.iter().any(|line| line.record.is_ok());
            return if some_read { Fit::Perhaps } else { Fit::No };
        }
        let last = exchange.messages.iter().rfind(|m| m.role != Role::Assistant).map(first_words);
        if last.is_none_or(|last| texts.iter().any(|text| text.contains(&last))) { Fit::Surely } else { Fit::No }
    }
}

fn first_words(message: &Message) -> String {
    message.content.first().cloned().unwrap_or_default()
}

fn word(object: &Json, name: &str) -> Option<String> {
    match object.get(name) {
        Some(Json::Str(text)) => Some(text.clone()),
        _ => None,
    }
}

/// Refuses fields that the log cut short.
fn refuse_cut(record: &Record, fields: &[&str]) -> Result<()> {
    match fields.iter().find(|f| record.cut.iter().any(|c| c == *f)) {
        None => Ok(()),
        Some(field) => Err(Error::input("the log line is truncated: the server cut this field short")
            .at(field)
            .hint("log with --log-requests-level 3, which cuts nothing")),
    }
}
