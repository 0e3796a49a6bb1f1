//! Messages in the OpenAI shape, with the fields that the V4 encoder adds (`reasoning_content`, `tools`,
//! `response_format`, `task`, `wo_eos`).

use serde::de::{Deserialize, Deserializer, Error as _};

use super::json::Json;
use super::special;
use crate::{Error, Result};

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Instructions before the conversation.
    System,
    /// Instructions within it.
    Developer,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// A tool's result.
    Tool,
    /// A reminder that is placed late in the prompt.
    LatestReminder,
    /// A role that the encoder does not know: it can only be dropped (spec section 5, step 3).
    Other(String),
}

impl Role {
    fn from_name(name: &str) -> Self {
        match name {
            "system" => Self::System,
            "developer" => Self::Developer,
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "tool" => Self::Tool,
            "latest_reminder" => Self::LatestReminder,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The word in a message.
    pub fn name(&self) -> &str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::LatestReminder => "latest_reminder",
            Self::Other(name) => name,
        }
    }
}

/// A short job that a special token asks for instead of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Decide on an action.
    Action,
    /// Write a search query.
    Query,
    /// Judge authority.
    Authority,
    /// Name the domain.
    Domain,
    /// Write a title.
    Title,
    /// Read a URL.
    ReadUrl,
}

impl Task {
    const ALL: [(&'static str, Self, &'static str); 6] = [
        ("action", Self::Action, special::ACTION),
        ("query", Self::Query, special::QUERY),
        ("authority", Self::Authority, special::AUTHORITY),
        ("domain", Self::Domain, special::DOMAIN),
        ("title", Self::Title, special::TITLE),
        ("read_url", Self::ReadUrl, special::READ_URL),
    ];

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(n, ..)| *n == name).map(|(_, task, _)| task)
    }

    /// The word in a message.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, task, _)| *task == self).map_or("", |(name, ..)| name)
    }

    /// Its special token.
    pub fn token(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, task, _)| *task == self).map_or("", |(.., token)| token)
    }
}

/// What a call passes to its tool.
#[derive(Debug, Clone, PartialEq)]
pub enum Arguments {
    /// As the OpenAI shape has it: a string that should be JSON.
    Text(String),
    /// An object that some clients send instead.
    Object(Vec<(String, Json)>),
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Id that the result names; may be empty.
    pub id: String,
    /// Name of the function.
    pub name: String,
    /// What it is called with.
    pub arguments: Arguments,
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// Text blocks; one for a plain string, none for null.
    pub content: Vec<String>,
    /// The model's reasoning before its content (assistant).
    pub reasoning_content: Option<String>,
    /// Calls behind the content (assistant).
    pub tool_calls: Vec<ToolCall>,
    /// Which call this is the result of (tool).
    pub tool_call_id: String,
    /// Function objects that the model may call (system, developer).
    pub tools: Vec<Json>,
    /// Schema of the answer (system, developer).
    pub response_format: Option<Json>,
    /// A job instead of an answer (user, developer).
    pub task: Option<Task>,
    /// The turn is left open: no end-of-sentence token behind it (assistant).
    pub wo_eos: bool,
}

