//! A conversation as the text of a scenario file.

use std::fmt::Write as _;

use karat_model::prompt::{Arguments, Effort, Json, Message};
use karat_model::{Error, Result};

use crate::Scenario;
use crate::cut::{Cut, Interruption};
use crate::file::FORMAT;
use crate::grammar::marks::Mark;
use crate::grammar::talk::KINDS;
use crate::marked::{Marked, Place};

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

impl Scenario {
    /// The text of a file that holds this conversation, with what is told and asked.
    ///
    /// # Errors
    /// A message whose fields have no form in a file (arguments that are no text).
    pub fn to_toml(&self) -> Result<String> {
        // Writing to a String cannot fail.
        let mut out = format!("format = {}\ntitle = {}\n", quoted(FORMAT), quoted(&self.title));
        if let Some(chunk) = self.chunk {
            let _ = writeln!(out, "chunk = {chunk}");
        }
        if self.free {
            out.push_str("free = true\n");
        }
        let o = &self.options;
        let _ = write!(out, "\n[options]\nthinking = {}\ndrop_thinking = {}\n", o.thinking, o.drop_thinking);
        if let Some(effort) = o.effort {
            let word = match effort {
                Effort::Low => "low",
                Effort::High => "high",
                Effort::Max => "max",
            };
            let _ = writeln!(out, "effort = \"{word}\"");
        }
        for (i, message) in self.messages.iter().enumerate() {
            let cut = self.interruptions[i];
            write_message(&mut out, message, cut, &self.marks[i]).map_err(|e| e.at(format!("message {i}")))?;
        }
        Ok(out)
    }
}

fn write_message(out: &mut String, m: &Message, cut: Option<Interruption>, marks: &[Marked]) -> Result<()> {
    let _ = write!(out, "\n[[messages]]\nrole = {}\n", quoted(m.role.name()));
    match &m.content[..] {
        [] => out.push_str("content = \"\"\n"),
        [content] => {
            let _ = writeln!(out, "content = {}", quoted(content));
        }
        parts => {
            let part = |text: &String| format!("{{ type = \"text\", text = {} }}", quoted(text));
            let _ = writeln!(out, "content = [{}]", parts.iter().map(part).collect::<Vec<_>>().join(", "));
        }
    }
    if let Some(task) = m.task {
        let _ = writeln!(out, "task = {}", quoted(task.name()));
    }
    if let Some(format) = &m.response_format {
        let _ = writeln!(out, "response_format = {}", quoted(&format.dumps()));
    }
    if m.wo_eos {
        out.push_str("wo_eos = true\n");
    }
    if let Some(reasoning) = &m.reasoning_content {
        let _ = writeln!(out, "reasoning_content = {}", quoted(reasoning));
    }
    if !m.tool_call_id.is_empty() {
        let _ = writeln!(out, "tool_call_id = {}", quoted(&m.tool_call_id));
    }
    if !m.tools.is_empty() {
        let wrap = |tool: &Json| {
            let entries =
                vec![("type".to_owned(), Json::Str("function".to_owned())), ("function".to_owned(), tool.clone())];
            Json::Object(entries).dumps()
        };
        let tools: Vec<String> = m.tools.iter().map(wrap).collect();
        let _ = writeln!(out, "tools = {}", quoted(&format!("[{}]", tools.join(", "))));
    }
    if !m.tool_calls.is_empty() {
        let mut calls = Vec::new();
        for call in &m.tool_calls {
            let Arguments::Text(arguments) = &call.arguments else {
                return Err(Error::input("arguments that are no text have no form in a scenario file"));
            };
            let (id, name, arguments) = (quoted(&call.id), quoted(&call.name), quoted(arguments));
            calls.push(format!(
                "{{ id = {id}, type = \"function\", function = {{ name = {name}, arguments = {arguments} }} }}"
            ));
        }
        let _ = writeln!(out, "tool_calls = [{}]", calls.join(", "));
    }
    match cut {
        None => {}
        Some(Interruption::AsWritten) => out.push_str("interrupted = true\n"),
        Some(Interruption::Cut(Cut::Characters(n))) => {
            let _ = writeln!(out, "cut = {{ characters = {n} }}");
        }
        Some(Interruption::Cut(Cut::Tokens(n))) => {
            let _ = writeln!(out, "cut = {{ tokens = {n} }}");
        }
    }
    for (field, answers) in [("plants", false), ("answers", true)] {
        let list: Vec<String> = marks.iter().filter_map(|mark| one(m, mark, answers)).collect();
        if !list.is_empty() {
            let _ = writeln!(out, "{field} = [{}]", list.join(", "));
        }
    }
    Ok(())
}

/// A mark as it stands in a file, if it is one of the kind that is written.
fn one(message: &Message, marked: &Marked, answers: bool) -> Option<String> {
    let (fact, kind) = match (marked.mark, answers) {
        (Mark::Plant { fact }, false) => (fact, String::new()),
        (Mark::Answer { fact, kind }, true) => {
            let name = KINDS.get(usize::from(kind)).copied().unwrap_or_default();
            (fact, format!(", kind = {}", quoted(name)))
        }
        _ => return None,
    };
    let (text, within) = match marked.place {
        Place::Content(_) => (message.content.first()?.as_str(), ""),
        Place::Reasoning => (message.reasoning_content.as_deref()?, ", in = \"reasoning\""),
        Place::Arguments(_) => match &message.tool_calls.first()?.arguments {
            Arguments::Text(text) => (text.as_str(), ", in = \"arguments\""),
            Arguments::Object(_) => return None,
        },
    };
    let said = text.get(marked.range.clone())?.trim_start();
    let at = marked.range.end - said.len();
    let nth = text.match_indices(said).position(|(start, _)| start == at)?;
    let nth = if nth > 0 { format!(", nth = {nth}") } else { String::new() };
    Some(format!("{{ fact = {fact}, text = {}{kind}{nth}{within} }}", quoted(said)))
}

#[cfg(test)]
mod tests;
