//! A conversation while it is written: messages, facts told so far, and a count of the tokens used.

use karat_model::prompt::{Arguments, Message, Role, ToolCall};

use super::marks::{Mark, mark, strip};
use super::random::Random;
use super::words::{ADJECTIVES, CITIES, LETTERS, NOUNS, PEOPLE};

/// What a fact says about a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// A letter and three digits.
    Code,
    /// A person.
    Owner,
    /// A city.
    City,
}

impl Field {
    /// The word in the text.
    pub fn word(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Owner => "owner",
            Self::City => "city",
        }
    }
}

/// Something told once and asked later.
#[derive(Debug, Clone)]
pub struct Fact {
    /// Number within the conversation.
    pub id: u16,
    /// The thing.
    pub name: String,
    /// What of it.
    pub field: Field,
    /// The value as it is now.
    pub value: String,
    /// Kind of question that asks it, see [`KINDS`].
    pub kind: u8,
    /// Whether it was asked already.
    pub asked: bool,
}

/// Names of the kinds of questions, by index.
pub const KINDS: [&str; 10] = [
    "fact",
    "own_answer",
    "tool_result",
    "corrected",
    "interrupted",
    "tally",
    "topic",
    "check_digit",
    "reasoning",
    "recorded",
];
/// Index of the kind that no grammar makes: the recorded answer of an imported conversation.
pub(crate) const RECORDED: u8 = 9;

/// A conversation while it is written.
pub struct Talk {
    /// Randomness of this conversation.
    pub r: Random,
    /// Messages so far, with marks.
    pub messages: Vec<Message>,
    /// Facts so far.
    pub facts: Vec<Fact>,
    /// Messages (by index) that the client cut.
    pub interrupted: Vec<usize>,
    /// Tools are offered.
    pub tools: bool,
    /// The model thinks before it answers.
    pub thinking: bool,
    /// Estimated tokens so far.
    pub used: usize,
    /// Tokens at most.
    pub budget: usize,
    adjectives: Vec<&'static str>,
    nouns: Vec<&'static str>,
    spelled: f64,
    calls: usize,
}

impl Talk {
    /// An empty conversation. `crowded`: names are made of few words, so that many share one.
    pub fn new(mut r: Random, budget: usize, tools: bool, thinking: bool, crowded: bool) -> Self {
        let (a, n) = if crowded { (r.between(3, 6), r.between(4, 8)) } else { (ADJECTIVES.len(), NOUNS.len()) };
        let (adjectives, nouns) = (r.some(&ADJECTIVES, a), r.some(&NOUNS, n));
        let spelled = if r.chance(0.15) { 0.5 } else { 0.0 };
        Self {
            r,
            messages: Vec::new(),
            facts: Vec::new(),
            interrupted: Vec::new(),
            tools,
            thinking,
            used: 3,
            budget,
            adjectives,
            nouns,
            spelled,
            calls: 0,
        }
    }

    /// Tokens left.
    pub fn left(&self) -> usize {
        self.budget.saturating_sub(self.used)
    }

    fn count(&mut self, text: &str) {
        self.used += estimate(text);
    }

    /// Adds a message.
    pub fn push(&mut self, message: Message) {
        for text in &message.content {
            self.used += estimate(&strip(text));
        }
        // Without tools the encoder drops all reasoning but the last.
        if self.tools {
            self.used += message.reasoning_content.as_ref().map_or(0, |text| estimate(&strip(text)));
        }
        self.used += match message.role {
            Role::Assistant => 3,
            Role::Tool => 7,
            _ => 1,
        };
        for call in &message.tool_calls {
            self.used += 30;
            if let Arguments::Text(text) = &call.arguments {
                self.used += estimate(&strip(text)) + 8;
            }
        }
        self.messages.push(message);
    }

    /// A user's message.
    pub fn user(&mut self, text: impl Into<String>) {
        self.push(Message::new(Role::User, text));
    }

