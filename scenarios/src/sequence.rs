//! A scenario to a sequence: which ids the client sent, and which the model generated.

use std::ops::Range;
use std::sync::Arc;

use karat_model::prompt::{EncodedPrompt, Encoder, IdSpan, Message, Part, Prompt, Role, Tokenizer};
use karat_model::{Error, Result};
use karat_seam::{Sequence, Span, SpanKind, Turn};

use crate::Scenario;
use crate::ask::{self, Ask};
use crate::cut::{Cut, Interruption};

/// A scenario as both paths see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// The text of the last request, with its answer.
    pub text: String,
    /// Ids and turns.
    pub sequence: Sequence,
    /// Which message and part each id belongs to.
    pub parts: Vec<IdSpan>,
    /// Messages (by index) whose generated ids are not part of the sequence, because a later request renders their
    /// turn in another way (reasoning dropped): no cache of theirs can be reused, and they are prompt again.
    pub rerendered: Vec<usize>,
    /// Questions whose answers lie in the sequence.
    pub asks: Vec<Ask>,
}

impl Scenario {
    /// The scenario as one sequence.
    ///
    /// The ids are those of the last request and its answer. What an assistant message says counts as generated as
    /// far as the ids that were generated then still stand at their positions: caches are matched by ids, never by
    /// text. The end-of-sentence token of a finished answer is generated, that of an interrupted one is not (the
    /// encoder adds it when the client sends the part again).
    pub fn to_sequence(&self, tokenizer: &Tokenizer, encoder: &Encoder) -> Result<Sequence> {
        Ok(self.render(tokenizer, encoder)?.sequence)
    }

    /// The scenario as text, ids and turns.
    pub fn render(&self, tokenizer: &Tokenizer, encoder: &Encoder) -> Result<Rendered> {
        let named = |e: Error| e.at(format!("scenario {}", self.name));
        let rendered = match self.at_once {
            true => self.render_at_once(tokenizer, encoder),
            false => self.rendered(&Stage { tokenizer, encoder, scenario: self }),
        };
        rendered.map_err(named)
    }

    fn rendered(&self, stage: &Stage<'_>) -> Result<Rendered> {
        let mut sent: Vec<Message> = Vec::with_capacity(self.messages.len());
        let mut generations = Vec::new();
        for (index, message) in self.messages.iter().enumerate() {
            if message.role == Role::Assistant {
                let (kept, generation) = stage
                    .generate(&sent, message, self.interruptions[index])
                    .map_err(|e| e.at(format!("message {index}")))?;
                sent.push(kept);
                generations.push(generation);
            } else {
                sent.push(message.clone());
            }
        }
        let (prompt, encoded) = stage.encode(&sent)?;
        let Stitched { ids, turns, rerendered } = stitch(encoded.ids, &generations, self.messages.len());
        let text = if ids.len() < encoded_len(&encoded.spans) { stage.tokenizer.decode(&ids)? } else { prompt.text };
        let parts = clip(encoded.spans, ids.len());
        let mut asks = Vec::new();
        if self.marks.iter().any(|m| !m.is_empty()) {
            let options = &self.options;
            let (encoded, labels) = ask::labelled(&sent, &self.marks, options, stage.tokenizer, stage.encoder)?;
            asks = ask::asks(&encoded, &labels, &sent, stage.tokenizer)?;
            asks.retain(|a| ids.get(a.answer.start as usize..a.answer.end as usize) == encoded.ids.get(a.positions()));
        }
        let sequence = Sequence { id: self.name.clone(), ids: Arc::from(ids), turns };
        Ok(Rendered { text, sequence, parts, rerendered, asks })
    }
}

/// What the model generated for one assistant message, at the time.
struct Generation {
    /// Index of the message.
    message: usize,
    /// Ids of the request.
    request: Vec<u32>,
    /// Ids of the answer.
    answer: Vec<u32>,
    interrupted: bool,
}

struct Stage<'a> {
    tokenizer: &'a Tokenizer,
    encoder: &'a Encoder,
    scenario: &'a Scenario,
}

