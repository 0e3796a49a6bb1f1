//! The prompt that a server made, against the one that the encoder makes of the same conversation: where they differ,
//! token by token, and which rule of the format (spec section 5) each difference breaks.

mod align;
mod atoms;
mod classify;
mod hunk;
mod rules;
mod side;

pub use rules::Rule;

use karat_model::prompt::{Effort, EncodeOptions, Encoder, Message, Part, Release, Role, Tokenizer};
use karat_model::{Error, Result};

use crate::import::{Asked, Served};
use atoms::{Kind, Known};
use side::Side;

/// Characters of a prompt that a finding shows.
const SHOWN: usize = 160;

/// A rule that is broken, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// Index of the message that it is about.
    pub message: Option<usize>,
    /// What part of the expected prompt is concerned; `None` where it has nothing there.
    pub part: Option<Part>,
    /// Position in the expected ids.
    pub expected_at: usize,
    /// Position in the server's ids.
    pub found_at: usize,
    /// What stands there in the expected prompt; empty where nothing does.
    pub expected: String,
    /// What stands there in the server's.
    pub found: String,
    /// What the rule's sentence doesn't say.
    pub detail: Option<String>,
}

/// Where the mode of a comparison comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeFrom {
    /// The person said so.
    Person,
    /// The request said so.
    Request,
    /// Nobody said: of the two modes it is the one that the prompt is nearer to.
    Prompt,
}

/// Two prompts of one conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// How the expected one is rendered.
    pub options: EncodeOptions,
    /// Where its mode comes from.
    pub mode_from: ModeFrom,
    /// Number of expected ids.
    pub expected_ids: usize,
    /// Number of ids that the server had.
    pub found_ids: usize,
    /// Position of the first id that differs.
    pub first: Option<usize>,
    /// Every difference, in the order of the prompt.
    pub findings: Vec<Finding>,
    /// What was decided on the way, for people.
    pub notes: Vec<String>,
}

/// Compares what a server made of a conversation with what it should have made. `thinking` overrules what the request
/// says about the mode. Ids must lie below `vocab_size`.
pub fn compare(
    messages: &[Message],
    asked: &Asked,
    served: &Served,
    thinking: Option<bool>,
    (encoder, tokenizer): (&Encoder, &Tokenizer),
    vocab_size: usize,
) -> Result<Comparison> {
    let mut notes = Vec::new();
    let effort = effort(asked, encoder.texts().release, &mut notes);
    let (text, ids) = match served {
        Served::Text(text) => (text.clone(), None),
        Served::Ids(ids) => {
            if let Some(at) = ids.iter().position(|&id| id as usize >= vocab_size) {
                return Err(Error::input("the server's prompt has an id beyond the model's vocabulary")
                    .at(format!("id {at}"))
                    .expected(format!("ids below {vocab_size}"))
                    .found(ids[at])
                    .hint("--model names the checkpoint that the server ran"));
            }
            (tokenizer.decode(ids)?, Some(ids.as_slice()))
        }
    };
    let stage = Stage { messages, text: &text, ids, encoder, tokenizer };
    let options = |thinking| EncodeOptions { thinking, effort, ..EncodeOptions::default() };
    let (mut best, mode_from) = match (thinking, asked.thinking) {
        (Some(thinking), _) => (stage.compare(options(thinking))?, ModeFrom::Person),
        (None, Some(thinking)) => (stage.compare(options(thinking))?, ModeFrom::Request),
        (None, None) => {
            let (a, b) = (stage.compare(options(true))?, stage.compare(options(false))?);
            (if b.1 < a.1 { b } else { a }, ModeFrom::Prompt)
        }
    };
    best.0.mode_from = mode_from;
    best.0.notes = notes;
    Ok(best.0)
}

/// The tier of the request's word, where the release has it.
fn effort(asked: &Asked, release: Release, notes: &mut Vec<String>) -> Option<Effort> {
    let word = asked.effort.as_deref()?;
    let tier = Effort::from_name(word);
    if tier.is_none() || (tier == Some(Effort::Low) && release == Release::Preview) {
        notes.push(format!("this release has no effort tier {word:?}: compared without a prefix"));
        return None;
    }
    tier
}

