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
    /// What the seconds of an audit of the low-precision path went into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<WallParts>,
}

/// Wall times of an audit of the low-precision path by what they went into, seconds; no second is in two of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WallParts {
    /// Reading and hashing the checkpoint.
    #[serde(with = "json::number")]
    pub open: f64,
    /// What each patch does, on an input made for the purpose.
    #[serde(with = "json::number")]
    pub probes: f64,
    /// Golden on its own streams and on those of the candidates.
    #[serde(with = "json::number")]
    pub golden: f64,
    /// Golden with the noise that tolerances are derived from.
    #[serde(with = "json::number")]
    pub noise: f64,
    /// Reading and decoding the candidates' weights.
    #[serde(with = "json::number")]
    pub weights: f64,
    /// The candidates' other work.
    #[serde(with = "json::number")]
    pub contracts: f64,
    /// Comparing, and keeping what was found.
    #[serde(with = "json::number")]
    pub comparing: f64,
    /// A second look at what failed.
    #[serde(with = "json::number")]
    pub second_look: f64,
    /// Anything else.
    #[serde(with = "json::number")]
    pub rest: f64,
}

impl WallParts {
    /// Each part with its name, in the order of a run.
    pub fn named(&self) -> [(&'static str, f64); 9] {
        [
            ("opening the model", self.open),
            ("probing the patches", self.probes),
            ("golden", self.golden),
            ("its noise lanes", self.noise),
            ("contracts' weights", self.weights),
            ("contracts", self.contracts),
            ("comparing", self.comparing),
            ("second look", self.second_look),
            ("rest", self.rest),
        ]
    }
}

impl Walls {
    /// Adds another run's times. Parts are told where both tell them.
    pub(crate) fn add(&mut self, other: &Self) {
        self.total += other.total;
        self.golden += other.golden;
        self.candidate += other.candidate;
        self.diff += other.diff;
        self.parts = self.parts.take().zip(other.parts.as_ref()).map(|(a, b)| WallParts {
            open: a.open + b.open,
            probes: a.probes + b.probes,
            golden: a.golden + b.golden,
            noise: a.noise + b.noise,
            weights: a.weights + b.weights,
            contracts: a.contracts + b.contracts,
            comparing: a.comparing + b.comparing,
            second_look: a.second_look + b.second_look,
            rest: a.rest + b.rest,
        });
    }
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
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
    /// Bytes of streams between layers that waited in a temporary file.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spilled_bytes: u64,
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
