//! The prompt encoder: messages to one string, and which part of it is whose (spec section 5).
//!
//! Where the spec is silent, this is what happens: a user message with a task that merges into the one before hands
//! its task on; text parts of a message are joined by a blank line; arguments that are valid JSON but no object are
//! treated like invalid ones; with the action task the think token follows the mode alone.

mod merge;
mod options;
mod render;
mod tools;

use std::ops::Range;

pub use options::{Effort, EncodeOptions};

use super::message::Message;
use super::texts::EncodingTexts;
use crate::{Checkpoint, Error, Result};

/// What a stretch of the prompt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// The begin-of-sentence token.
    Bos,
    /// The effort prefix.
    Effort,
    /// The token that opens a user turn or a reminder.
    RoleToken,
    /// The text of a message, with the blank line that joins it to a block before it.
    Content,
    /// A tool's result with its tags, and the blank line that joins it to a block before it.
    ToolResult,
    /// The tools block.
    Tools,
    /// The response-format block.
    ResponseFormat,
    /// What opens the assistant's turn: its token and the think token, or a task token.
    Transition,
    /// The model's reasoning.
    Reasoning,
    /// The token that ends the reasoning.
    EndThink,
    /// The model's tool calls.
    ToolCalls,
    /// The end-of-sentence token of an assistant turn.
    Eos,
}

/// A stretch of the prompt with one origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartSpan {
    /// Index of the message as it was given (context first); `None` for what belongs to no message.
    pub message: Option<usize>,
    /// What it is.
    pub part: Part,
    /// Bytes of the text.
    pub range: Range<usize>,
}

/// A rendered prompt. The spans cover the text from end to end, in order, none empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The string that is tokenised.
    pub text: String,
    /// Who wrote what.
    pub spans: Vec<PartSpan>,
}

/// The encoder of one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoder {
    texts: EncodingTexts,
}

impl Encoder {
    /// An encoder with these fixed texts.
    pub fn new(texts: EncodingTexts) -> Self {
        Self { texts }
    }

    /// The encoder whose texts lie beside a checkpoint.
    pub fn of(checkpoint: &Checkpoint) -> Result<Self> {
        let bytes = checkpoint.side_file("encoding.json")?.ok_or_else(|| {
            Error::input("the model has no encoding.json, so no conversation can be rendered for it")
                .at(checkpoint.label())
                .hint("`karat model encoding FILE.py --out encoding.json` makes one from the release's Python encoder")
        })?;
        EncodingTexts::from_json(&bytes).map(Self::new).map_err(|e| e.at(checkpoint.label()))
    }

    /// The fixed texts.
    pub fn texts(&self) -> &EncodingTexts {
        &self.texts
    }

    /// Renders a whole conversation.
    pub fn encode(&self, messages: &[Message], options: &EncodeOptions) -> Result<Prompt> {
        self.encode_after(&[], messages, options)
    }

    /// Renders `messages` as they follow a `context` whose prompt stands already: no begin-of-sentence token, no
    /// effort prefix, and nothing of the context itself.
    pub fn encode_after(&self, context: &[Message], messages: &[Message], options: &EncodeOptions) -> Result<Prompt> {
        let effort = options.effort_text(&self.texts)?;
        let (turns, context_turns) = merge::turns(context, messages, options);
        render::prompt(&turns, !context.is_empty(), context_turns, options, &self.texts, effort)
    }
}

#[cfg(test)]
mod tests;
