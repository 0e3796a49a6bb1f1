//! Which rows a part of a policy is about.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{TapRow, TokenRow};

/// Classes of taps, with the taps in them (`*` stands for anything).
pub const CLASSES: &[(&str, &[&str])] = &[
    ("embed", &["embed", "in"]),
    ("mhc", &["hc_attn.*", "hc_ffn.*", "out", "h_final"]),
    ("compressor", &["attn.kvp", "attn.gate_score", "attn.ckv", "attn.index_kvp", "attn.index_gate_score"]),
    ("indexer", &["attn.index_*", "attn.selected"]),
    ("attention", &["attn.*"]),
    ("router", &["ffn.router_logits", "ffn.idx", "ffn.wt"]),
    ("experts", &["ffn.*"]),
    ("head", &["head.*", "logits"]),
];

/// The class of a tap: the first that holds it.
pub fn class_of(tap: &str) -> &'static str {
    CLASSES.iter().find(|(_, taps)| taps.iter().any(|glob| fits(glob, tap))).map_or("other", |(class, _)| class)
}

/// The patch that a patch set is about: the set's name without `stock+`.
pub fn patch_of(set: &str) -> &str {
    set.strip_prefix("stock+").unwrap_or(set)
}

/// Rows by name; what is not given fits all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Select {
    /// Patch, `stock`, `all` (every patch at once) or `trace`; `*` stands for anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// prefill or decode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Class of taps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Tap without its layer, as in `attn.*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tap: Option<String>,
    /// Layer, as the tables write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// Stratum of tokens.csv.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stratum: Option<String>,
}

impl Select {
    /// True when the patch set fits.
    pub fn fits_set(&self, set: &str) -> bool {
        self.patch.as_deref().is_none_or(|glob| fits(glob, patch_of(set)))
    }

    /// True when the row of taps.csv fits.
    pub fn fits_tap(&self, row: &TapRow) -> bool {
        self.fits_set(&row.patch_set)
            && self.phase.as_deref().is_none_or(|p| p == row.phase)
            && self.layer.as_deref().is_none_or(|l| l == row.layer)
            && self.class.as_deref().is_none_or(|c| c == class_of(&row.tap))
            && self.tap.as_deref().is_none_or(|glob| fits(glob, &row.tap))
    }

    /// True when the row of tokens.csv fits, whatever its patch set.
    pub fn fits_token(&self, row: &TokenRow) -> bool {
        self.phase.as_deref().is_none_or(|p| p == row.phase) && self.stratum.as_deref().is_none_or(|s| s == row.stratum)
    }

    /// What is given, by name.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("patch", &self.patch),
            ("phase", &self.phase),
            ("class", &self.class),
            ("tap", &self.tap),
            ("layer", &self.layer),
            ("stratum", &self.stratum),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given: Vec<String> = self.given().map(|(name, value)| format!("{name} = {value}")).collect();
        f.write_str(&given.join(", "))
    }
}

/// True when the text fits the pattern, in which `*` stands for any characters.
fn fits(glob: &str, text: &str) -> bool {
    let mut parts = glob.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}
