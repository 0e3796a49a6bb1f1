//! What was measured, where, with which sources: one file a device under `kernels/evidence/`. A file whose sources have
//! changed since is no evidence any more, and [`stale`] says so.

use std::collections::BTreeMap;
use std::path::Path;

use karat_model::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::check::Resources;
use crate::list::{List, PROBE};
use crate::source::digest;

/// One run of the suite on one device.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// 1.
    pub format: u32,
    /// Day of the run.
    pub date: String,
    /// Where it ran.
    pub device: Place,
    /// What the peers ran in: versions by name; empty where there were none.
    pub peers: BTreeMap<String, String>,
    /// Rates of the device in the same run: `copy_tb_s` (read plus written), `mma_tflop_s` (bf16, f32 sums).
    pub ceilings: BTreeMap<String, f64>,
    /// Every image of the list.
    pub images: Vec<ImageRow>,
    /// Correctness, one row an image and quantity.
    pub correctness: Vec<CorrectnessRow>,
    /// Speed, one row an image and shape.
    pub speed: Vec<SpeedRow>,
}

/// A device.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// As the driver names it.
    pub name: String,
    /// Chip of its images.
    pub arch: String,
    /// Version of the driver's API.
    pub driver: i32,
    /// Multiprocessors.
    pub processors: u32,
}

/// An image for a chip: on the device of the run it was measured; for any other chip it was compiled and looked at, no more.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageRow {
    /// Name in the list.
    pub image: String,
    /// Chip.
    pub arch: String,
    /// `measured`, or `compiled` (never run).
    pub state: String,
    /// Digest of source, options and compiler.
    pub digest: String,
    /// Sha256 of the compiled bytes.
    pub sha256: String,
    /// From the assembler.
    pub resources: Vec<Resources>,
    /// Tensor-core, local-memory and atomic instructions by kernel; empty where no disassembler was there.
    pub opcodes: BTreeMap<String, BTreeMap<String, u32>>,
}

/// Largest error of an image over its cases.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorrectnessRow {
    /// Image.
    pub image: String,
    /// Which output.
    pub quantity: String,
    /// Cases, each with its own seed and shape.
    pub cases: u32,
    /// Cases that were computed on the CPU in f64 as well.
    pub cpu_cases: u32,
    /// Largest relative L2 error against the naive counterpart with f64 sums on the device, and f64 on the CPU.
    pub worst: f64,
    /// Largest relative L2 error of the naive counterpart with f32 sums, same cases.
    pub naive: f64,
    /// Bound that `worst` was held to.
    pub bound: f64,
    /// Outputs that were not finite or never written.
    pub bad: u64,
    /// Shape and seed of the worst case.
    pub worst_case: String,
}

/// Speed of an image at a shape.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeedRow {
    /// Image.
    pub image: String,
    /// Operation: `mhc`, `mla`, `gemm`.
    pub operation: String,
    /// Shape in words.
    pub shape: String,
    /// Microseconds an execution, median of graph replays with rotated inputs.
    pub us: f64,
    /// The same, measured a second time after the peers.
    pub us_again: f64,
    /// Bytes that must move, over the time, in TB/s.
    pub tb_s: f64,
    /// Operations of one pass (a multiply and an add each; a product of three terms counts once), over the time, in TFLOP/s.
    pub tflop_s: f64,
    /// Peers' microseconds by name, same shape, same run, between our two.
    pub peers: BTreeMap<String, f64>,
    /// The naive f32 counterpart at the same shape; none in files of runs that didn't look at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub naive: Option<NaiveSpeed>,
}

/// Speed of a naive f32 counterpart: one thread an output, measured after each of our two measurements.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NaiveSpeed {
    /// Image.
    pub image: String,
    /// Microseconds an execution: median of graph replays, as many as fit into a bound on its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub us: Option<f64>,
    /// The same, measured a second time after the peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub us_again: Option<f64>,
    /// Executions behind the first of them.
    #[serde(default)]
    pub executions: u64,
    /// Why it wasn't timed at this shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

impl NaiveSpeed {
    /// Nothing measured yet.
    pub fn of(image: &str) -> Self {
        Self { image: image.to_string(), ..Self::default() }
    }

