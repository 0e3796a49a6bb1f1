//! What is asked of a run: tolerances, limits and allowances, as data. `karat.toml` is one such policy.

mod allow;
mod check;
mod date;
mod find;
mod metric;
mod select;
mod text;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{TapRow, json, schema};

pub use allow::Allowance;
pub(crate) use check::RECALL_MARGIN;
pub use date::Date;
pub use find::{Found, find};
pub use metric::{Metric, Table};
pub use select::{CLASSES, Select, class_of, patch_of};

/// First line of a policy file.
pub const FORMAT: &str = "karat-policy/1";

/// The policy of a run that names none, as `karat gate --print-policy` prints it. It says what [`Policy::default`] says.
pub const DEFAULT: &str = include_str!("default.toml");

/// A change of the tables' tolerances for some rows. Of several that fit a row the last counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Which rows of taps.csv.
    #[serde(default, rename = "where")]
    pub on: Select,
    /// Factor on their tolerance.
    #[serde(with = "json::number")]
    pub scale: f64,
    /// Why; required when it widens.
    #[serde(default)]
    pub reason: String,
}

/// A bound on one metric, beside the tolerances.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Its name, in messages and allowances.
    pub name: String,
    /// What is bounded.
    pub metric: Metric,
    /// Which rows.
    #[serde(default, rename = "where")]
    pub on: Select,
    /// Largest value that passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Smallest value that passes: what is asked in return (`speedup`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The 95 % bound must lie within the limit too, else the run is unproven.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prove: bool,
    /// A run without such rows is not unproven by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_present: bool,
    /// What the limit is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Limit {
    /// The bound: `max`, or `min` where that is asked for.
    pub fn bound(&self) -> f64 {
        self.max.or(self.min).unwrap_or(f64::NAN)
    }
}

/// How a verdict follows from the numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// [`FORMAT`].
    #[serde(default)]
    pub format: String,
    /// Factor on every tolerance of the tables.
    #[serde(with = "json::number", default = "one")]
    pub tolerance_scale: f64,
    /// A tolerance under this many floors proves nothing.
    #[serde(with = "json::number", default = "ten")]
    pub min_floors: f64,
    /// Share of answers whose loss must be ruled out; `null` when recall is reported, not tested for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall_margin: Option<f64>,
    /// Chance that a run fails by chance: over all limits that have statistics together (Holm).
    #[serde(with = "json::number", default = "delta")]
    pub delta: f64,
    /// Tolerances that are others than the tables'.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerance: Vec<Scale>,
    /// Limits beside the tolerances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limit: Vec<Limit>,
    /// What may fail for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<Allowance>,
}

fn one() -> f64 {
    1.0
}

fn ten() -> f64 {
    10.0
}

fn delta() -> f64 {
    1e-3
}

impl Default for Policy {
    fn default() -> Self {
        let limit = |name: &str, metric, max, reason: &str| Limit {
            name: name.to_string(),
            metric,
            max: Some(max),
            if_present: true,
            reason: reason.to_string(),
            ..Limit::default()
        };
        Self {
            format: FORMAT.to_string(),
            tolerance_scale: one(),
            min_floors: ten(),
            recall_margin: None,
            delta: delta(),
            tolerance: Vec::new(),
            limit: vec![
                limit("added-kl", Metric::AddedKl, 0.02, "mean nats that a patch may add to stock's KL from golden"),
                limit(
                    "flips-beyond-expected",
                    Metric::FlipsBeyondExpected,
                    0.02,
                    "share of positions whose most likely id changes beyond what noise of stock's size changes",
                ),
                limit(
                    "recall-lost",
                    Metric::RecallLost,
                    0.01,
                    "share of answers that stock gives and the patch loses, less those it gains",
                ),
            ],
            allow: Vec::new(),
        }
    }
}

impl Policy {
    /// Factor on the tolerance of a row of taps.csv.
    pub fn scale(&self, row: &TapRow) -> f64 {
        let own = self.tolerance.iter().rev().find(|t| t.on.fits_tap(row)).map_or(1.0, |t| t.scale);
        self.tolerance_scale * own
    }

    /// sha256 (hex) of all that it says, the reasons too.
    pub fn hash(&self) -> String {
        // A policy holds numbers and text only: it has a json form.
        let text = serde_json::to_string(self).unwrap_or_default();
        schema::hex(&Sha256::digest(text.as_bytes()))
    }
}

#[cfg(test)]
mod tests;