    /// The assistant's answer; the reasoning is written in thinking mode only.
    pub fn assistant(&mut self, reasoning: &str, text: impl Into<String>) {
        let mut m = Message::new(Role::Assistant, text);
        m.reasoning_content = self.thinking.then(|| reasoning.to_owned());
        self.push(m);
    }

    /// The assistant calls a tool (arguments are JSON text) after some words; returns the call's id.
    pub fn call(&mut self, reasoning: &str, text: &str, name: &str, arguments: String) -> String {
        let id = format!("call_{}", self.calls);
        self.calls += 1;
        let mut m = Message::new(Role::Assistant, text);
        m.reasoning_content = self.thinking.then(|| reasoning.to_owned());
        m.tool_calls.push(ToolCall { id: id.clone(), name: name.to_owned(), arguments: Arguments::Text(arguments) });
        self.push(m);
        id
    }

    /// A tool's result.
    pub fn result(&mut self, id: String, text: String) {
        let mut m = Message::new(Role::Tool, text);
        m.tool_call_id = id;
        self.push(m);
    }

    /// Counts text that the encoder will add by itself.
    pub fn count_fixed(&mut self, text: &str) {
        self.count(text);
    }

    /// A name for a thing, not used with this field before.
    pub fn name(&mut self, field: Field) -> String {
        for _ in 0..50 {
            let name = if self.r.chance(self.spelled) {
                let letters = self.r.between(4, 6);
                (0..letters)
                    .map(|i| *self.r.pick(if i % 2 == 0 { b"bdfgklmnprstvz" } else { b"aeiou" }) as char)
                    .collect()
            } else {
                let (a, n) = (*self.r.pick(&self.adjectives), *self.r.pick(&self.nouns));
                format!("{a} {n}")
            };
            if !self.facts.iter().any(|f| f.name == name && f.field == field) {
                return name;
            }
        }
        // The crowded set is used up: a third word makes it new.
        let (a, b, n) = (*self.r.pick(&ADJECTIVES), *self.r.pick(&ADJECTIVES), *self.r.pick(&NOUNS));
        format!("{a} {b} {n}")
    }

    /// A random value of a field.
    pub fn value(&mut self, field: Field) -> String {
        match field {
            Field::Code => {
                let letter = *self.r.pick(&LETTERS);
                let mut digit = || self.r.below(10);
                format!("{letter}{}{}{}", digit(), digit(), digit())
            }
            Field::Owner => (*self.r.pick(&PEOPLE)).to_owned(),
            Field::City => (*self.r.pick(&CITIES)).to_owned(),
        }
    }

    /// A new fact, not told yet.
    pub fn fact(&mut self, kind: u8) -> Fact {
        let field = *self.r.pick(&[Field::Code, Field::Code, Field::Code, Field::Owner, Field::City]);
        let name = self.name(field);
        let value = self.value(field);
        let id = self.facts.len() as u16;
        Fact { id, name, field, value, kind, asked: false }
    }
}

/// The value, marked as told here.
pub fn plant(f: &Fact, before: &str) -> String {
    mark(&format!("{before}{}", f.value), Mark::Plant { fact: f.id })
}

/// The value, marked as the answer.
pub fn answer(f: &Fact, before: &str) -> String {
    mark(&format!("{before}{}", f.value), Mark::Answer { fact: f.id, kind: f.kind })
}

/// About how many tokens a clean text has: words, digits, runs of other signs, runs of newlines.
pub fn estimate(text: &str) -> usize {
    let class = |c: char| match c {
        '0'..='9' => 0,
        '\n' => 1,
        c if c.is_alphabetic() || c == '_' => 2,
        ' ' => 3,
        _ => 4,
    };
    let (mut n, mut before) = (0, 3);
    for c in text.chars() {
        let now = class(c);
        if now == 0 || (now != before && now != 3) {
            n += 1;
        }
        before = now;
    }
    n
}
