//! What the histories came to.

use karat_bundle::Verdict;
use karat_optimized::serving::{Geometry, Script, Served};

use super::Checked;

/// One history.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryRow {
    /// Which.
    pub history: Served,
    /// What came of it.
    pub checked: Checked,
    /// The smallest history that still differs, when it does.
    pub minimal: Option<Script>,
}

impl HistoryRow {
    /// Fail when it is not its own cold run, unproven when it never did what it is named after.
    pub fn verdict(&self) -> Verdict {
        match self.checked.is_same() {
            false => Verdict::Fail,
            true if self.checked.facts.lacks(self.history).is_some() => Verdict::Unproven,
            true => Verdict::Pass,
        }
    }
}

/// All of them.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoriesReport {
    /// Name of the model.
    pub model: String,
    /// Sequences and tokens of the final contexts.
    pub sequences: usize,
    /// Tokens of them all.
    pub tokens: usize,
    /// Stock profile.
    pub stock: String,
    /// Speed patches.
    pub patches: Vec<String>,
    /// Pages and rings.
    pub geometry: Geometry,
    /// One row a history.
    pub rows: Vec<HistoryRow>,
    /// Wall time.
    pub seconds: f64,
}

impl HistoriesReport {
    /// Fail before unproven before pass; unproven when there is no history.
    pub fn verdict(&self) -> Verdict {
        let has = |verdict| self.rows.iter().any(|row| row.verdict() == verdict);
        match () {
            () if has(Verdict::Fail) => Verdict::Fail,
            () if has(Verdict::Unproven) || self.rows.is_empty() => Verdict::Unproven,
            () => Verdict::Pass,
        }
    }
}
