//! `karat-scenario/1`: a conversation as TOML.

use std::path::Path;

use karat_model::prompt::{Effort, EncodeOptions, Encoder, Json, Message, Role, Tokenizer};
use karat_model::{Error, Result};
use serde::Deserialize;
use toml::Spanned;

use crate::check_name;
use crate::cut::{Cut, Interruption};
use crate::grammar::families::Drawn;
use crate::grammar::marks::Mark;
use crate::marked::{self, Marked};
use crate::recipe::Recipe;

/// Name and version of the format.
pub(crate) const FORMAT: &str = "karat-scenario/1";
/// Far above any conversation.
const MAX_BYTES: u64 = 64 << 20;

/// What a scenario file holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A conversation, written down.
    Conversation(Scenario),
    /// How to make conversations.
    Recipe(Recipe),
}

/// A conversation that both paths run. An assistant message in it is what the model generates there (teacher-forced);
/// one that is interrupted goes on as the client saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Name of its sequence: the stem of the file.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// How it is rendered.
    pub options: EncodeOptions,
    /// The conversation in the OpenAI shape, tools on its system message.
    pub messages: Vec<Message>,
    /// Which of the messages were interrupted; one entry a message.
    pub(crate) interruptions: Vec<Option<Interruption>>,
    /// Where values are told and answered; one entry a message.
    pub(crate) marks: Vec<Vec<Marked>>,
    /// Rendered from one encoding of the whole: for long conversations.
    pub(crate) at_once: bool,
    /// What made it; `file` for a written one.
    pub maker: String,
    /// Tokens of a prefill chunk, when it is served in chunks.
    pub chunk: Option<usize>,
    /// The last answer is generated greedily by each path, going on from its own words.
    pub free: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: Spanned<String>,
    title: String,
    #[serde(default)]
    options: Options,
    tools: Option<Spanned<String>>,
    chunk: Option<usize>,
    #[serde(default)]
    free: bool,
    generate: Option<Spanned<Recipe>>,
    #[serde(default)]
    messages: Vec<Spanned<Json>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    thinking: bool,
    drop_thinking: bool,
    effort: Option<Spanned<String>>,
}

impl Default for Options {
    fn default() -> Self {
        let EncodeOptions { thinking, drop_thinking, .. } = EncodeOptions::default();
        Self { thinking, drop_thinking, effort: None }
    }
}

/// Where a message's error is: file and line.
struct Source<'a> {
    label: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn line(&self, byte: usize) -> String {
        let before = self.text.get(..byte).unwrap_or_default();
        format!("{}:{}", self.label, before.matches('\n').count() + 1)
    }

    /// A spanned array table begins behind its header; its error is about the lines from there on.
    fn of<T>(&self, spanned: &Spanned<T>) -> String {
        self.line(spanned.span().start)
    }
}

impl Content {
    /// Reads a scenario file.
    pub fn load(path: &Path) -> Result<Self> {
        let label = path.display().to_string();
        let unreadable = |e: std::io::Error| Error::input("the scenario can't be read").at(&label).found(e);
        let size = std::fs::metadata(path).map_err(unreadable)?.len();
        if size > MAX_BYTES {
            return Err(Error::input("the file is too large for a scenario")
                .at(&label)
                .expected(format!("at most {MAX_BYTES} bytes"))
                .found(size));
        }
        let bytes = std::fs::read(path).map_err(unreadable)?;
        let text = String::from_utf8(bytes).map_err(|e| {
            Error::input("not a UTF-8 text")
                .at(&label)
                .found(format!("other bytes at {}", e.utf8_error().valid_up_to()))
        })?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::from_toml(&name, &label, &text)
    }

