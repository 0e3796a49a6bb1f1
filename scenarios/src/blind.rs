//! Measures of a text that look at its surface only. They stand beside recall to show what they cannot see: a fluent
//! answer with the wrong value has the same numbers as the right one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

/// The surface of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Blind {
    /// Size after gzip over size before; `None` for an empty text.
    pub gzip_ratio: Option<f64>,
    /// Different words over words; `None` without words.
    pub unique_word_ratio: Option<f64>,
    /// Longest run of one word.
    pub max_word_run: u64,
    /// Times that the most repeated line stands there (empty lines not counted).
    pub max_line_repeat: u64,
}

impl Blind {
    /// Looks at a text.
    pub fn of(text: &str) -> Self {
        let words: Vec<&str> = text.split_whitespace().collect();
        let different: BTreeSet<&str> = words.iter().copied().collect();
        let mut lines: BTreeMap<&str, u64> = BTreeMap::new();
        text.lines().map(str::trim).filter(|l| !l.is_empty()).for_each(|l| *lines.entry(l).or_default() += 1);
        Self {
            gzip_ratio: gzip_ratio(text),
            unique_word_ratio: (!words.is_empty()).then(|| different.len() as f64 / words.len() as f64),
            max_word_run: longest_run(&words),
            max_line_repeat: lines.into_values().max().unwrap_or(0),
        }
    }
}

fn gzip_ratio(text: &str) -> Option<f64> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(text.as_bytes()).ok()?;
    let size = packed.finish().ok()?.len();
    (!text.is_empty()).then(|| size as f64 / text.len() as f64)
}

fn longest_run(words: &[&str]) -> u64 {
    let (mut best, mut run) = (0, 0);
    for (i, word) in words.iter().enumerate() {
        run = if i > 0 && words[i - 1] == *word { run + 1 } else { 1 };
        best = best.max(run);
    }
    best
}

#[cfg(test)]
mod tests;
