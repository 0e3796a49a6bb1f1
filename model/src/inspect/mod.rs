//! `karat model inspect`: what a checkpoint holds, from its config and headers alone.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::Result;
use crate::checkpoint::{Checkpoint, Role, Storage};
use crate::config::LayerKind;

/// A checkpoint in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Folder or label.
    pub label: String,
    /// Every config field, in the order of the spec.
    pub config: Vec<(String, String)>,
    /// Layers by kind, in order of first appearance, with their numbers.
    pub layers: Vec<(String, Vec<usize>)>,
    /// Stored tensors by dtype: count and bytes.
    pub dtypes: BTreeMap<String, (usize, u64)>,
    /// Stored tensors.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Parameters (decoded elements; scales and expert ids don't count), MTP blocks left out.
    pub parameters: u64,
    /// Parameters that one token uses: K of the routed experts, all of the rest.
    pub active_parameters: u64,
    /// Parameters of the MTP blocks.
    pub mtp_parameters: u64,
    /// Shards by name with their bytes.
    pub shards: Vec<(String, u64)>,
    /// Side files that prompts need, and whether they are there.
    pub side_files: Vec<(String, bool)>,
    /// sha256 of config.json.
    pub config_sha256: String,
}

/// Summarises a checkpoint without reading its weights.
///
/// # Errors
/// A side file can't be read.
pub fn inspect(checkpoint: &Checkpoint) -> Result<Summary> {
    let config = checkpoint.config();
    let mut layers: Vec<(String, Vec<usize>)> = Vec::new();
    let kinds = config.layers.iter().chain(&config.mtp);
    for (l, kind) in kinds.enumerate() {
        let name = name(*kind, config.is_hash_layer(l), l >= config.layers.len());
        match layers.iter_mut().find(|(n, _)| *n == name) {
            Some((_, list)) => list.push(l),
            None => layers.push((name, vec![l])),
        }
    }
    let (mut parameters, mut active, mut mtp) = (0, 0, 0);
    for e in checkpoint.inventory() {
        let n = if e.role == Role::Ids { 0 } else { e.elements() as u64 };
        if e.name.starts_with("mtp.") {
            mtp += n;
            continue;
        }
        parameters += n;
        // A layer's routed experts all have the same size, so the first K stand for any K.
        active +=
            match e.role {
                Role::Linear(Storage::Expert) => {
                    if expert_number(&e.name).is_some_and(|n| n < config.num_experts_per_tok) { n } else { 0 }
                }
                _ => n,
            };
    }
    let mut dtypes: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    let mut shards: BTreeMap<String, u64> = BTreeMap::new();
    for (file, dtype, bytes) in checkpoint.stored() {
        let entry = dtypes.entry(dtype).or_default();
        entry.0 += 1;
        entry.1 += bytes;
        *shards.entry(file.to_string()).or_default() += bytes;
    }
    let side_files = ["tokenizer.json", "encoding.json"]
        .into_iter()
        .map(|n| Ok((n.to_string(), checkpoint.side_file(n)?.is_some())))
        .collect::<Result<Vec<_>>>()?;
    Ok(Summary {
        label: checkpoint.label().to_string(),
        config: config.facts().into_iter().map(|(k, v)| (k.to_string(), v)).collect(),
        layers,
        tensors: dtypes.values().map(|d| d.0).sum(),
        bytes: dtypes.values().map(|d| d.1).sum(),
        dtypes,
        parameters,
        active_parameters: active,
        mtp_parameters: mtp,
        shards: shards.into_iter().collect(),
        side_files,
        config_sha256: hex(&checkpoint.config_sha256()),
    })
}

fn name(kind: LayerKind, hash: bool, mtp: bool) -> String {
    let routing = if hash { "hash routing" } else { "scored routing" };
    format!("{}{kind}, {routing}", if mtp { "MTP, " } else { "" })
}

fn expert_number(name: &str) -> Option<usize> {
    name.split_once(".experts.")?.1.split_once('.')?.0.parse().ok()
}

/// Lower-case hexadecimal.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, b| text + &format!("{b:02x}"))
}

/// `0,1,3-5`.
fn ranges(list: &[usize]) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut i = 0;
    while i < list.len() {
        let mut j = i;
        while j + 1 < list.len() && list[j + 1] == list[j] + 1 {
            j += 1;
        }
        out.push(if j > i { format!("{}-{}", list[i], list[j]) } else { list[i].to_string() });
        i = j + 1;
    }
    out.join(",")
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.label)?;
        writeln!(
            f,
            "{} parameters, {} active a token{}",
            self.parameters,
            self.active_parameters,
            if self.mtp_parameters > 0 { format!(", {} in MTP blocks", self.mtp_parameters) } else { String::new() }
        )?;
        writeln!(f, "{} tensors, {} bytes in {} files", self.tensors, self.bytes, self.shards.len())?;
        for (dtype, (count, bytes)) in &self.dtypes {
            writeln!(f, "  {dtype:<8} {count:>6} tensors {bytes:>14} bytes")?;
        }
        writeln!(f, "layers")?;
        for (kind, list) in &self.layers {
            writeln!(f, "  {:>3} {kind}: {}", list.len(), ranges(list))?;
        }
        writeln!(f, "config (sha256 {})", self.config_sha256)?;
        for (key, value) in &self.config {
            writeln!(f, "  {key} {value}")?;
        }
        let files: Vec<String> =
            self.side_files.iter().map(|(n, there)| format!("{n} {}", if *there { "yes" } else { "no" })).collect();
        write!(f, "beside the weights: {}", files.join(", "))
    }
}