impl Message {
    /// A message with nothing but a text.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: vec![content.into()],
            reasoning_content: None,
            tool_calls: Vec::new(),
            tool_call_id: String::new(),
            tools: Vec::new(),
            response_format: None,
            task: None,
            wo_eos: false,
        }
    }

    /// A message from its JSON object. A null field counts as absent; a field that is unknown, of the wrong kind or
    /// out of place for the role is refused by name.
    pub fn from_json(json: &Json) -> Result<Self> {
        let Json::Object(fields) = json else {
            return Err(Error::input("a message is an object").found(json.kind()));
        };
        let role = match json.get("role") {
            Some(Json::Str(name)) => Role::from_name(name),
            Some(other) => return Err(wrong("role", "a string", other)),
            None => return Err(Error::input("a message needs a role")),
        };
        let mut message = Self::new(role, "");
        message.content = Vec::new();
        for (name, value) in fields.iter().filter(|(_, v)| *v != Json::Null) {
            message.field(name, value)?;
        }
        message.check_places()?;
        Ok(message)
    }

    /// Messages from a JSON array.
    pub fn list_from_json(json: &Json) -> Result<Vec<Self>> {
        let Json::Array(items) = json else {
            return Err(Error::input("messages are an array").found(json.kind()));
        };
        let message = |(i, item)| Self::from_json(item).map_err(|e: Error| e.at(format!("message {i}")));
        items.iter().enumerate().map(message).collect()
    }

    fn field(&mut self, name: &str, value: &Json) -> Result<()> {
        match name {
            // `name` is part of the OpenAI shape; the encoder never writes it.
            "role" | "name" => {}
            "content" => self.content = content(value)?,
            "reasoning_content" => self.reasoning_content = Some(string(name, value)?),
            "tool_calls" => self.tool_calls = array(name, value)?.iter().map(tool_call).collect::<Result<_>>()?,
            "tool_call_id" => self.tool_call_id = string(name, value)?,
            "tools" => self.tools = functions(value)?,
            "response_format" => self.response_format = Some(value.clone()),
            "task" => {
                let task = string(name, value)?;
                self.task = Some(Task::from_name(&task).ok_or_else(|| {
                    let known: Vec<&str> = Task::ALL.iter().map(|(n, ..)| *n).collect();
                    Error::input("unknown task").at(name).expected(known.join(", ")).found(format!("{task:?}"))
                })?);
            }
            "wo_eos" => match value {
                Json::Bool(v) => self.wo_eos = *v,
                other => return Err(wrong(name, "a boolean", other)),
            },
            _ => {
                return Err(Error::input("unknown field of a message").at(name).hint(
                    "known are role, content, name, reasoning_content, tool_calls, tool_call_id, tools, \
                     response_format, task and wo_eos",
                ));
            }
        }
        Ok(())
    }

    /// The released encoder would silently ignore a field that does not belong to the role.
    fn check_places(&self) -> Result<()> {
        let assistant = self.role == Role::Assistant;
        let instructs = matches!(self.role, Role::System | Role::Developer);
        let asks = matches!(self.role, Role::User | Role::Developer);
        let misplaced = [
            ("reasoning_content", self.reasoning_content.is_some() && !assistant),
            ("tool_calls", !self.tool_calls.is_empty() && !assistant),
            ("wo_eos", self.wo_eos && !assistant),
            ("tool_call_id", !self.tool_call_id.is_empty() && self.role != Role::Tool),
            ("tools", !self.tools.is_empty() && !instructs),
            ("response_format", self.response_format.is_some() && !instructs),
            ("task", self.task.is_some() && !asks),
        ];
        match misplaced.into_iter().find(|(_, out_of_place)| *out_of_place) {
            // A message of an unknown role may carry what it likes: it is dropped or refused as a whole.
            Some((field, _)) if !matches!(self.role, Role::Other(_)) => {
                Err(Error::input(format!("a message of role {:?} cannot carry this field", self.role.name())).at(field))
            }
            _ => Ok(()),
        }
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        Self::from_json(&Json::deserialize(from)?).map_err(D::Error::custom)
    }
}

fn wrong(field: &str, expected: &str, found: &Json) -> Error {
    Error::input("wrong kind of value").at(field).expected(expected).found(found.kind())
}

fn string(field: &str, value: &Json) -> Result<String> {
    match value {
        Json::Str(text) => Ok(text.clone()),
        other => Err(wrong(field, "a string", other)),
    }
}

fn array<'a>(field: &str, value: &'a Json) -> Result<&'a [Json]> {
    match value {
        Json::Array(items) => Ok(items),
        other => Err(wrong(field, "an array", other)),
    }
}

/// A string, or an array of text parts.
fn content(value: &Json) -> Result<Vec<String>> {
    let items = match value {
        Json::Str(text) => return Ok(vec![text.clone()]),
        Json::Array(items) => items,
        other => return Err(wrong("content", "a string or an array of text parts", other)),
    };
    let part = |item: &Json| match (item.get("type"), item.get("text")) {
        (Some(Json::Str(kind)), Some(Json::Str(text))) if kind == "text" => Ok(text.clone()),
        (Some(Json::Str(kind)), _) if kind != "text" => {
            Err(Error::input("only text parts can be rendered").at("content").found(format!("{kind:?}")))
        }
        _ => Err(Error::input("a content part needs type \"text\" and a string text").at("content")),
    };
    items.iter().map(part).collect()
}

fn tool_call(value: &Json) -> Result<ToolCall> {
    let at = |e: Error| e.at("tool_calls");
    if let Some(Json::Str(kind)) = value.get("type")
        && kind != "function"
    {
        return Err(at(Error::input("only calls of functions can be rendered").at("type").found(format!("{kind:?}"))));
    }
    let function = value.get("function").ok_or_else(|| at(Error::input("a call needs a function")))?;
    let id = match value.get("id") {
        Some(id) => string("id", id).map_err(at)?,
        None => String::new(),
    };
    let name = match function.get("name") {
        Some(Json::Str(name)) => name.clone(),
        Some(other) => return Err(at(wrong("function.name", "a string", other))),
        None => return Err(at(Error::input("a call needs the name of its function").at("function.name"))),
    };
    let arguments = match function.get("arguments") {
        Some(Json::Str(text)) => Arguments::Text(text.clone()),
        Some(Json::Object(entries)) => Arguments::Object(entries.clone()),
        Some(other) => return Err(at(wrong("function.arguments", "a string or an object", other))),
        None => return Err(at(Error::input("a call needs arguments, if only \"{}\"").at("function.arguments"))),
    };
    Ok(ToolCall { id, name, arguments })
}

/// The function objects out of `[{"type": "function", "function": {...}}]`.
fn functions(value: &Json) -> Result<Vec<Json>> {
    let function = |(i, tool): (usize, &Json)| match tool.get("function") {
        Some(f @ Json::Object(_)) => Ok(f.clone()),
        _ => Err(Error::input("a tool needs a function object").at(format!("tools[{i}].function"))),
    };
    array("tools", value)?.iter().enumerate().map(function).collect()
}