    /// What the text of a file holds. `name` becomes the id of its sequence, `label` stands in messages.
    pub fn from_toml(name: &str, label: &str, text: &str) -> Result<Self> {
        check_name(name).map_err(|e| e.at(label).hint("rename the file"))?;
        let source = Source { label, text };
        let file: File = toml::from_str(text).map_err(|e| {
            let place = e.span().map_or_else(|| label.to_owned(), |span| source.line(span.start));
            Error::input(e.message().trim().replace('\n', " ")).at(place)
        })?;
        if file.format.get_ref() != FORMAT {
            return Err(Error::input("unknown format")
                .at(source.of(&file.format))
                .expected(FORMAT)
                .found(format!("{:?}", file.format.get_ref())));
        }
        if let Some(recipe) = file.generate {
            if !file.messages.is_empty() || file.tools.is_some() {
                let what = "a scenario holds messages or makes them, not both";
                return Err(Error::input(what).at(source.of(&recipe)));
            }
            let place = source.of(&recipe);
            let recipe = Recipe { name: name.to_owned(), title: file.title, ..recipe.into_inner() };
            recipe.check().map_err(|e| e.at(place))?;
            return Ok(Self::Recipe(recipe));
        }
        let effort = file.options.effort.map(|word| {
            Effort::from_name(word.get_ref()).ok_or_else(|| {
                Error::input("unknown effort")
                    .at(source.of(&word))
                    .expected("low, high or max")
                    .found(format!("{:?}", word.get_ref()))
            })
        });
        let Options { thinking, drop_thinking, .. } = file.options;
        let options = EncodeOptions { thinking, drop_thinking, effort: effort.transpose()? };
        let (name, title, chunk, free) = (name.to_owned(), file.title, file.chunk, file.free);
        let mut scenario = Scenario { name, title, options, chunk, free, ..Scenario::empty() };
        for spanned in file.messages {
            let place = source.of(&spanned);
            let (message, interruption, marks) = message(spanned.into_inner()).map_err(|e| e.at(place))?;
            scenario.messages.push(message);
            scenario.interruptions.push(interruption);
            scenario.marks.push(marks);
        }
        if scenario.messages.is_empty() {
            return Err(Error::input("a scenario needs messages").at(label));
        }
        if let Some(tools) = &file.tools {
            scenario.add_tools(tools.get_ref()).map_err(|e| e.at(source.of(tools)))?;
        }
        Ok(Self::Conversation(scenario))
    }

    /// Its name: the stem of the file.
    pub fn name(&self) -> &str {
        match self {
            Self::Conversation(scenario) => &scenario.name,
            Self::Recipe(recipe) => &recipe.name,
        }
    }

    /// One line for people.
    pub fn title(&self) -> &str {
        match self {
            Self::Conversation(scenario) => &scenario.title,
            Self::Recipe(recipe) => &recipe.title,
        }
    }

    pub(crate) fn one(self) -> Result<Scenario> {
        match self {
            Self::Conversation(scenario) => Ok(scenario),
            Self::Recipe(_) => Err(Error::input("this makes conversations; one that is written down is needed")
                .hint("`karat scenario generate` writes them down")),
        }
    }

    /// Its conversations.
    pub fn conversations(self, tokenizer: &Tokenizer, encoder: &Encoder) -> Result<Vec<Scenario>> {
        match self {
            Self::Conversation(scenario) => Ok(vec![scenario]),
            Self::Recipe(recipe) => recipe.make(tokenizer, encoder),
        }
    }
}

impl Scenario {
    /// Nothing yet.
    pub(crate) fn empty() -> Self {
        let options = EncodeOptions::default();
        let (name, title, maker) = (String::new(), String::new(), "file".to_owned());
        let (messages, interruptions, marks) = (vec![], vec![], vec![]);
        Self { name, title, options, messages, interruptions, marks, at_once: false, maker, chunk: None, free: false }
    }

    /// A conversation of the grammar.
    pub(crate) fn of_grammar(name: String, title: &str, drawn: Drawn) -> Self {
        let mut scenario =
            Self { name, title: title.to_owned(), options: drawn.options, at_once: true, ..Self::empty() };
        for (i, message) in drawn.messages.into_iter().enumerate() {
            let (message, marks) = marked::take(message);
            scenario.messages.push(message);
            scenario.marks.push(marks);
            scenario.interruptions.push(drawn.interrupted.contains(&i).then_some(Interruption::AsWritten));
        }
        scenario
    }

    /// Reads a scenario file that holds one conversation.
    pub fn load(path: &Path) -> Result<Self> {
        Content::load(path)?.one().map_err(|e| e.at(path.display()))
    }