    /// The mean of both measurements, microseconds.
    pub fn mean(&self) -> Option<f64> {
        Some(self.us_again.map_or(self.us?, |again| f64::midpoint(self.us.unwrap_or(again), again)))
    }
}

impl Evidence {
    /// Reads a file.
    ///
    /// # Errors
    /// Unreadable, or no evidence of this format.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::input(format!("evidence cannot be read: {e}")).at(path.display()))?;
        let it: Self =
            serde_json::from_str(&text).map_err(|e| Error::input(format!("is no evidence: {e}")).at(path.display()))?;
        if it.format != 1 {
            return Err(Error::input("is evidence of another format").at(path.display()).expected(1).found(it.format));
        }
        Ok(it)
    }

    /// Writes a file, under another name until it is whole.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let failed = |e: String| Error::input(format!("the evidence cannot be written: {e}")).at(path.display());
        let text = serde_json::to_string_pretty(self).map_err(|e| failed(e.to_string()))? + "\n";
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, path)).map_err(|e| failed(e.to_string()))
    }

    /// True if every row holds its bound and no output was bad.
    pub fn correct(&self) -> bool {
        !self.correctness.is_empty()
            && self.correctness.iter().all(|row| row.bad == 0 && row.cases > 0 && row.worst <= row.bound)
    }
}

/// Everything that keeps `evidence` from speaking for the kernels of `list`.
///
/// # Errors
/// A listed source isn't in this program.
pub fn stale(list: &List, evidence: &Evidence) -> Result<Vec<String>> {
    let mut out = Vec::new();
    // Golden's images, the probe, and those that another part measures, have evidence of their own.
    for image in list.images.iter().filter(|image| !image.golden && image.name != PROBE && image.part.is_none()) {
        let wanted = digest(image, &list.compiler)?;
        for arch in image.arches() {
            let row = evidence.images.iter().find(|row| row.image == image.name && row.arch == arch);
            let Some(row) = row else {
                out.push(format!("{} for {arch}: no evidence", image.name));
                continue;
            };
            if row.digest != wanted {
                out.push(format!("{} for {arch}: its source, options or compiler changed since the run", image.name));
            }
            let measured = arch == evidence.device.arch;
            let state = if measured { "measured" } else { "compiled" };
            if row.state != state {
                out.push(format!("{} for {arch}: is called {}, should be {state}", image.name, row.state));
            }
            let optimized = image.source.starts_with("optimized/") && image.name != "ceiling";
            if measured && optimized {
                if !evidence.correctness.iter().any(|c| c.image == image.name) {
                    out.push(format!("{}: nothing says that it is correct", image.name));
                }
                let is_taken = arch != "sm_90a" || !crate::choice::SMALL.contains(&image.name.as_str());
                if is_taken && !evidence.speed.iter().any(|s| s.image == image.name) {
                    out.push(format!("{}: its speed was not measured", image.name));
                }
            }
        }
    }
    for row in &evidence.images {
        if !list.images.iter().any(|image| image.name == row.image) {
            out.push(format!("{}: is in the evidence and no longer in the list", row.image));
        }
    }
    for row in &evidence.speed {
        let Some(naive) = &row.naive else { continue };
        let place = format!("{} at {}", naive.image, row.shape);
        if !list
            .images
            .iter()
            .any(|image| image.name == naive.image && image.source.starts_with("reference/") && !image.golden)
        {
            out.push(format!("{place}: is no naive counterpart of the list"));
        }
        let timed = [naive.us, naive.us_again].map(|us| us.is_some_and(|us| us.is_finite() && us > 0.0));
        if timed != [naive.skipped.is_none(); 2] || (naive.executions > 0) != timed[0] {
            out.push(format!("{place}: is neither timed twice nor skipped with a reason"));
        }
    }
    for row in evidence.correctness.iter().filter(|row| row.bad > 0 || row.cases == 0 || row.worst > row.bound) {
        out.push(format!(
            "{} {}: error {:.1e} over {:.1e}, {} bad",
            row.image, row.quantity, row.worst, row.bound, row.bad
        ));
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
