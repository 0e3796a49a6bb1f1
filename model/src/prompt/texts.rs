//! encoding.json: the fixed English texts of a release, as data beside the checkpoint.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// Name and version of the file format.
const FORMAT: &str = "karat-encoding/1";
/// Nobody's texts are near this size.
const MAX_BYTES: usize = 1 << 20;

/// Which effort tiers the checkpoint was trained with (spec section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Release {
    /// Preview checkpoints: none and high have no prefix, max has text A.
    #[serde(rename = "preview")]
    Preview,
    /// Flash-0731: low (the default) has no prefix, high has text A, max has text B.
    #[serde(rename = "0731")]
    V0731,
}

/// A text with the sha256 of its UTF-8 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// The text, placeholders unfilled.
    pub text: String,
    /// Lower-case hex.
    pub sha256: String,
}

impl Text {
    /// A text with its sum.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let sha256 = sha256_hex(text.as_bytes());
        Self { text, sha256 }
    }
}

/// The four fixed texts and the release that fixes what they are used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodingTexts {
    /// Whose wording it is: `karat` for a made model, the name of the Python file otherwise.
    pub origin: String,
    /// Which effort tiers hold.
    pub release: Release,
    /// The tools block; placeholders `{tool_schemas}`, `{dsml_token}`, `{thinking_start_token}`,
    /// `{thinking_end_token}`.
    pub tools_template: Text,
    /// The response-format block; placeholder `{schema}`.
    pub response_format: Text,
    /// Effort prefix A ("Absolute maximum..." in the released wording).
    pub effort_a: Text,
    /// Effort prefix B ("Beyond maximum..." in the released wording).
    pub effort_b: Text,
}

/// The file as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    origin: String,
    release: Release,
    tools_template: Text,
    response_format: Text,
    effort_a: Text,
    effort_b: Text,
}

impl EncodingTexts {
    /// Reads encoding.json. A text whose sum does not fit, or a template without its placeholder, is refused.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > MAX_BYTES {
            return Err(Error::input("the file is too large for four texts")
                .at("encoding.json")
                .expected(format!("at most {MAX_BYTES} bytes"))
                .found(bytes.len()));
        }
        let file: File = serde_json::from_slice(bytes).map_err(|e| {
            Error::input("not an encoding file")
                .at("encoding.json")
                .found(e)
                .hint("`karat model encoding FILE.py --out encoding.json` makes one from a Python encoder")
        })?;
        if file.format != FORMAT {
            return Err(Error::input("unknown format")
                .at("encoding.json: format")
                .expected(FORMAT)
                .found(format!("{:?}", file.format)));
        }
        let texts = Self {
            origin: file.origin,
            release: file.release,
            tools_template: file.tools_template,
            response_format: file.response_format,
            effort_a: file.effort_a,
            effort_b: file.effort_b,
        };
        texts.check()?;
        Ok(texts)
    }

    /// encoding.json's bytes.
    pub fn to_json(&self) -> Vec<u8> {
        let file = File {
            format: FORMAT.to_owned(),
            origin: self.origin.clone(),
            release: self.release,
            tools_template: self.tools_template.clone(),
            response_format: self.response_format.clone(),
            effort_a: self.effort_a.clone(),
            effort_b: self.effort_b.clone(),
        };
        let mut text = serde_json::to_string_pretty(&file).unwrap_or_default();
        text.push('\n');
        text.into_bytes()
    }

    fn check(&self) -> Result<()> {
        let texts = [
            ("tools_template", &self.tools_template, "{tool_schemas}"),
            ("response_format", &self.response_format, "{schema}"),
            ("effort_a", &self.effort_a, ""),
            ("effort_b", &self.effort_b, ""),
        ];
        for (name, text, placeholder) in texts {
            let place = format!("encoding.json: {name}");
            let sum = sha256_hex(text.text.as_bytes());
            if sum != text.sha256 {
                return Err(Error::input("the text does not have the sha256 beside it")
                    .at(place)
                    .expected(format!("{:?}", text.sha256))
                    .found(sum)
                    .hint("the text was edited or damaged: make the file again"));
            }
            if !text.text.contains(placeholder) {
                return Err(Error::input("the template lacks its placeholder").at(place).expected(placeholder));
            }
        }
        Ok(())
    }
}

/// Lower-case hex of a sha256.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut hex, byte| {
        hex.extend([byte >> 4, byte & 15].map(|nibble| char::from_digit(u32::from(nibble), 16).unwrap_or('?')));
        hex
    })
}
