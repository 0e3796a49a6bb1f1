//! What a run leaves behind: `run.json`, `verdict.json` and csv tables; and the verdict as a pure function of them.
//!
//! Columns are defined once, in [`tables`]: header, writer, reader and schema hash all follow from those structs.

mod cell;
mod error;
pub mod gate;
mod json;
pub mod judge;
pub mod lock;
pub mod merge;
pub mod policy;
mod read;
mod requests;
mod run;
mod schema;
pub mod tables;
mod verdict;
mod write;

pub use cell::{BadCell, Cell};
pub use error::{Error, Result};
pub use judge::stats::student_quantile;
pub use judge::{Evidence, history_verdict, judge, row_verdict};
pub use policy::{Date, Policy};
pub use read::{read, read_table};
pub use requests::{RequestRow, write_requests};
pub use run::{
    CacheUse, Candidate, Conversation, Model, Part, PartOf, Partition, PatchUse, Run, Scenario, Schema, Stopped, Table,
    WallParts, Walls,
};
pub use schema::{Column, Row, SCHEMA_VERSION, schema_hash};
pub use tables::{DerivationRow, FlipRow, HistoryRow, PatchRow, RecallRow, TapRow, TokenRow};
pub use verdict::{
    ChangePoint, Effect, Examination, Finding, FirstBad, KvShares, Report, SignatureTest, Suspect, Verdict,
};
pub use write::write;

/// A whole bundle in memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bundle {
    /// Provenance: what ran, on what, for how long.
    pub run: Run,
    /// The verdict that was printed.
    pub verdict: Report,
    /// One row a tap, layer, sequence, phase, patch set and part.
    pub taps: Vec<TapRow>,
    /// One row a rounding of the numeric plan, tap and layer.
    pub derivations: Vec<DerivationRow>,
    /// One row a position and patch set.
    pub tokens: Vec<TokenRow>,
    /// One row a changed discrete decision.
    pub flips: Vec<FlipRow>,
    /// One row a recalled answer.
    pub recall: Vec<RecallRow>,
    /// One row a speed patch.
    pub patches: Vec<PatchRow>,
    /// One row a history, sequence and comparison.
    pub histories: Vec<HistoryRow>,
}

impl Bundle {
    /// What the verdict is a function of.
    pub fn evidence(&self) -> Evidence<'_> {
        Evidence {
            taps: &self.taps,
            tokens: &self.tokens,
            flips: &self.flips,
            patches: &self.patches,
            recall: &self.recall,
            histories: &self.histories,
            findings: &self.run.findings,
            is_part: self.run.is_part(),
            stopped: self.run.stopped,
            today: None,
        }
    }
}

#[cfg(test)]
mod tests;
