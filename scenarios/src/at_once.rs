//! A long conversation to a sequence from one encoding of it. [`Scenario::render`] encodes every request of it, which
//! takes time with the square of its length; here who wrote which ids follows from the labels of the last request.

use std::sync::Arc;

use karat_model::Result;
use karat_model::prompt::{EncodedPrompt, Encoder, IdSpan, Part, Role, Tokenizer};
use karat_seam::{Sequence, Span, SpanKind, Turn};

use crate::ask::{asks, labelled};
use crate::grammar::marks::Label;
use crate::{Rendered, Scenario};

impl Scenario {
    /// As [`Scenario::render`], for scenarios whose answers end with their end token or are interrupted as written.
    pub(crate) fn render_at_once(&self, tokenizer: &Tokenizer, encoder: &Encoder) -> Result<Rendered> {
        let (encoded, labels) = labelled(&self.messages, &self.marks, &self.options, tokenizer, encoder)?;
        let asks = asks(&encoded, &labels, &self.messages, tokenizer)?;
        let turns = self.turns(&encoded, &labels);
        let rerendered = self.rerendered();
        let text = tokenizer.decode(&encoded.ids)?;
        let parts = encoded.spans.iter().map(|s| own_part(s, &labels)).collect();
        let sequence = Sequence { id: self.name.clone(), ids: Arc::from(encoded.ids), turns };
        Ok(Rendered { text, sequence, parts, rerendered, asks })
    }

    /// True when answers of earlier turns stand without the reasoning with which they were generated.
    fn drops(&self) -> bool {
        self.options.thinking && self.options.drop_thinking && self.messages.iter().all(|m| m.tools.is_empty())
    }

    /// The first message that is generated as it stands in the last request.
    fn first_generated(&self) -> usize {
        let last = self.messages.iter().rposition(|m| m.role == Role::User);
        if self.drops() { last.unwrap_or(0) } else { 0 }
    }

    fn rerendered(&self) -> Vec<usize> {
        let before = self.messages[..self.first_generated()].iter().enumerate();
        before.filter(|(_, m)| m.role == Role::Assistant).map(|(i, _)| i).collect()
    }

    fn turns(&self, encoded: &EncodedPrompt, labels: &[Label]) -> Vec<Turn> {
        let first = self.first_generated();
        let generated = |span: &IdSpan| -> Option<usize> {
            let label = labels.get(span.message?)?;
            let message = label.message.filter(|&m| label.assistant && m >= first)?;
            // Behind a cut the end is the encoder's.
            let cut = self.interruptions[message].is_some();
            let added =
                cut && (label.part == Part::Eos || (label.part == Part::EndThink && self.says_nothing(message)));
            (label.part != Part::Transition && !added).then_some(message)
        };
        let mut turns: Vec<Turn> = Vec::new();
        let (mut at, mut open) = (0, None);
        let span = |kind, start: usize, end: usize| Span { kind, start: start as u32, end: end as u32 };
        for s in &encoded.spans {
            let Some(message) = generated(s) else { continue };
            if open == Some(message) && s.range.start == at {
                if let Some(last) = turns.last_mut().and_then(|t| t.spans.last_mut()) {
                    last.end = s.range.end as u32;
                }
            } else {
                let mut spans = Vec::new();
                if s.range.start > at {
                    spans.push(span(SpanKind::Prompt, at, s.range.start));
                }
                spans.push(span(SpanKind::Generated, s.range.start, s.range.end));
                turns.push(Turn { spans, interrupted: self.interruptions[message].is_some() });
            }
            (at, open) = (s.range.end, Some(message));
        }
        if at < encoded.ids.len() {
            turns.push(Turn { spans: vec![span(SpanKind::Prompt, at, encoded.ids.len())], interrupted: false });
        }
        turns
    }

    fn says_nothing(&self, message: usize) -> bool {
        self.messages[message].content.iter().all(String::is_empty)
    }
}

/// The span under the message that it belongs to.
fn own_part(span: &IdSpan, labels: &[Label]) -> IdSpan {
    let message = span.message.and_then(|i| labels.get(i)).and_then(|l| l.message);
    IdSpan { message, ..span.clone() }
}

#[cfg(test)]
mod tests;
