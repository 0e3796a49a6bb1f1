//! `manifest.json`: who made the trace, of which model, for which ids, in which steps.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use karat_model::files::json_object;
use karat_model::{Error, Result};
use karat_seam::{Phase, Requests, Sequence};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::key::escape;

/// Value of `format`.
pub const FORMAT: &str = "karat-trace/1";
/// Name of the file.
pub const FILE: &str = "manifest.json";
/// Kinds of steps that compute rows.
const COMPUTES: [&str; 2] = ["prefill", "decode"];
/// Kinds of steps that don't: rows given up, thrown out, moved to another engine, taken from a prefix cache.
const HAPPENS: [&str; 4] = ["abort", "evict", "transfer", "hit"];
/// Largest manifest that is read: ten million ids fit.
pub(crate) const LIMIT: usize = 128 << 20;

/// The manifest as it is on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// `karat-trace/1`.
    pub format: String,
    /// Name and version of what wrote it.
    #[serde(default)]
    pub producer: String,
    /// Which model.
    #[serde(default)]
    pub model: ModelId,
    /// How decode steps were run.
    #[serde(default)]
    pub mode: Mode,
    /// Ids by sequence.
    pub sequences: Vec<SequenceEntry>,
    /// How the sequences were computed; a sequence without an entry was one prefill.
    #[serde(default)]
    pub history: Vec<History>,
    /// The safetensors files, plain names in the trace's folder.
    pub files: Vec<String>,
}

/// Hashes of the model; `None` where the producer doesn't know.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelId {
    /// sha256 of config.json, 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_sha256: Option<String>,
    /// sha256 over all tensors as `Checkpoint::weights_sha256` takes it, 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights_sha256: Option<String>,
}

impl ModelId {
    pub(crate) fn check(&self) -> Result<()> {
        for (field, hash) in [("config_sha256", &self.config_sha256), ("weights_sha256", &self.weights_sha256)] {
            if let Some(hash) = hash
                && parse_hash(hash).is_none()
            {
                return Err(bad("not a sha256").at(format!("model.{field}")).expected("64 hex digits").found(hash));
            }
        }
        Ok(())
    }
}

/// How decode steps were run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum Mode {
    /// Kernel by kernel.
    Eager,
    /// A captured graph, replayed.
    Graph,
    /// Not said.
    #[default]
    Unknown,
}

impl TryFrom<String> for Mode {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        match text.as_str() {
            "eager" => Ok(Self::Eager),
            "graph" => Ok(Self::Graph),
            "unknown" => Ok(Self::Unknown),
            _ => Err(format!("mode `{text}`, expected eager, graph or unknown")),
        }
    }
}

/// One sequence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceEntry {
    /// Its id: unique, not empty, otherwise any text.
    pub id: String,
    /// Token ids, position 0 first.
    pub input_ids: Vec<u32>,
}

/// Steps of one sequence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// Sequence id.
    pub sequence: String,
    /// In the order in which they ran.
    pub steps: Vec<Step>,
}

/// One step: positions `start..end`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// `prefill` or `decode` for computed rows; `abort`, `evict`, `transfer` or `hit` for what happened to them.
    pub kind: String,
    /// First position.
    pub start: u32,
    /// One past the last position.
    pub end: u32,
}