impl Stage<'_> {
    fn encode(&self, messages: &[Message]) -> Result<(Prompt, EncodedPrompt)> {
        let prompt = self.encoder.encode(messages, &self.scenario.options)?;
        let encoded = self.tokenizer.encode_prompt(&prompt)?;
        Ok((prompt, encoded))
    }

    /// The message as the client keeps it, and the ids that were generated for it.
    fn generate(
        &self,
        before: &[Message],
        whole: &Message,
        interruption: Option<Interruption>,
    ) -> Result<(Message, Generation)> {
        let index = before.len();
        let request = self.encode(before)?.1.ids;
        let with = |message: &Message| self.encode(&[before, std::slice::from_ref(message)].concat());
        let (kept, answer) = match interruption {
            None => {
                let (_, encoded) = with(whole)?;
                let end = encoded.ids.len();
                (whole.clone(), generated(&encoded, &request, end)?)
            }
            Some(Interruption::Cut(Cut::Tokens(n))) => {
                let (prompt, encoded) = with(whole)?;
                let mut answer = generated(&encoded, &request, encoded.ids.len())?;
                let text = self.tokenizer.decode(answer.get(..n).unwrap_or(&answer))?;
                let kept = Cut::tokens_of(n, whole, index, (&prompt, &encoded), request.len(), &text)?;
                answer.truncate(n);
                (kept, answer)
            }
            Some(as_got) => {
                let kept = match as_got {
                    Interruption::Cut(Cut::Characters(n)) => Cut::characters_of(n, whole)?,
                    _ => whole.clone(),
                };
                let (_, encoded) = with(&kept)?;
                // Without content the reasoning was cut, and its end is the encoder's too.
                let content = kept.content.iter().any(|text| !text.is_empty());
                let is_added = |part| part == Part::Eos || (part == Part::EndThink && !content);
                let added = encoded.spans.iter().find(|s| s.message == Some(index) && is_added(s.part));
                let end = added.map_or(encoded.ids.len(), |s| s.range.start);
                (kept, generated(&encoded, &request, end)?)
            }
        };
        Ok((kept, Generation { message: index, request, answer, interrupted: interruption.is_some() }))
    }
}

/// The ids behind the request's, up to `end`.
fn generated(encoded: &EncodedPrompt, request: &[u32], end: usize) -> Result<Vec<u32>> {
    let answer = encoded.ids.get(request.len()..end).filter(|_| encoded.ids.starts_with(request));
    answer.map(<[u32]>::to_vec).ok_or_else(|| {
        Error::input("the answer's text changes the ids of the request before it").hint(
            "an assistant message needs a user turn before it; the tokenizer must not join text over a special token",
        )
    })
}

struct Stitched {
    ids: Vec<u32>,
    turns: Vec<Turn>,
    rerendered: Vec<usize>,
}

/// Lays the generations over the ids of the last request. `messages` is the number of messages.
fn stitch(mut ids: Vec<u32>, generations: &[Generation], messages: usize) -> Stitched {
    let mut turns = Vec::new();
    let mut rerendered = Vec::new();
    let mut at = 0;
    for g in generations {
        let start = g.request.len();
        if start < at || !ids.starts_with(&g.request) {
            rerendered.push(g.message);
            continue;
        }
        let same = g.answer.iter().zip(&ids[start..]).take_while(|(a, b)| a == b).count();
        let mut end = start + same;
        if g.interrupted && g.message + 1 == messages {
            // Nobody sent it again: the sequence ends where the generation did.
            ids.truncate(start);
            ids.extend(&g.answer);
            end = ids.len();
        }
        let spans = [(SpanKind::Prompt, at..start), (SpanKind::Generated, start..end)];
        turns.push(Turn { spans: spans.into_iter().filter_map(span).collect(), interrupted: g.interrupted });
        at = end;
    }
    if at < ids.len() {
        turns.push(Turn { spans: span((SpanKind::Prompt, at..ids.len())).into_iter().collect(), interrupted: false });
    }
    Stitched { ids, turns, rerendered }
}

fn span((kind, range): (SpanKind, Range<usize>)) -> Option<Span> {
    (!range.is_empty()).then_some(Span { kind, start: range.start as u32, end: range.end as u32 })
}

fn encoded_len(spans: &[IdSpan]) -> usize {
    spans.last().map_or(0, |s| s.range.end)
}

/// The parts of the first `n` ids.
fn clip(spans: Vec<IdSpan>, n: usize) -> Vec<IdSpan> {
    let clipped = spans.into_iter().filter(|s| s.range.start < n);
    clipped.map(|s| IdSpan { range: s.range.start..s.range.end.min(n), ..s }).collect()
}

#[cfg(test)]
mod tests;
