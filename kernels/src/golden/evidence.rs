//! What is known of golden on a GPU: one file a device under `evidence/golden/`, and what it allows to say.

use std::collections::BTreeMap;
use std::path::Path;

use karat_model::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{Compared, digests};
use crate::evidence::Place;

/// Files that this program knows.
const KNOWN: &[&str] = &[include_str!("../../evidence/golden/nvidia-h200.json")];

/// One run of the suite's part `golden`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoldenEvidence {
    /// 1.
    pub format: u32,
    /// Day of the run.
    pub date: String,
    /// Where it ran.
    pub device: Place,
    /// Golden's images and the digests of their sources, options and compiler.
    pub images: BTreeMap<String, String>,
    /// Model, and hash of its weights.
    pub model: String,
    /// Tokens of the run, and how many of them the session took in one piece.
    pub tokens: [u64; 2],
    /// Bits of the device against this processor's.
    pub compared: Compared,
    /// The default audit with golden on either: each file of the bundle, and whether its bytes are equal.
    pub audit: Vec<SameFile>,
    /// Seconds of that audit with golden here, and there.
    pub audit_seconds: [f64; 2],
    /// What must be refused with one message.
    pub refusals: Vec<Refusal>,
}

/// A file of two bundles.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SameFile {
    /// Name.
    pub file: String,
    /// Bytes.
    pub bytes: u64,
    /// Whether both bundles have the same ones.
    pub same: bool,
}

/// A run that must end with one message and this exit code.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// What was wrong.
    pub what: String,
    /// Exit code that it must have.
    pub expected: i32,
    /// Exit code that it had.
    pub found: i32,
    /// What it said.
    pub message: String,
}

impl GoldenEvidence {
    /// Parses a file's text.
    ///
    /// # Errors
    /// It is no evidence of this format.
    pub fn parse(text: &str) -> Result<Self> {
        let it: Self =
            serde_json::from_str(text).map_err(|e| Error::input(format!("is no evidence on golden: {e}")))?;
        if it.format != 1 {
            return Err(Error::input("is evidence on golden of another format").expected(1).found(it.format));
        }
        Ok(it)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Unreadable, or no evidence of this format.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::input(format!("evidence cannot be read: {e}")).at(path.display()))?;
        Self::parse(&text).map_err(|e| e.at(path.display()))
    }

    /// Values that were compared, and how many of them differ.
    pub fn values(&self) -> (u64, u64) {
        self.compared.rows.iter().fold((0, 0), |(n, apart), row| (n + row.values, apart + row.differing))
    }

    /// Everything that keeps it from saying that golden has the same bits there.
    ///
    /// # Errors
    /// The committed list is broken.
    pub fn faults(&self) -> Result<Vec<String>> {
        let mut out = Vec::new();
        for (name, wanted) in digests()? {
            if self.images.get(&name) != Some(&wanted) {
                out.push(format!("{name}: its source, options or compiler changed since the run"));
            }
        }
        if self.compared.rows.is_empty() {
            out.push("nothing was compared".to_string());
        }
        for row in self.compared.rows.iter().filter(|row| row.differing > 0) {
            let (n, of, ulp) = (row.differing, row.values, row.worst_ulp);
            out.push(format!("{} {}: {n} of {of} values differ, by {ulp} steps at most", row.what, row.name));
        }
        if self.audit.is_empty() {
            out.push("no audit was compared".to_string());
        }
        out.extend(self.audit.iter().filter(|f| !f.same).map(|f| format!("audit: {} differs", f.file)));
        for it in self.refusals.iter().filter(|r| r.expected != r.found) {
            out.push(format!("{}: exit code {}, expected {}: {}", it.what, it.found, it.expected, it.message));
        }
        Ok(out)
    }
}

/// One sentence for people on golden computed on a chip.
pub fn standing(arch: &str) -> String {
    let all = KNOWN.iter().filter_map(|text| GoldenEvidence::parse(text).ok());
    let good = |it: &GoldenEvidence| it.device.arch == arch && it.faults().is_ok_and(|faults| faults.is_empty());
    match all.into_iter().find(good) {
        Some(it) => {
            let (device, date, n) = (&it.device.name, &it.date, it.values().0);
            format!(
                "golden was computed on the GPU: these kernels gave a CPU's bits on {device}, {date}, all {n} values"
            )
        }
        None => format!("golden was computed on the GPU: its bits on {arch} were never compared with a CPU's"),
    }
}
