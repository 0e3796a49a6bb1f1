//! How a conversation is rendered.

use crate::prompt::texts::{EncodingTexts, Release};
use crate::{Error, Result};

/// How hard the model is asked to think. What a tier means depends on the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effort {
    /// Flash-0731 only: no prefix.
    Low,
    /// Preview: no prefix. Flash-0731: text A.
    High,
    /// Preview: text A. Flash-0731: text B.
    Max,
}

impl Effort {
    /// The tier of a word in a request.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "low" => Some(Self::Low),
            "high" => Some(Self::High),
            "max" => Some(Self::Max),
            _ => None,
        }
    }
}

/// How a conversation is rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Thinking mode; chat mode otherwise.
    pub thinking: bool,
    /// Drop reasoning of earlier turns. Tools anywhere in the conversation switch this off.
    pub drop_thinking: bool,
    /// Effort tier; `None` is the release's default, which has no prefix.
    pub effort: Option<Effort>,
}

impl Default for EncodeOptions {
    fn default() -> Self {
        Self { thinking: true, drop_thinking: true, effort: None }
    }
}

impl EncodeOptions {
    /// Thinking mode off, the rest as by default.
    pub fn chat() -> Self {
        Self { thinking: false, ..Self::default() }
    }

    /// The prefix of the effort tier in this release.
    pub(super) fn effort_text<'a>(&self, texts: &'a EncodingTexts) -> Result<Option<&'a str>> {
        let text = match (texts.release, self.effort) {
            (Release::Preview, None | Some(Effort::High)) | (Release::V0731, None | Some(Effort::Low)) => None,
            (Release::Preview, Some(Effort::Max)) | (Release::V0731, Some(Effort::High)) => Some(&texts.effort_a),
            (Release::V0731, Some(Effort::Max)) => Some(&texts.effort_b),
            (Release::Preview, Some(Effort::Low)) => {
                return Err(Error::usage("preview checkpoints know no such effort")
                    .at("effort")
                    .expected("high or max")
                    .found("low"));
            }
        };
        Ok(text.map(|t| t.text.as_str()))
    }
}
