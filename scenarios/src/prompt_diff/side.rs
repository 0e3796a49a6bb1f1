//! One of the two prompts: its text in atoms, and its ids.

use std::ops::Range;

use karat_model::Result;
use karat_model::prompt::{Part, PartSpan, Prompt, Tokenizer};

use super::atoms::{Atom, Kind, Known};

/// A prompt in atoms and ids.
pub(super) struct Side {
    pub(super) text: String,
    pub(super) atoms: Vec<Atom>,
    pub(super) ids: Vec<u32>,
    /// Position of the first id of each atom, and the number of ids behind the last.
    starts: Vec<usize>,
    /// Message and part of each atom; empty for a prompt that a server made.
    pub(super) tags: Vec<(Option<usize>, Part)>,
}

impl Side {
    /// A text in atoms. `spans` say whose parts the text has, if that is known.
    pub(super) fn new(text: String, known: &Known, spans: &[PartSpan], tokenizer: &Tokenizer) -> Result<Self> {
        let atoms = known.atoms(&text);
        let as_spans = atoms.iter().enumerate();
        let as_spans =
            as_spans.map(|(i, a)| PartSpan { message: Some(i), part: Part::Content, range: a.range.clone() }).collect();
        let prompt = Prompt { text, spans: as_spans };
        let encoded = tokenizer.encode_prompt(&prompt)?;
        let mut starts = vec![usize::MAX; atoms.len() + 1];
        for span in &encoded.spans {
            if let Some(i) = span.message {
                starts[i] = span.range.start;
            }
        }
        // An atom without an id of its own (its bytes are in the token before) stands where the next one does.
        starts[atoms.len()] = encoded.ids.len();
        for i in (0..atoms.len()).rev() {
            starts[i] = starts[i].min(starts[i + 1]);
        }
        let tags = atoms.iter().filter_map(|a| tag(spans, a.range.start)).collect();
        Ok(Self { text: prompt.text, atoms, ids: encoded.ids, starts, tags })
    }

    /// Text of an atom.
    pub(super) fn of(&self, atom: usize) -> &str {
        &self.text[self.atoms[atom].range.clone()]
    }

    pub(super) fn kind(&self, atom: usize) -> Kind {
        self.atoms[atom].kind
    }

    /// Ids of a range of atoms.
    pub(super) fn ids_of(&self, atoms: &Range<usize>) -> Range<usize> {
        self.starts[atoms.start]..self.starts[atoms.end]
    }

    /// Text of a range of atoms.
    pub(super) fn text_of(&self, atoms: &Range<usize>) -> &str {
        match (self.atoms.get(atoms.start), atoms.end.checked_sub(1).and_then(|last| self.atoms.get(last))) {
            (Some(first), Some(last)) if !atoms.is_empty() => &self.text[first.range.start..last.range.end],
            _ => "",
        }
    }
}

/// The span that a byte lies in.
fn tag(spans: &[PartSpan], byte: usize) -> Option<(Option<usize>, Part)> {
    let i = spans.partition_point(|s| s.range.end <= byte);
    spans.get(i).map(|s| (s.message, s.part))
}
