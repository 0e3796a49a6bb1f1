//! Mapping files: how another engine's names, axes, shards and chunks become taps.
//!
//! `karat-map/1` is TOML, a list of rules; a tensor takes the first rule that its name fits. The steps of a rule run in
//! this order: shards are joined, chunks stitched, then `keep`, `select`, `unstack`, `order`, `reshape`, `cast`.
//! docs/import-dumps.md describes the fields.

mod build;
mod builtin;
mod pattern;
mod plan;
mod rule;
#[cfg(test)]
mod tests;

use std::path::Path;

use karat_model::{Error, Result};
use serde::Deserialize;

pub use build::Built;
pub(crate) use build::build;
pub use builtin::{Builtin, builtin};
pub use plan::{Plan, Recipe};
pub(crate) use rule::Rule;
use rule::RuleText;

/// Value of `format`.
const FORMAT: &str = "karat-map/1";
/// Largest file, and most rules.
const MAX_BYTES: u64 = 1 << 20;
const MAX_RULES: usize = 4096;

/// Which of two dumps a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// What is measured against.
    A,
    /// The candidate.
    B,
}

/// Rules in order.
#[derive(Debug, Clone)]
pub struct Map {
    label: String,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MapText {
    format: String,
    #[serde(default)]
    tensor: Vec<toml::Spanned<RuleText>>,
}

impl Map {
    /// Reads a file. Errors (input) name file, line and field.
    pub fn open(path: &Path) -> Result<Self> {
        let label = path.display().to_string();
        let fail = |e: std::io::Error| Error::input("mapping file can't be read").at(&label).found(e);
        if std::fs::metadata(path).map_err(fail)?.len() > MAX_BYTES {
            return Err(Error::input("mapping file is too large")
                .at(&label)
                .expected(format!("at most {MAX_BYTES} bytes")));
        }
        let bytes = std::fs::read(path).map_err(fail)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| Error::input("mapping file is no UTF-8").at(&label))?;
        Self::parse(&label, text)
    }

    /// Reads a text.
    pub fn parse(label: &str, text: &str) -> Result<Self> {
        let line = |at: usize| text.get(..at).map_or(0, |t| t.matches('\n').count()) + 1;
        let place = |at: Option<usize>| at.map_or(label.to_string(), |at| format!("{label}: line {}", line(at)));
        let map: MapText = toml::from_str(text).map_err(|e| {
            Error::input("not a mapping file")
                .at(place(e.span().map(|s| s.start)))
                .found(e.message().trim().to_string())
        })?;
        if map.format != FORMAT {
            return Err(Error::input("unknown format of a mapping file").at(label).expected(FORMAT).found(map.format));
        }
        if map.tensor.len() > MAX_RULES {
            return Err(Error::input("too many rules").at(label).expected(format!("at most {MAX_RULES}")));
        }
        let rule = |r: &toml::Spanned<RuleText>| {
            let at = place(Some(r.span().start));
            Rule::new(r.get_ref()).map_err(|e| e.at(at))
        };
        Ok(Self { label: label.to_string(), rules: map.tensor.iter().map(rule).collect::<Result<_>>()? })
    }

    /// File or name, for messages.
    pub fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }
}
