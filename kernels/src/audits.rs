//! What audits with patches as kernels said where: one file a device and part of the suite under `evidence/audit/`,
//! `evidence/layer/` and `evidence/layer-golden/`, written by `peers/audit_suite.py`.

use std::collections::BTreeMap;
use std::path::Path;

use karat_model::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::list::{List, SKETCH, SPLIT};
use crate::source::{changed, digest};

/// Sources of the kernels that stand for patches.
pub const SOURCES: [&str; 6] = [
    "optimized/mhc.cu",
    "optimized/sparse_mla.cu",
    "optimized/index.cu",
    "optimized/select.cu",
    "optimized/grouped_fp4.cu",
    "optimized/compressor.cu",
];

/// Parts of the suite that are audits.
pub const PARTS: [&str; 3] = ["audit", "layer", "layer-golden"];

/// One run of such a part.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditEvidence {
    /// 1.
    pub format: u32,
    /// One of [`PARTS`].
    pub part: String,
    /// Day of the run.
    pub date: String,
    /// The GPU as its driver names it: `name`, `driver`, `memory`.
    pub device: BTreeMap<String, String>,
    /// Images of the kernels that stand for patches, and of golden, with the digests of their sources, options and compiler.
    pub images: BTreeMap<String, String>,
    /// Cargo profile of the program.
    pub profile: String,
    /// Processor cores.
    pub cores: u32,
    /// Seconds of the whole part.
    pub seconds: f64,
    /// Every audit, in order.
    pub runs: Vec<AuditRun>,
}

/// One audit.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditRun {
    /// In words.
    pub name: String,
    /// Command line.
    pub command: String,
    /// Exit code; -1 where it was ended for its time, none where it was not begun.
    pub exit: Option<i32>,
    /// Why it was not begun.
    pub skipped: Option<String>,
    /// What a run without a bundle said last, each line behind the second at which it came: where one that was ended for its time was.
    pub said: Option<String>,
    /// Wall time.
    pub seconds: f64,
    /// Most resident memory, MiB.
    pub memory_mib: u64,
    /// Whether the weights are seeded noise.
    pub random_weights: bool,
    /// Verdict of the bundle.
    pub verdict: Option<String>,
    /// Its reasons.
    pub reasons: Vec<String>,
    /// Rows that judge a kernel against its contract.
    pub judged_rows: u64,
    /// Values in them.
    pub judged_values: u64,
    /// Rows over their tolerance, of any part; the first forty.
    pub failing: Vec<BTreeMap<String, String>>,
    /// How many there are.
    pub failing_rows: u64,
    /// By tap: the worst row against its contract, differing decisions, the distance from golden.
    pub taps: BTreeMap<String, BTreeMap<String, f64>>,
    /// By tap of stock against golden: rows and values, the largest `total`, `inherited` and `injected` error (rel-L2), and of the row
    /// that is nearest to its tolerance `worst`, `tolerance` and `of_tolerance`. Files of before have none.
    pub stock: BTreeMap<String, BTreeMap<String, f64>>,
    /// State and verdict of each patch.
    pub patches: Vec<BTreeMap<String, String>>,
    /// What the run noted of its kernels.
    pub notes: Vec<String>,
    /// Seconds of golden, candidates and comparing, as the bundle has them.
    pub wall: Option<Value>,
}

impl AuditEvidence {
    /// Parses a file's text.
    ///
    /// # Errors
    /// It is no evidence of this format.
    pub fn parse(text: &str) -> Result<Self> {
        let it: Self =
            serde_json::from_str(text).map_err(|e| Error::input(format!("is no evidence of audits: {e}")))?;
        if it.format != 1 || !PARTS.contains(&it.part.as_str()) {
            let found = format!("format {}, part {}", it.format, it.part);
            return Err(Error::input("is evidence of another kind")
                .expected(format!("format 1, part {}", PARTS.join(" or ")))
                .found(found));
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

    /// Everything that keeps it from speaking for the kernels as they are now. What it says of them may be good or bad.
    ///
    /// # Errors
    /// The committed list is broken.
    pub fn stale(&self) -> Result<Vec<String>> {
        let list = List::read()?;
        let of_patches = |name: &str| list.image(name).is_ok_and(|image| !image.golden);
        let mut out = changed(&self.images, &images()?, of_patches);
        if !self.runs.iter().any(|run| run.judged_rows > 0) {
            out.push("no kernel was judged".to_string());
        }
        Ok(out)
    }

    /// Runs that passed, and the names of all others.
    pub fn passed(&self) -> (usize, Vec<&str>) {
        let (good, bad): (Vec<&AuditRun>, Vec<&AuditRun>) = self.runs.iter().partition(|run| run.exit == Some(0));
        (good.len(), bad.into_iter().map(|run| run.name.as_str()).collect())
    }
}

/// Images that audits may run on a GPU, and the digests of their sources, options and compiler.
///
/// # Errors
/// The committed list is broken.
pub fn images() -> Result<BTreeMap<String, String>> {
    let list = List::read()?;
    // Audits of the suite run on golden's tier of bits.
    let computes = |image: &crate::list::Image| image.golden && ![SKETCH, SPLIT].contains(&image.name.as_str());
    let of_audits = |image: &&crate::list::Image| computes(image) || SOURCES.contains(&image.source.as_str());
    let one = |image: &crate::list::Image| Ok((image.name.clone(), digest(image, &list.compiler)?));
    list.images.iter().filter(of_audits).map(one).collect()
}

#[cfg(test)]
mod tests;
