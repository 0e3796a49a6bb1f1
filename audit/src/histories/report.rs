//! What the histories came to.

use karat_bundle::{Bundle, Verdict};
use karat_optimized::serving::{Geometry, Script, Served};

use super::Checked;

/// One history.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryRun {
    /// Which.
    pub history: Served,
    /// What came of it.
    pub checked: Checked,
    /// The smallest history that still differs, when it does.
    pub minimal: Option<Script>,
    /// Of its rows in the bundle.
    pub verdict: Verdict,
}

/// All of them.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoriesReport {
    /// Sequences and tokens of the final contexts.
    pub sequences: usize,
    /// Tokens of them all.
    pub tokens: usize,
    /// Speed patches.
    pub patches: Vec<String>,
    /// Pages and rings.
    pub geometry: Geometry,
    /// One a history.
    pub runs: Vec<HistoryRun>,
    /// Everything that the verdict is made of, with the verdict.
    pub bundle: Bundle,
}

impl HistoriesReport {
    /// The verdict of the bundle.
    pub fn verdict(&self) -> Verdict {
        self.bundle.verdict.verdict
    }
}
