//! Speed beside error: what an evidence file says of each kernel at each shape, next to its peers and the device's own ceilings.
//!
//! What an error bought is told twice: against the quickest peer of the same run, and against the kernel's own variant that errs
//! least at that shape (the same operation, the same tiles where they fit), which is what the rounding alone bought.

use std::collections::BTreeMap;

use crate::evidence::{Evidence, SpeedRow};

/// A kernel at a shape.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchRow {
    /// Image.
    pub image: String,
    /// The speed patch that it computes, with options; none for golden's GEMM.
    pub patch: Option<&'static str>,
    /// `mhc`, `mla`, `index`, `moe`, `compress`, `gemm`.
    pub operation: String,
    /// Shape in words, without what differs between images (splits).
    pub shape: String,
    /// Microseconds: the mean of both measurements of the run, before and after the peers.
    pub us: f64,
    /// How far the two measurements are apart, of their mean.
    pub drift: f64,
    /// Peers of the same run: name, microseconds, ours as a multiple of their speed.
    pub peers: Vec<(String, f64, f64)>,
    /// The naive f32 counterpart at this shape, where the run looked at it.
    pub naive: Option<Naive>,
    /// Of the run's copy rate.
    pub of_copy: Option<f64>,
    /// Of the run's mma.sync rate.
    pub of_mma: Option<f64>,
    /// Largest rel-L2 of the image's result against f64 over the run's cases.
    pub error: Option<f64>,
    /// The same of the naive f32 counterpart.
    pub naive_error: Option<f64>,
    /// The variant that errs least at this shape, if that is another one: image, how many times as fast this one is, its error.
    pub exact: Option<(String, f64, f64)>,
}

/// A naive f32 counterpart at a shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Naive {
    /// Image.
    pub image: String,
    /// Microseconds, and ours as a multiple of its speed; or why it was not timed.
    pub timed: Result<(f64, f64), String>,
}

impl BenchRow {
    /// Microseconds of the naive counterpart and our multiple of its speed.
    pub fn naive(&self) -> Option<(f64, f64)> {
        self.naive.as_ref()?.timed.as_ref().ok().copied()
    }

    /// The quickest peer and our multiple of its speed.
    pub fn quickest(&self) -> Option<&(String, f64, f64)> {
        self.peers.iter().min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// How many times as fast as the quickest peer, for each 1e-3 of error: what the error bought. None without either, and where
    /// no error is known to be made.
    pub fn bought(&self) -> Option<f64> {
        let (peer, error) = (self.quickest()?, self.error.filter(|e| *e > 0.0)?);
        Some(peer.2 / (error * 1e3))
    }
}

/// The patch that an image computes.
pub fn patch_of(image: &str) -> Option<&'static str> {
    let is_bf16 = image.ends_with("-bf16");
    Some(match image.split('-').next()? {
        "mhc" if image.starts_with("mhc-1") => "bf16-mhc",
        "mhc" if image.starts_with("mhc-2") => "exact-split-mhc:terms=2",
        "mhc" => "exact-split-mhc:terms=3",
        "mla" if is_bf16 => "mma-sparse-mla:partials=bf16",
        "mla" => "mma-sparse-mla",
        "index" if is_bf16 => "fp8-indexer:product=bf16",
        "index" | "select" => "fp8-indexer",
        "moe" if image.starts_with("moe-nv") => "nvfp4-moe",
        "moe" => "mxfp4-moe",
        "compress" => "bf16-gemm",
        _ => return None,
    })
}

/// Result by which an operation is judged.
fn result_of(operation: &str) -> &'static str {
    match operation {
        "mhc" => "mixes",
        "mla" => "out",
        "index" => "logits",
        "moe" => "sum",
        "compress" => "entries",
        _ => "c",
    }
}

/// A shape without words that depend on the image or on the seed.
fn shape(words: &str) -> String {
    let own = |part: &&str| !part.ends_with(" splits") && !part.ends_with(" experts used");
    words.split(", ").filter(own).collect::<Vec<_>>().join(", ")
}

/// Rows of an evidence file, those of one operation and shape together, in its order.
pub fn table(evidence: &Evidence) -> Vec<BenchRow> {
    let mut rows: Vec<BenchRow> = evidence.speed.iter().map(|row| of(evidence, row)).collect();
    let mut order: Vec<(String, String)> = Vec::new();
    for row in &rows {
        let key = (row.operation.clone(), row.shape.clone());
        if !order.contains(&key) {
            order.push(key);
        }
    }
    rows.sort_by_key(|row| order.iter().position(|(op, shape)| *op == row.operation && *shape == row.shape));
    let mut least: BTreeMap<(String, String), (String, f64, f64)> = BTreeMap::new();
    for row in &rows {
        let (Some(error), true) = (row.error, row.image != "select") else { continue };
        let key = (row.operation.clone(), row.shape.clone());
        let better = least.get(&key).is_none_or(|(_, us, e)| error < *e || (error == *e && row.us < *us));
        if better {
            least.insert(key, (row.image.clone(), row.us, error));
        }
    }
    for row in &mut rows {
        let best = least.get(&(row.operation.clone(), row.shape.clone()));
        let other = best.filter(|(image, _, e)| *image != row.image && row.error.is_some_and(|own| own > *e));
        row.exact = other.map(|(image, us, error)| (image.clone(), us / row.us, *error));
    }
    rows
}

fn of(evidence: &Evidence, row: &SpeedRow) -> BenchRow {
    let us = if row.us_again.is_finite() { f64::midpoint(row.us, row.us_again) } else { row.us };
    let ceiling = |name: &str| evidence.ceilings.get(name).copied().filter(|c| *c > 0.0);
    let correct = evidence.correctness.iter().find(|c| c.image == row.image && c.quantity == result_of(&row.operation));
    let peers = row.peers.iter().map(|(name, theirs)| (name.clone(), *theirs, theirs / us)).collect();
    BenchRow {
        image: row.image.clone(),
        patch: patch_of(&row.image),
        operation: row.operation.clone(),
        shape: shape(&row.shape),
        us,
        drift: if row.us_again.is_finite() { (row.us_again - row.us).abs() / us } else { 0.0 },
        peers,
        naive: row.naive.as_ref().map(|naive| Naive {
            image: naive.image.clone(),
            timed: naive.mean().map(|theirs| (theirs, theirs / us)).ok_or_else(|| {
                naive.skipped.clone().unwrap_or_else(|| "the file does not say why it was not timed".to_string())
            }),
        }),
        of_copy: ceiling("copy_tb_s").map(|c| row.tb_s * row.us / us / c),
        of_mma: ceiling("mma_tflop_s").map(|c| row.tflop_s * row.us / us / c),
        error: correct.map(|c| c.worst),
        naive_error: correct.map(|c| c.naive),
        exact: None,
    }
}

#[cfg(test)]
mod tests;