/// What both modes are compared with.
struct Stage<'a> {
    messages: &'a [Message],
    text: &'a str,
    ids: Option<&'a [u32]>,
    encoder: &'a Encoder,
    tokenizer: &'a Tokenizer,
}

impl Stage<'_> {
    /// The comparison, and how many characters of both prompts are in differences.
    fn compare(&self, options: EncodeOptions) -> Result<(Comparison, usize)> {
        let prompt = self.encoder.encode(self.messages, &options)?;
        let mut known = Known::default();
        let texts = self.encoder.texts();
        known.add(Kind::Effort, &texts.effort_a.text);
        known.add(Kind::Effort, &texts.effort_b.text);
        for span in &prompt.spans {
            match span.part {
                Part::Tools => known.add(Kind::Tools, &prompt.text[span.range.clone()]),
                Part::ResponseFormat => known.add(Kind::ResponseFormat, &prompt.text[span.range.clone()]),
                _ => {}
            }
        }
        let expected = Side::new(prompt.text, &known, &prompt.spans, self.tokenizer)?;
        let found = Side::new(self.text.to_owned(), &known, &[], self.tokenizer)?;
        let facts = Facts {
            thinking: options.thinking,
            has_tools: self.messages.iter().any(|m| !m.tools.is_empty()),
            last: self.messages.iter().rposition(|m| matches!(m.role, Role::User | Role::Tool | Role::Developer)),
            messages: self.messages,
        };
        let hunks = hunk::hunks(&expected, &found);
        let differing: usize =
            hunks.iter().map(|h| expected.text_of(&h.expected).len() + found.text_of(&h.found).len()).sum();
        let mut findings: Vec<Finding> = classify::classify(&expected, &found, &hunks, &facts)
            .into_iter()
            .map(|r| r.finding(&expected, &found))
            .collect();
        let ids = self.ids.unwrap_or(&found.ids);
        let first = first_difference(&expected.ids, ids);
        if let Some(at) = first
            && expected.text == found.text
        {
            findings.push(self.tokens(at, &expected.ids, ids)?);
        }
        findings.sort_by_key(|f| (f.expected_at, f.found_at));
        let comparison = Comparison {
            options,
            mode_from: ModeFrom::Prompt,
            expected_ids: expected.ids.len(),
            found_ids: ids.len(),
            first,
            findings,
            notes: Vec::new(),
        };
        Ok((comparison, differing))
    }

    /// The same text in other ids.
    fn tokens(&self, at: usize, expected: &[u32], found: &[u32]) -> Result<Finding> {
        let shown = |ids: &[u32]| {
            let few = &ids[at.min(ids.len())..(at + 4).min(ids.len())];
            Ok::<_, Error>(excerpt(&format!("{few:?} {:?}", self.tokenizer.decode(few)?)))
        };
        Ok(Finding {
            rule: Rule::Tokens,
            message: None,
            part: None,
            expected_at: at,
            found_at: at,
            expected: shown(expected)?,
            found: shown(found)?,
            detail: None,
        })
    }
}

/// What a conversation says about its rendering.
struct Facts<'a> {
    thinking: bool,
    has_tools: bool,
    /// Index of the last message of a user turn.
    last: Option<usize>,
    messages: &'a [Message],
}

impl Facts<'_> {
    fn role(&self, message: Option<usize>) -> Option<&Role> {
        message.and_then(|m| self.messages.get(m)).map(|m| &m.role)
    }

    fn is_assistant(&self, message: Option<usize>) -> bool {
        self.role(message) == Some(&Role::Assistant)
    }
}

fn first_difference(a: &[u32], b: &[u32]) -> Option<usize> {
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    (same < a.len() || same < b.len()).then_some(same)
}

/// The start of a text.
fn excerpt(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests;
