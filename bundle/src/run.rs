//! `run.json`: provenance.

mod partition;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Finding, Policy, json};

pub use partition::{Conversation, Part, PartOf, Partition};

/// Which columns the tables have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// [`crate::SCHEMA_VERSION`] of the writer.
    pub version: u32,
    /// [`crate::schema_hash`] of the writer.
    pub hash: String,
}

/// The model that was audited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Folder or label.
    pub label: String,
    /// sha256 of config.json.
    pub config_sha256: String,
    /// sha256 over all tensors.
    pub weights_sha256: String,
    /// True when the weights are seeded noise: the run says nothing about a trained model.
    pub random_weights: bool,
}

/// A scenario or token file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name in the tables.
    pub name: String,
    /// sha256 over its token ids (little-endian u32), sequence by sequence.
    pub ids_sha256: String,
    /// Sequences.
    pub sequences: u64,
    /// Rows of a cold run.
    pub rows: u64,
}

/// What was compared with golden.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Name of the candidate path.
    pub name: String,
    /// Stock profile, or what a trace claims to be.
    pub claims: String,
    /// Patch sets in table order.
    pub patch_sets: Vec<String>,
}

/// A run that ended when its sequential test of recall had decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stopped {
    /// Conversations that ran.
    pub after: u64,
    /// Conversations that were asked for.
    pub of: u64,
}

/// A speed patch: asked for, and what was seen of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchUse {
    /// Patch id.
    pub patch: String,
    /// True when the command asked for it.
    pub requested: bool,
    /// Executions that were counted.
    pub observed_calls: u64,
    /// active, lossless (it ran, and is claimed to change no bit), inert, applied N times, or unknown.
    pub state: String,
}

/// Wall times, seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Walls {
    /// The whole run.
    #[serde(with = "json::number")]
    pub total: f64,
    /// In golden.
    #[serde(with = "json::number")]
    pub golden: f64,
    /// In the candidate.
    #[serde(with = "json::number")]
    pub candidate: f64,
    /// In comparing.
    #[serde(with = "json::number")]
    pub diff: f64,
}

/// What an audit took from its cache, and gave to it. Results are the same with and without.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheUse {
    /// True when there was a cache.
    pub on: bool,
    /// Comparisons of one candidate in one block that came from it.
    pub comparisons: u64,
    /// Comparisons that there were.
    pub comparisons_asked: u64,
    /// Golden blocks that came from it.
    pub golden: u64,
    /// Golden blocks that there were.
    pub golden_asked: u64,
    /// Entries that were damaged, and computed again.
    pub damaged: u64,
    /// Entries that were too large to be kept.
    pub too_large: u64,
    /// Entries that were deleted to make room.
    pub deleted: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// The first thing that went wrong with it; empty when nothing did.
    pub trouble: String,
}

impl CacheUse {
    /// Adds another run's use.
    pub(crate) fn add(&mut self, other: &Self) {
        self.on |= other.on;
        self.comparisons += other.comparisons;
        self.comparisons_asked += other.comparisons_asked;
        self.golden += other.golden;
        self.golden_asked += other.golden_asked;
        self.damaged += other.damaged;
        self.too_large += other.too_large;
        self.deleted += other.deleted;
        self.written_bytes += other.written_bytes;
        if self.trouble.is_empty() {
            self.trouble.clone_from(&other.trouble);
        }
    }
}

/// One csv file as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Rows without the header.
    pub rows: u64,
    /// sha256 of the file.
    pub sha256: String,
}

/// `run.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// `karat-bundle/1`.
    pub format: String,
    /// Which columns the tables have.
    pub schema: Schema,
    /// Program and version.
    pub producer: String,
    /// Arguments as typed.
    pub command: Vec<String>,
    /// The model.
    pub model: Model,
    /// Scenarios.
    pub scenarios: Vec<Scenario>,
    /// The candidate.
    pub candidate: Candidate,
    /// Speed patches.
    pub patches: Vec<PatchUse>,
    /// Where golden and candidate ran.
    pub backend: String,
    /// Device and driver; empty on the CPU.
    pub device: String,
    /// CUDA kernels' hashes; empty on the CPU.
    pub kernels: BTreeMap<String, String>,
    /// Seeds by use.
    pub seeds: BTreeMap<String, u64>,
    /// Threads.
    pub threads: u64,
    /// Wall times.
    pub wall_s: Walls,
    /// What came from the cache.
    #[serde(default)]
    pub cache: CacheUse,
    /// Peak resident memory, bytes; 0 where it is not known.
    pub peak_memory_bytes: u64,
    /// The policy that the verdict was made with.
    pub policy: Policy,
    /// Which parts of a partitioned run this is; nothing for a run that was never parted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<Partition>,
    /// Where a sequential test of recall ended the run early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// What was found out beside the tables and bears on the verdict.
    pub findings: Vec<Finding>,
    /// What could not be judged, and what this run is no evidence for.
    pub notes: Vec<String>,
    /// The csv files: a bundle whose files differ from this is refused.
    pub tables: BTreeMap<String, Table>,
}

impl Run {
    /// True when parts of the run are missing here.
    pub fn is_part(&self) -> bool {
        self.partition.as_ref().is_some_and(|p| (p.parts.len() as u64) < p.of)
    }
}
