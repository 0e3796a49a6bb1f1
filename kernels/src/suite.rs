//! Every kernel on a GPU: correctness against the naive counterparts and f64, speed beside these, the device's own ceilings and
//! PyTorch, into one evidence file. It needs a driver, a pack and, for the peers, Python with torch. `gpu_suite` runs all of it,
//! `karat bench` fewer seeds of it.

mod asked;
mod cases;
mod compare;
mod compressor;
mod exact;
mod gemm;
mod index;
mod mhc;
mod mla;
mod moe;
mod naive;
mod numbers;
mod peers;
mod timing;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use karat_model::Result;

use crate::cuda::{Device, Loader};
use crate::evidence::{CorrectnessRow, Evidence, ImageRow, Place, SpeedRow};
use crate::pack::Pack;
pub use asked::Asked;
pub use compare::comparing;
use peers::Peers;

/// What every part of the suite needs.
pub struct Suite {
    device: Device,
    loader: Loader,
    peers: Peers,
    naive: naive::Counterparts,
    /// What was measured so far.
    pub evidence: Evidence,
    seeds: u64,
}

/// What a part left.
pub struct Part<'a> {
    /// Its name, e.g. `mhc speed`.
    pub name: &'static str,
    /// How long it took.
    pub took: Duration,
    /// Rows that it added.
    pub correctness: &'a [CorrectnessRow],
    /// Rows that it added.
    pub speed: &'a [SpeedRow],
    /// Why it has no result, or not all.
    pub error: Option<String>,
    /// Everything measured so far.
    pub evidence: &'a Evidence,
}

type Run = fn(&mut Suite) -> Result<()>;

/// Parts by name, in the order in which they run.
const PARTS: [(&str, Run); 13] = [
    ("ceilings", timing::ceilings),
    ("index correctness", index::correctness),
    ("moe correctness", moe::correctness),
    ("compressor correctness", compressor::correctness),
    ("mhc correctness", mhc::correctness),
    ("mla correctness", mla::correctness),
    ("gemm correctness", gemm::correctness),
    ("index speed", index::speed),
    ("moe speed", moe::speed),
    ("compressor speed", compressor::speed),
    ("mhc speed", mhc::speed),
    ("mla speed", mla::speed),
    ("gemm speed", gemm::speed),
];

/// Names of the parts.
pub fn part_names() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|(name, _)| *name)
}

impl Suite {
    /// On an open device, with the images of a pack; `peers` is the script that answers for torch.
    ///
    /// # Errors
    /// The pack or the script is not usable.
    pub fn new(device: Device, pack: Pack, peers: Option<&Path>, date: String, seeds: u64) -> Result<Self> {
        let images = rows(&pack, device.arch());
        let loader = Loader::new(Some(pack), None, None)?;
        let mut peers = Peers::start(peers)?;
        let place = Place {
            name: device.name.clone(),
            arch: device.arch().to_string(),
            driver: device.driver,
            processors: device.processors,
        };
        let evidence = Evidence {
            format: 1,
            date,
            device: place,
            peers: peers.versions()?,
            ceilings: BTreeMap::new(),
            images,
            correctness: Vec::new(),
            speed: Vec::new(),
        };
        Ok(Self { device, loader, peers, naive: naive::Counterparts::default(), evidence, seeds })
    }

    /// Runs the parts whose names `wants` admits and shows each; gives the names of those that failed. A part that fails leaves those
    /// before it. Ends early, with the error, when `show` fails.
    ///
    /// # Errors
    /// What `show` says.
    pub fn run(
        &mut self,
        wants: &dyn Fn(&str) -> bool,
        show: &mut dyn FnMut(&Part<'_>) -> Result<()>,
    ) -> Result<Vec<&'static str>> {
        let mut broken = Vec::new();
        for (name, part) in PARTS.into_iter().filter(|(name, _)| wants(name)) {
            let (start, before) =
                (std::time::Instant::now(), (self.evidence.correctness.len(), self.evidence.speed.len()));
            let error = part(self).err().map(|error| error.to_string());
            if error.is_some() {
                broken.push(name);
            }
            let evidence = &self.evidence;
            let (correctness, speed) = (&evidence.correctness[before.0..], &evidence.speed[before.1..]);
            show(&Part { name, took: start.elapsed(), correctness, speed, error, evidence })?;
        }
        Ok(broken)
    }
}

/// What the pack says of its images; opcodes that say something are kept.
fn rows(pack: &Pack, here: &str) -> Vec<ImageRow> {
    let telling = |code: &str| ["HMMA", "QMMA", "LDL", "STL", "RED", "ATOM"].iter().any(|word| code.starts_with(word));
    pack.manifest
        .items
        .iter()
        .map(|item| ImageRow {
            image: item.image.clone(),
            arch: item.arch.clone(),
            state: if item.arch == here { "measured" } else { "compiled" }.to_string(),
            digest: item.digest.clone(),
            sha256: item.sha256.clone(),
            resources: item.resources.clone(),
            opcodes: item
                .opcodes
                .iter()
                .map(|(kernel, codes)| {
                    (kernel.clone(), codes.iter().filter(|(c, _)| telling(c)).map(|(c, n)| (c.clone(), *n)).collect())
                })
                .collect(),
        })
        .collect()
}