impl Manifest {
    /// Reads and checks a manifest. Errors name `manifest.json` and the field.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let object = json_object(FILE, bytes, LIMIT)?;
        Self::from_object(object).map_err(|e| e.at(FILE))
    }

    fn from_object(object: Map<String, Value>) -> Result<Self> {
        match object.get("format") {
            Some(Value::String(format)) if format == FORMAT => {}
            Some(other) => return Err(bad("unknown trace format").expected(FORMAT).found(other)),
            None => return Err(bad("not a trace manifest").expected(format!("\"format\": \"{FORMAT}\""))),
        }
        let manifest: Self = serde_json::from_value(Value::Object(object))
            .map_err(|e| bad("manifest doesn't fit the format").found(e))?;
        manifest.check()?;
        Ok(manifest)
    }

    /// The text to write.
    pub fn text(&self) -> String {
        // A struct of strings, numbers and lists has no key that JSON can't hold.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// What the client did: each sequence as one prompt (phases come from the history, see [`Manifest::phase_of`]).
    pub fn requests(&self) -> Requests {
        let sequence = |s: &SequenceEntry| Sequence::prompt(s.id.clone(), s.input_ids.clone());
        Requests { seqs: self.sequences.iter().map(sequence).collect() }
    }

    /// Phase of a row: that of the last step that computed its position; prefill without a history.
    pub fn phase_of(&self, seq: u32, pos: u32) -> Phase {
        let Some(sequence) = self.sequences.get(seq as usize) else { return Phase::Prefill };
        let steps = self.history.iter().filter(|h| h.sequence == sequence.id).flat_map(|h| &h.steps);
        let mut computed = steps.filter(|s| (s.start..s.end).contains(&pos) && COMPUTES.contains(&&*s.kind));
        match computed.next_back() {
            Some(step) if step.kind == "decode" => Phase::Decode,
            _ => Phase::Prefill,
        }
    }

    /// Checks everything that one field says about another. Errors name the field.
    pub fn check(&self) -> Result<()> {
        self.check_sequences()?;
        self.check_history()?;
        self.check_files()?;
        self.model.check()
    }

    pub(crate) fn check_sequences(&self) -> Result<()> {
        if self.sequences.is_empty() {
            return Err(bad("trace holds no sequence").at("sequences").expected("at least one"));
        }
        let mut ids = BTreeSet::new();
        for s in &self.sequences {
            let at = || format!("sequence {:?}", s.id);
            if escape(&s.id).is_none() {
                return Err(bad("sequence id is empty").at("sequences"));
            }
            if !ids.insert(&s.id) {
                return Err(bad("two sequences have one id").at(at()));
            }
            if s.input_ids.is_empty() {
                return Err(bad("empty sequence").at(at()).expected("at least one token id"));
            }
            if u32::try_from(s.input_ids.len()).is_err() {
                return Err(bad("sequence is too long").at(at()).found(s.input_ids.len()));
            }
        }
        Ok(())
    }

    pub(crate) fn check_history(&self) -> Result<()> {
        let mut seen = BTreeSet::new();
        for h in &self.history {
            let at = || format!("history of {:?}", h.sequence);
            let Some(sequence) = self.sequences.iter().find(|s| s.id == h.sequence) else {
                return Err(bad("history of a sequence that the trace doesn't list").at(at()));
            };
            if !seen.insert(&h.sequence) {
                return Err(bad("two histories of one sequence").at(at()));
            }
            if let Some(step) = h.steps.iter().find(|s| !COMPUTES.contains(&&*s.kind) && !HAPPENS.contains(&&*s.kind)) {
                return Err(bad("unknown kind of step")
                    .at(at())
                    .expected(format!("{}, {}", COMPUTES.join(", "), HAPPENS.join(", ")))
                    .found(format!("{:?}", step.kind)));
            }
            let len = sequence.input_ids.len() as u32;
            if let Some(step) = h.steps.iter().find(|s| s.start > s.end || s.end > len) {
                return Err(bad("step is outside the sequence")
                    .at(at())
                    .expected(format!("positions within 0..{len}"))
                    .found(format!("{} {}..{}", step.kind, step.start, step.end)));
            }
        }
        Ok(())
    }

    fn check_files(&self) -> Result<()> {
        if self.files.is_empty() {
            return Err(bad("trace lists no file").at("files").expected("at least one"));
        }
        let mut seen = BTreeSet::new();
        for name in &self.files {
            let plain = !name.contains(['/', '\\', '\0', ':']) && !matches!(&**name, "" | "." | "..");
            if !plain || !name.ends_with(".safetensors") {
                return Err(bad("not the name of a file in the trace's folder")
                    .at("files")
                    .expected("a plain name that ends in .safetensors")
                    .found(format!("{name:?}")));
            }
            if !seen.insert(name) {
                return Err(bad("file is listed twice").at("files").found(format!("{name:?}")));
            }
        }
        Ok(())
    }
}

/// 32 bytes of 64 hex digits.
pub(crate) fn parse_hash(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

/// 64 hex digits of 32 bytes.
pub(crate) fn hash_text(hash: [u8; 32]) -> String {
    hash.iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bad(what: &str) -> Error {
    Error::input(what)
}
