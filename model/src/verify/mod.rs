//! `karat model verify`: is the checkpoint what its config says, down to the last byte?
//!
//! Each stored tensor used exactly once, with the right shape and dtype; no NaN, no infinity, no impossible scale; every
//! expert id in range. And what a loader or a conversion may have got wrong, as far as bytes and statistics show it
//! without a forward pass and without another checkpoint: scales that don't belong to their codes, gate and up
//! exchanged, the order of packed codes, levels unlike those of the other layers, roundings, copies. All findings at
//! once, each with a plausible cause. Values are read once (bytes once more, for copies), rows in parallel, and never
//! more than some rows are held decoded.

mod grid;
mod numbers;
mod peers;
mod same;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use serde::Serialize;

use crate::Result;
pub(crate) use peers::layer;

use crate::checkpoint::store::Store;
use crate::checkpoint::{Check, Finding, Severity, expected_tensors, structure};

/// What `verify` found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Folder or label.
    pub label: String,
    /// Stored tensors.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Tensors and linears that the config asks for.
    pub expected: usize,
    /// Everything worth saying, errors first.
    pub findings: Vec<Finding>,
}

impl Report {
    /// True when nothing is wrong; warnings and notes don't count.
    pub fn ok(&self) -> bool {
        self.count(Severity::Error) == 0
    }

    /// Findings of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|f| f.severity == severity).count()
    }
}

/// Findings of one kind that the text shows; the data holds all.
const SHOWN: usize = 5;

/// Called with (done, all) tensors as the work goes on, from several threads.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Verifies a model folder.
///
/// # Errors
/// Only what keeps the files from being read at all: no config, a damaged header, a missing shard.
pub fn verify(dir: &Path, progress: Progress<'_>) -> Result<Report> {
    Ok(report(&Store::open(dir)?, progress))
}

/// Verifies files held in memory.
///
/// # Errors
/// As [`verify`].
pub fn verify_memory(label: &str, files: BTreeMap<String, Arc<[u8]>>, progress: Progress<'_>) -> Result<Report> {
    Ok(report(&Store::from_memory(label, files)?, progress))
}

fn report(store: &Store, progress: Progress<'_>) -> Report {
    let expected = expected_tensors(&store.config);
    let mut findings = structure::findings(store, &expected);
    let done = AtomicUsize::new(0);
    let mut scans: Vec<scan::Scan> = Vec::with_capacity(expected.len());
    let mut peers = peers::Peers::default();
    // Layer by layer: a layer's columns are compared with each other and then forgotten.
    for block in expected.chunk_by(|a, b| layer(&a.name) == layer(&b.name)) {
        let mut some: Vec<scan::Scan> = block
            .par_iter()
            .map(|e| {
                let scan = scan::tensor(store, e);
                progress(done.fetch_add(1, Ordering::Relaxed) + 1, expected.len());
                scan
            })
            .collect();
        findings.extend(peers.of_layer(&some));
        some.iter_mut().for_each(|scan| scan.numbers = None);
        scans.extend(some);
    }
    findings.extend(peers.levels());
    findings.extend(same::bytes(store));
    findings.extend(scan::gate_and_up(&scans));
    findings.extend(scans.into_iter().flat_map(|s| s.findings));
    // Stable: inside a severity the order stays that of the inventory.
    findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
    Report {
        label: store.label.clone(),
        tensors: store.entries.len(),
        bytes: store.entries.iter().map(|s| s.range.len() as u64).sum(),
        expected: expected.len(),
        findings,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} tensors, {} bytes, {} parts of the model",
            self.label, self.tensors, self.bytes, self.expected
        )?;
        // One cause often spoils thousands of tensors: a few of each kind are enough to read.
        let mut kinds: Vec<(&Finding, usize)> = Vec::new();
        for finding in &self.findings {
            let like = |f: &Finding| (f.severity, f.check, f.error.what.clone());
            let seen = kinds.iter_mut().find(|(first, _)| like(first) == like(finding));
            let count = if let Some((_, count)) = seen {
                *count += 1;
                *count
            } else {
                kinds.push((finding, 1));
                1
            };
            if count <= SHOWN {
                writeln!(f, "{finding}")?;
            }
        }
        for (first, count) in kinds.into_iter().filter(|(_, count)| *count > SHOWN) {
            let Finding { severity, check, error, .. } = first;
            writeln!(f, "{severity} [{check}] {}: {} more of this kind", error.what, count - SHOWN)?;
        }
        let [errors, warnings, notes] = [Severity::Error, Severity::Warning, Severity::Note].map(|s| self.count(s));
        if errors == 0 {
            write!(f, "ok: every tensor used once, all values finite ({warnings} warnings, {notes} notes)")
        } else {
            write!(f, "{errors} errors, {warnings} warnings, {notes} notes")
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "missing",
            Self::Unused => "unused",
            Self::Duplicate => "duplicate",
            Self::Shape => "shape",
            Self::Dtype => "dtype",
            Self::Scale => "scale",
            Self::Nonfinite => "nonfinite",
            Self::Ids => "ids",
            Self::Numbers => "numbers",
            Self::Index => "index",
            Self::Config => "config",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}] {}", self.severity, self.check, self.error)
    }
}
