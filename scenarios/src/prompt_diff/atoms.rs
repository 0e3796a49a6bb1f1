//! A prompt in atoms: its special tokens, its marked blocks, and the texts between them. Two prompts are aligned by
//! these, so that a turn that is there twice or not at all stays one difference.

use std::ops::Range;

use karat_model::prompt::special;

/// What an atom is, by its own text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A special token.
    Token(&'static str),
    /// `<tool_result>...</tool_result>`.
    ToolResult,
    /// A block of tool calls with its tags.
    ToolCalls,
    /// An effort text.
    Effort,
    /// The tools block as golden writes it.
    Tools,
    /// The response format as golden writes it.
    ResponseFormat,
    /// Anything else.
    Text,
}

/// A stretch of the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Atom {
    pub(super) kind: Kind,
    /// Bytes of the text.
    pub(super) range: Range<usize>,
}

/// Texts that are one atom wherever they stand.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub(super) texts: Vec<(Kind, String)>,
}

pub(super) const RESULT: (&str, &str) = ("<tool_result>", "</tool_result>");

impl Known {
    /// Adds a text without the white space around it; an empty one is none.
    pub(super) fn add(&mut self, kind: Kind, text: &str) {
        let text = text.trim();
        if !text.is_empty() && self.texts.iter().all(|(_, t)| t != text) {
            self.texts.push((kind, text.to_owned()));
        }
    }

    /// The atoms of a text, from end to end, in order, none empty.
    pub(super) fn atoms(&self, text: &str) -> Vec<Atom> {
        let mut marks: Vec<(usize, usize, usize, Kind)> = Vec::new();
        let mut mark = |range: Range<usize>, rank, kind| marks.push((range.start, rank, range.end, kind));
        for (kind, known) in &self.texts {
            text.match_indices(known.as_str()).for_each(|(at, found)| mark(at..at + found.len(), 0, *kind));
        }
        let calls = (format!("<{}tool_calls>", special::DSML), format!("</{}tool_calls>", special::DSML));
        blocks(text, RESULT.0, RESULT.1, |range| mark(range, 1, Kind::ToolResult));
        blocks(text, &calls.0, &calls.1, |range| mark(range, 1, Kind::ToolCalls));
        for token in special::ALL {
            text.match_indices(token).for_each(|(at, _)| mark(at..at + token.len(), 2, Kind::Token(token)));
        }
        marks.sort_unstable_by_key(|(start, rank, end, _)| (*start, *rank, std::cmp::Reverse(*end)));
        let mut atoms = Vec::new();
        let mut at = 0;
        for (start, _, end, kind) in marks {
            if start < at {
                continue;
            }
            if start > at {
                atoms.push(Atom { kind: Kind::Text, range: at..start });
            }
            atoms.push(Atom { kind, range: start..end });
            at = end;
        }
        if at < text.len() {
            atoms.push(Atom { kind: Kind::Text, range: at..text.len() });
        }
        atoms
    }
}

/// Blocks between two tags. A turn's token between them means that the tags are text of two turns, not a block.
fn blocks(text: &str, open: &str, close: &str, mut mark: impl FnMut(Range<usize>)) {
    let mut at = 0;
    while let Some(start) = text[at..].find(open).map(|i| at + i) {
        let Some(end) = text[start..].find(close).map(|i| start + i + close.len()) else { return };
        let inner = &text[start..end];
        if [special::USER, special::ASSISTANT, special::EOS].iter().any(|token| inner.contains(token)) {
            at = start + open.len();
        } else {
            mark(start..end);
            at = end;
        }
    }
}
