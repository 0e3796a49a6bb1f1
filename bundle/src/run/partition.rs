//! Provenance of a partitioned run.

use serde::{Deserialize, Serialize};

use super::{CacheUse, Scenario, Walls};
use crate::{Date, Finding, json};

/// What one part of a run says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Which, from 1.
    pub index: u64,
    /// Rows of a cold run of its conversations.
    pub rows: u64,
    /// Its own passes of its rows.
    #[serde(with = "json::number")]
    pub forward_equivalents: f64,
    /// Threads.
    pub threads: u64,
    /// Wall times.
    pub wall_s: Walls,
    /// Peak resident memory, bytes.
    pub peak_memory_bytes: u64,
    /// What came from the cache.
    pub cache: CacheUse,
    /// Arguments as typed.
    pub command: Vec<String>,
    /// What it found out beside the tables.
    pub findings: Vec<Finding>,
    /// What could not be judged in it.
    pub notes: Vec<String>,
}

/// A conversation of a partitioned run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    /// Its scenario.
    pub scenario: String,
    /// Its id.
    pub sequence: String,
    /// The part that runs it, from 1.
    pub part: u64,
    /// Rows of a cold run.
    pub rows: u64,
}

/// Which parts of a run a bundle holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// Parts of the run.
    pub of: u64,
    /// Those that are here, by number.
    pub parts: Vec<Part>,
    /// Every conversation of the run, in its order.
    pub conversations: Vec<Conversation>,
    /// The day of the parts' verdicts, where they were gated.
    #[serde(default)]
    pub today: Option<Date>,
}

/// What makes a bundle a part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PartOf {
    /// Which part, from 1.
    pub index: u64,
    /// Of how many.
    pub of: u64,
    /// Every conversation of the run, in its order.
    pub conversations: Vec<Conversation>,
    /// Scenarios of the whole run.
    pub scenarios: Vec<Scenario>,
}
