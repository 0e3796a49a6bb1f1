//! The words of a journal that matter, with their counts and first lines.

use serde::Serialize;

use crate::data::{Word, data};
use crate::evidence::{Evidence, Kind};

/// How many lines a word keeps.
const FIRST: usize = 3;

/// A word of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WordCount {
    /// The word for all its forms.
    pub word: &'static str,
    /// Lines that have it.
    pub count: usize,
    /// The first of them.
    pub first: Vec<Evidence>,
}

/// A scan under way.
#[derive(Debug)]
pub(crate) struct Scan {
    counts: Vec<(&'static Word, WordCount)>,
}

impl Default for Scan {
    fn default() -> Self {
        let zero = |word: &'static Word| (word, WordCount { word: &word.name, count: 0, first: Vec::new() });
        Self { counts: data().words.iter().map(zero).collect() }
    }
}

impl Scan {
    pub(crate) fn line(&mut self, label: &str, number: usize, line: &str) {
        let lower = line.to_lowercase();
        for (word, seen) in &mut self.counts {
            // Most lines have none of the letters: look before anything is copied.
            if !word.forms.iter().any(|form| lower.contains(form.as_str())) || !has(&lower, word) {
                continue;
            }
            seen.count += 1;
            if seen.first.len() < FIRST {
                seen.first.push(Evidence::new(Kind::Log, label, number, line));
            }
        }
    }

    /// Every word with its count, zero included.
    pub(crate) fn done(self) -> Vec<WordCount> {
        self.counts.into_iter().map(|(_, count)| count).collect()
    }
}

/// True when a form of the word stands in a line of small letters, at word boundaries, outside harmless texts and names of
/// options.
fn has(line: &str, word: &Word) -> bool {
    let mut text = line.to_owned();
    for harmless in &word.except {
        text = text.replace(harmless.as_str(), " ");
    }
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    word.forms.iter().any(|form| {
        text.match_indices(form.as_str()).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + form.len()..]);
            let token = before.rfind(char::is_whitespace).map_or(before, |blank| &before[blank..]).trim_start();
            let option = token.starts_with("--") && !token.contains('=');
            !option && !before.ends_with(joins) && !after.starts_with(joins)
        })
    })
}

#[cfg(test)]
mod tests;
