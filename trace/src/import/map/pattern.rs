//! Patterns of names: `{word}` takes a part without `/`, `.` and `=`, `*` takes anything.

use std::collections::BTreeMap;

use karat_model::{Error, Result};

/// Parts that were taken, by word.
pub(crate) type Captures = BTreeMap<String, String>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Word(String),
    Any,
}

/// A pattern, or a name to fill in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    pieces: Vec<Piece>,
}

impl Pattern {
    /// Reads a pattern. Errors: braces without an end, a word twice, more than two `*` (a match stays quadratic).
    pub(crate) fn new(text: &str) -> Result<Self> {
        let bad = |what: &str| Error::input(what).at(format!("pattern {text:?}"));
        let mut pieces: Vec<Piece> = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if c == '{' {
                let (word, after) = rest[1..].split_once('}').ok_or_else(|| bad("`{` has no end"))?;
                if word.is_empty() || !word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                    return Err(bad("a word in braces is letters, digits and _").found(word));
                }
                if pieces.contains(&Piece::Word(word.into())) {
                    return Err(bad("word is twice in the pattern").found(word));
                }
                if matches!(pieces.last(), Some(Piece::Word(_) | Piece::Any)) {
                    return Err(bad("something must stand between two open parts"));
                }
                pieces.push(Piece::Word(word.into()));
                rest = after;
            } else if c == '*' {
                if matches!(pieces.last(), Some(Piece::Word(_) | Piece::Any)) {
                    return Err(bad("something must stand between two open parts"));
                }
                pieces.push(Piece::Any);
                rest = &rest[1..];
            } else {
                match pieces.last_mut() {
                    Some(Piece::Text(text)) => text.push(c),
                    _ => pieces.push(Piece::Text(c.into())),
                }
                rest = &rest[c.len_utf8()..];
            }
        }
        if pieces.is_empty() {
            return Err(bad("pattern is empty"));
        }
        if pieces.iter().filter(|p| **p == Piece::Any).count() > 2 {
            return Err(bad("pattern has too many `*`").expected("at most 2"));
        }
        Ok(Self { pieces })
    }

    /// True when a word is in the pattern.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.pieces.contains(&Piece::Word(word.into()))
    }

    /// Words, in order.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|p| if let Piece::Word(word) = p { Some(word.as_str()) } else { None })
    }

    /// What the words are in a name that fits; `{layer}` must be a number.
    pub(crate) fn fits(&self, name: &str) -> Option<Captures> {
        let mut out = Captures::new();
        fit(&self.pieces, name, &mut out).then_some(out)
    }

    /// The name with the words filled in; `None` when one is missing.
    pub(crate) fn fill(&self, words: &Captures) -> Option<String> {
        self.pieces
            .iter()
            .map(|p| match p {
                Piece::Text(text) => Some(text.as_str()),
                Piece::Word(word) => words.get(word).map(String::as_str),
                Piece::Any => None,
            })
            .collect()
    }
}

fn fit(pieces: &[Piece], name: &str, out: &mut Captures) -> bool {
    let Some((piece, rest)) = pieces.split_first() else { return name.is_empty() };
    match piece {
        Piece::Text(text) => name.strip_prefix(text.as_str()).is_some_and(|after| fit(rest, after, out)),
        Piece::Word(word) => {
            // The part ends where the text after it begins, so there is one way to take it.
            let run = name.find(['/', '.', '=']).unwrap_or(name.len());
            let end = match rest.first() {
                Some(Piece::Text(text)) => name.find(text.as_str()).filter(|end| *end <= run),
                _ => Some(run),
            };
            let Some(end) = end.filter(|end| *end > 0) else { return false };
            let (taken, after) = name.split_at(end);
            if word == "layer" && (!taken.bytes().all(|b| b.is_ascii_digit()) || taken.len() > 6) {
                return false;
            }
            out.insert(word.clone(), taken.to_string());
            fit(rest, after, out)
        }
        Piece::Any => {
            if rest.is_empty() {
                return true;
            }
            name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| fit(rest, &name[at..], out))
        }
    }
}