    /// A conversation from the text of a file. `name` becomes the id of its sequence, `label` stands in messages.
    pub fn from_toml(name: &str, label: &str, text: &str) -> Result<Self> {
        Content::from_toml(name, label, text)?.one().map_err(|e| e.at(label))
    }

    /// Tools of a request belong to its first system message; without one they get an empty one in front.
    fn add_tools(&mut self, text: &str) -> Result<()> {
        let tools = json_text("tools", text)?;
        let carrier = Json::Object(vec![
            ("role".to_owned(), Json::Str("system".to_owned())),
            ("content".to_owned(), Json::Str(String::new())),
            ("tools".to_owned(), tools),
        ]);
        let carrier = Message::from_json(&carrier)?;
        match self.messages.iter_mut().find(|m| m.role == Role::System) {
            Some(system) if system.tools.is_empty() => system.tools = carrier.tools,
            Some(_) => return Err(Error::input("the system message has tools already").at("tools")),
            None => {
                self.messages.insert(0, carrier);
                self.interruptions.insert(0, None);
                self.marks.insert(0, Vec::new());
            }
        }
        Ok(())
    }
}

/// A message of the OpenAI shape with the fields of a scenario taken out.
fn message(json: Json) -> Result<(Message, Option<Interruption>, Vec<Marked>)> {
    let Json::Object(fields) = json else {
        return Err(Error::input("a message is a table").found(json.kind()));
    };
    let mut left = Vec::with_capacity(fields.len());
    let (mut interrupted, mut cut) = (false, None);
    let mut marked: Vec<(&str, Json)> = Vec::new();
    for (name, value) in fields {
        refuse_dates(&value).map_err(|e| e.at(&name))?;
        match name.as_str() {
            "interrupted" => match value {
                Json::Bool(v) => interrupted = v,
                other => {
                    return Err(Error::input("wrong kind of value").at(name).expected("a boolean").found(other.kind()));
                }
            },
            "plants" => marked.push(("plants", value)),
            "answers" => marked.push(("answers", value)),
            "cut" => cut = Some(Cut::from_json(&value).map_err(|e| e.at(&name))?),
            // Tables lose the order of their keys; these two are rendered in it.
            "tools" | "response_format" => match value {
                Json::Str(text) => left.push((name.clone(), json_text(&name, &text)?)),
                other => {
                    return Err(Error::input("in a scenario this is a JSON text, which keeps the order of keys")
                        .at(name)
                        .expected("a string")
                        .found(other.kind()));
                }
            },
            _ => left.push((name, value)),
        }
    }
    let message = Message::from_json(&Json::Object(left))?;
    let mut marks = Vec::new();
    for (field, list) in &marked {
        marks.extend(marked::read(field, list, &message)?);
    }
    if message.role != Role::Assistant && marks.iter().any(|m| matches!(m.mark, Mark::Answer { .. })) {
        return Err(Error::input("only an assistant message can answer").at("answers"));
    }
    let interruption = match (cut, interrupted) {
        (Some(cut), _) => Some(Interruption::Cut(cut)),
        (None, true) => Some(Interruption::AsWritten),
        (None, false) => None,
    };
    if interruption.is_some() {
        if message.role != Role::Assistant {
            return Err(Error::input("only an assistant message can be interrupted"));
        }
        if interruption == Some(Interruption::AsWritten) && !message.tool_calls.is_empty() {
            return Err(Error::input("an interrupted answer never reached its tool calls").at("tool_calls"));
        }
    }
    Ok((message, interruption, marks))
}

fn json_text(name: &str, text: &str) -> Result<Json> {
    Json::parse(text).map_err(|e| Error::input("not a JSON text").at(name).found(e))
}

/// TOML's dates have no JSON form; serde hands them over as a table with a private key.
fn refuse_dates(json: &Json) -> Result<()> {
    match json {
        Json::Object(entries) => entries.iter().try_for_each(|(key, value)| {
            if key.starts_with("$__toml_private") {
                return Err(Error::input("a date has no JSON form").hint("put it in quotes"));
            }
            refuse_dates(value)
        }),
        Json::Array(items) => items.iter().try_for_each(refuse_dates),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
