//! The fixed texts out of a release's Python encoder: its string literals are read, nothing is executed.

mod lexer;
mod literals;

use super::texts::{EncodingTexts, Release, Text, sha256_hex};
use crate::{Error, Result};

/// Nobody's encoder module is near this size.
const MAX_BYTES: usize = 1 << 20;

/// Texts found in a Python file, and what is doubtful about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FromPython {
    /// The four texts. Without text B (preview releases have none) it is empty and the release is `preview`.
    pub texts: EncodingTexts,
    /// One line for each text that was not recognised by its sum.
    pub warnings: Vec<String>,
}

/// How one of the texts is recognised (spec section 5).
struct Known {
    name: &'static str,
    sha256: &'static str,
    /// Stands near the start of the text in every release.
    words: &'static str,
    /// Stands in it too, where it is a template.
    placeholder: &'static str,
}

const TOOLS: Known = Known {
    name: "tools_template",
    sha256: "09b7269daaddbeaf11a3ed55c07b1846c35162b841d8b4301bbe0449879d1fd8",
    words: "## Tools",
    placeholder: "{tool_schemas}",
};
const RESPONSE_FORMAT: Known = Known {
    name: "response_format",
    sha256: "012f31fcc1338bdfe25b132eaf56ab020ee75ab8e649f37b30b8e5f544fb17a5",
    words: "## Response Format",
    placeholder: "{schema}",
};
const EFFORT_A: Known = Known {
    name: "effort_a",
    sha256: "f7a24f3b3050d4a83781e9b755b316aae2ec1d9dc87562541d90bcb04d7350f7",
    words: "Absolute maximum",
    placeholder: "",
};
const EFFORT_B: Known = Known {
    name: "effort_b",
    sha256: "53fb31b8392ec5b4a926481943efc67636748f137c1a49d493a7af4d4fa55d2c",
    words: "Beyond maximum",
    placeholder: "",
};

/// The words stand within so many bytes of the start.
const NEAR_START: usize = 64;

/// Picks the four texts out of the string literals of a Python source file (joined ones too, wherever they stand):
/// by sha256, else by their first words with a warning. `origin` names the file.
pub fn encoding_from_python(origin: &str, source: &[u8]) -> Result<FromPython> {
    if source.len() > MAX_BYTES {
        return Err(Error::input("the file is too large for an encoder module")
            .at(origin)
            .expected(format!("at most {MAX_BYTES} bytes"))
            .found(source.len()));
    }
    let source = std::str::from_utf8(source).map_err(|e| {
        Error::input("not a UTF-8 text").at(origin).found(format!("other bytes at {}", e.valid_up_to()))
    })?;
    let literals = literals::all(source);
    let mut warnings = Vec::new();
    let mut text = |known: &Known| -> Result<Text> {
        pick(known, &literals, &mut warnings).ok_or_else(|| {
            Error::input(format!("no string literal of the file is the text {}", known.name))
                .at(origin)
                .expected(format!("sha256 {} or the words {:?} near its start", known.sha256, known.words))
                .found(format!("{} literals, none of them like it", literals.len()))
                .hint("the encoder module of the release is needed (encoding/encoding_dsv4.py)")
        })
    };
    let (tools_template, response_format, effort_a) = (text(&TOOLS)?, text(&RESPONSE_FORMAT)?, text(&EFFORT_A)?);
    let effort_b = pick(&EFFORT_B, &literals, &mut warnings);
    let release = if effort_b.is_some() { Release::V0731 } else { Release::Preview };
    let effort_b = effort_b.unwrap_or_else(|| Text::new(""));
    let texts =
        EncodingTexts { origin: origin.to_owned(), release, tools_template, response_format, effort_a, effort_b };
    Ok(FromPython { texts, warnings })
}

fn pick(known: &Known, literals: &[String], warnings: &mut Vec<String>) -> Option<Text> {
    if let Some(exact) = literals.iter().find(|text| sha256_hex(text.as_bytes()) == known.sha256) {
        return Some(Text::new(exact));
    }
    let place = |text: &str| text.find(known.words).filter(|&at| at < NEAR_START && text.contains(known.placeholder));
    // A joined text comes with its pieces, and others may mention it: of those that begin alike the longest is it.
    let mut alike: Vec<(usize, &String)> = literals.iter().filter_map(|t| place(t).map(|at| (at, t))).collect();
    alike.sort_by_key(|(at, text)| (*at, std::cmp::Reverse(text.len())));
    let text = Text::new(alike.first()?.1);
    warnings.push(format!(
        "{}: no literal has the known sha256; taken by its first words: {} bytes, sha256 {}",
        known.name,
        text.text.len(),
        text.sha256
    ));
    Some(text)
}

#[cfg(test)]
mod tests;
