//! Questions of a rendered conversation: where their answers stand, and the same request without its history.

use std::collections::BTreeMap;
use std::ops::Range;

use karat_model::Result;
use karat_model::prompt::{EncodeOptions, EncodedPrompt, Encoder, Message, Part, Role, Tokenizer};

use crate::grammar::marks::{Label, Mark, clean};
use crate::grammar::talk::KINDS;
use crate::marked::{self, Marked};

/// A question whose answer was told before.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// Number of the fact within its conversation.
    pub fact: u16,
    /// Kind of question: a name of [`KINDS`].
    pub kind: &'static str,
    /// Positions of the expected ids.
    pub answer: Range<u32>,
    /// Positions of the whole answering turn from its first generated id on, in which the answer lies.
    pub turn: Range<u32>,
    /// Position where the value was told last, if it was told in one place.
    pub told: Option<u32>,
    /// The expected text.
    pub expected: String,
    /// Ids of the same request without its history: what stands before the first user turn, and the asking turn up to
    /// the answer's end.
    pub alone: Vec<u32>,
}

impl Ask {
    /// Positions of the expected ids, as indices.
    pub fn positions(&self) -> Range<usize> {
        self.answer.start as usize..self.answer.end as usize
    }

    /// Positions of the expected ids in [`Ask::alone`].
    pub fn answer_alone(&self) -> Range<usize> {
        self.alone.len() - self.answer.len()..self.alone.len()
    }
}

/// The ids of a conversation with their labels: the marks written into the messages, taken out of the rendered prompt.
pub(crate) fn labelled(
    messages: &[Message],
    marks: &[Vec<Marked>],
    options: &EncodeOptions,
    tokenizer: &Tokenizer,
    encoder: &Encoder,
) -> Result<(EncodedPrompt, Vec<Label>)> {
    let marked: Vec<Message> = messages.iter().zip(marks).map(|(m, marks)| marked::write(m, marks)).collect();
    let assistant: Vec<bool> = messages.iter().map(|m| m.role == Role::Assistant).collect();
    let (prompt, labels) = clean(&encoder.encode(&marked, options)?, &assistant);
    Ok((tokenizer.encode_prompt(&prompt)?, labels))
}

/// The questions of a labelled conversation, in order.
pub(crate) fn asks(
    encoded: &EncodedPrompt,
    labels: &[Label],
    messages: &[Message],
    tokenizer: &Tokenizer,
) -> Result<Vec<Ask>> {
    let ids = &encoded.ids;
    let mut told: BTreeMap<u16, u32> = BTreeMap::new();
    let mut out = Vec::new();
    // Where the first user turn and the latest one begin; `None` before them.
    let (mut head, mut turn) = (None, 0);
    let mut answering = 0;
    for span in &encoded.spans {
        let Some(label) = span.message.and_then(|i| labels.get(i)) else { continue };
        let by_user = label.message.is_some_and(|m| messages[m].role == Role::User);
        if label.part == Part::RoleToken && by_user {
            head.get_or_insert(span.range.start);
            turn = span.range.start;
        }
        if label.part == Part::Transition {
            answering = span.range.end;
        }
        match label.mark {
            Some(Mark::Plant { fact }) => {
                told.insert(fact, span.range.start as u32);
            }
            Some(Mark::Answer { fact, kind }) => {
                let range = span.range.clone();
                let before = &ids[..head.unwrap_or(0)];
                out.push(Ask {
                    fact,
                    kind: KINDS.get(usize::from(kind)).copied().unwrap_or_default(),
                    answer: range.start as u32..range.end as u32,
                    turn: answering as u32..range.end as u32,
                    told: told.get(&fact).copied(),
                    expected: tokenizer.decode(&ids[range.clone()])?.trim().to_owned(),
                    alone: [before, &ids[turn..range.end]].concat(),
                });
            }
            _ => {}
        }
        // The turn reaches to its end token.
        if label.assistant && matches!(label.part, Part::Content | Part::ToolCalls | Part::Eos) {
            let from = answering as u32;
            out.iter_mut()
                .rev()
                .take_while(|a: &&mut Ask| a.turn.start == from)
                .for_each(|a| a.turn.end = span.range.end as u32);
        }
    }
    Ok(out)
}
