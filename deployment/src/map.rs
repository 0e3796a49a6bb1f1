//! Which ops and patches the hunks of a diff belong to.

use std::collections::BTreeSet;

use karat_model::Result;
use serde::Serialize;

use crate::data::{Place, data};
use crate::evidence::{Evidence, Kind};
use crate::parse::diff::{self, Hunk};

/// A hunk and what it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MappedHunk {
    /// Path of the file.
    pub file: String,
    /// The function that it is in, if the diff shows it.
    pub function: Option<String>,
    /// Ops whose results it can change; empty where no table knows.
    pub ops: BTreeSet<&'static str>,
    /// Patches that it is known as.
    pub patches: BTreeSet<&'static str>,
    /// The rules that led to them.
    pub because: Vec<String>,
    /// Changed lines.
    pub changed_lines: usize,
    /// True where only comments and blank lines change.
    pub comments_only: bool,
    /// The first changed line of code.
    pub evidence: Evidence,
}

impl MappedHunk {
    /// True when the tables know something of it.
    pub fn is_known(&self) -> bool {
        self.comments_only || !self.ops.is_empty()
    }
}

/// A whole diff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiffMap {
    /// Its hunks in order.
    pub hunks: Vec<MappedHunk>,
}

impl DiffMap {
    /// Hunks that no table knows.
    pub fn unknown(&self) -> impl Iterator<Item = &MappedHunk> {
        self.hunks.iter().filter(|h| !h.is_known())
    }

    /// Evidence for each patch that a hunk is known as.
    pub(crate) fn requests(&self, patch: &str) -> Vec<Evidence> {
        self.hunks.iter().filter(|h| h.patches.contains(patch)).map(|h| h.evidence.clone()).collect()
    }

    /// 0 when something is mapped, 4 when nothing is.
    pub fn exit_code(&self) -> u8 {
        if self.hunks.iter().any(|h| !h.ops.is_empty()) { 0 } else { 4 }
    }
}

/// Maps a unified diff against upstream to ops and patches.
///
/// # Errors
/// An input error that names file and line when the bytes are no diff, or a diff that is cut.
pub fn map_diff(label: &str, bytes: &[u8]) -> Result<DiffMap> {
    let hunks = diff::read(label, &crate::parse::text(bytes))?;
    Ok(DiffMap { hunks: hunks.iter().map(|hunk| map(label, hunk)).collect() })
}

fn map(label: &str, hunk: &Hunk) -> MappedHunk {
    let code: Vec<&(usize, char, String)> = hunk.changed.iter().filter(|(_, _, text)| is_code(text)).collect();
    let comments_only = code.is_empty() && hunk.without_text.is_none();
    let shown = code.iter().find(|(_, mark, _)| *mark == '+').or(code.first());
    let evidence = match (shown, hunk.without_text) {
        (Some((line, mark, text)), _) => Evidence::new(Kind::Diff, label, *line, &format!("{mark}{}", text.trim())),
        (None, Some(why)) => Evidence::new(Kind::Diff, label, hunk.line, why),
        (None, None) => Evidence::new(Kind::Diff, label, hunk.line, "comments or blank lines"),
    };
    let mut mapped = MappedHunk {
        file: crate::evidence::shown(&hunk.file),
        function: hunk.scopes.last().map(|s| crate::evidence::shown(s)),
        ops: BTreeSet::new(),
        patches: BTreeSet::new(),
        because: Vec::new(),
        changed_lines: hunk.changed.len(),
        comments_only,
        evidence,
    };
    if !comments_only {
        let added: Vec<_> = code.iter().copied().filter(|(_, mark, _)| *mark == '+').collect();
        for place in data().places.iter().filter(|p| fits(p, hunk, &code)) {
            mapped.ops.extend(place.ops.iter().map(String::as_str));
            // What takes a patch away touches its ops and asks for nothing.
            if !added.is_empty() && fits(place, hunk, &added) {
                mapped.patches.extend(place.patches.iter().map(String::as_str));
            }
            mapped.because.push(rule(place));
        }
    }
    mapped
}

/// True for a line that is more than a comment.
fn is_code(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && !text.starts_with('#') && !text.starts_with("//")
}

fn fits(place: &Place, hunk: &Hunk, code: &[&(usize, char, String)]) -> bool {
    let file = place.file.as_ref().is_none_or(|end| {
        hunk.file.strip_suffix(end.as_str()).is_some_and(|head| head.is_empty() || head.ends_with('/'))
    });
    let function = place.functions.is_empty() || hunk.scopes.iter().any(|s| place.functions.contains(s));
    file && function && place.words.iter().all(|word| code.iter().any(|(_, _, text)| has_word(text, word)))
}

/// True when the word stands in the text at word boundaries.
fn has_word(text: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| !text[..at].ends_with(joins) && !text[at + word.len()..].starts_with(joins))
}

fn rule(place: &Place) -> String {
    let mut parts = Vec::new();
    parts.extend(place.file.as_ref().map(|file| format!("file {file}")));
    if !place.functions.is_empty() {
        parts.push("its function".to_owned());
    }
    if !place.words.is_empty() {
        parts.push(format!("words {}", place.words.join(" ")));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests;
