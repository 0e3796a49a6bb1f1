//! Marks inside messages: private-use characters around stretches whose role the training loss and the evaluation must
//! know. They are taken out of the rendered prompt before it is tokenised.

use karat_model::prompt::{Part, PartSpan, Prompt};

/// Role of a marked stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A value that was told before: the model must answer it.
    Answer {
        /// Which fact.
        fact: u16,
        /// Which kind of question.
        kind: u8,
    },
    /// A value told here for the first time.
    Plant {
        /// Which fact.
        fact: u16,
    },
    /// Words of the assistant that nothing determines.
    Free,
}

const OPEN: char = '\u{e000}';
const CLOSE: char = '\u{e001}';
const BASE: u32 = 0xe100;
const PLANT: u32 = 200;
const FREE: u32 = 201;

/// The text with a mark around it. A leading space belongs inside, since tokens begin with it.
pub fn mark(text: &str, mark: Mark) -> String {
    let digit = |v: u32| char::from_u32(BASE + v).unwrap_or(CLOSE);
    let (kind, fact) = match mark {
        Mark::Answer { fact, kind } => (u32::from(kind), fact),
        Mark::Plant { fact } => (PLANT, fact),
        Mark::Free => (FREE, 0),
    };
    let fact = u32::from(fact);
    [OPEN, digit(kind), digit(fact / 1000), digit(fact % 1000)].iter().collect::<String>() + text + &CLOSE.to_string()
}

/// A text in pieces, each inside one mark or none, without the marks.
pub(crate) fn pieces(text: &str) -> Vec<(String, Option<Mark>)> {
    let mut out = Vec::new();
    let (mut piece, mut mark) = (String::new(), None);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != OPEN && c != CLOSE {
            piece.push(c);
            continue;
        }
        if !piece.is_empty() {
            out.push((std::mem::take(&mut piece), mark));
        }
        mark = (c == OPEN).then(|| {
            let mut digit = || chars.next().map_or(0, |c| (c as u32).saturating_sub(BASE));
            let (kind, thousands, rest) = (digit(), digit(), digit());
            let fact = (thousands * 1000 + rest) as u16;
            match kind {
                PLANT => Mark::Plant { fact },
                FREE => Mark::Free,
                kind => Mark::Answer { fact, kind: kind as u8 },
            }
        });
    }
    if !piece.is_empty() {
        out.push((piece, mark));
    }
    out
}

/// The text without any marks.
pub fn strip(text: &str) -> String {
    pieces(text).into_iter().map(|(piece, _)| piece).collect()
}

/// What a stretch of a clean prompt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// The encoder's word for it.
    pub part: Part,
    /// Index of the message that it belongs to, if any.
    pub message: Option<usize>,
    /// Whether the assistant wrote it.
    pub assistant: bool,
    /// The mark it lies in.
    pub mark: Option<Mark>,
}

/// Takes the marks out of a rendered prompt. The spans of the result carry, as `message`, an index into the labels.
pub fn clean(prompt: &Prompt, assistant: &[bool]) -> (Prompt, Vec<Label>) {
    let mut text = String::with_capacity(prompt.text.len());
    let (mut spans, mut labels) = (Vec::new(), Vec::new());
    for span in &prompt.spans {
        let by = span.message.is_some_and(|m| assistant[m]);
        for (piece, mark) in pieces(&prompt.text[span.range.clone()]) {
            let start = text.len();
            text.push_str(&piece);
            spans.push(PartSpan { message: Some(labels.len()), part: span.part, range: start..text.len() });
            labels.push(Label { part: span.part, message: span.message, assistant: by, mark });
        }
    }
    (Prompt { text, spans }, labels)
}
