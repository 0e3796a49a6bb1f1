//! The part `compare`: two tensors on the GPU compared there, against the diff engine, and how fast.

use std::path::{Path, PathBuf};

use karat_kernels::cuda::Device;
use karat_kernels::pack::Pack;
use karat_kernels::suite::comparing;
use karat_model::{Error, Result};

/// What the part is given.
pub(crate) struct Part {
    pub(crate) pack: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) date: String,
    pub(crate) peers: Option<PathBuf>,
    pub(crate) seeds: u64,
}

/// Runs it; true if every record is right.
pub(crate) fn run(it: &Part) -> Result<bool> {
    let device = Device::open()?;
    println!("{}", device.describe());
    let pack = Pack::open(&it.pack)?;
    let mut say = |line: String| println!("{line}");
    let evidence = comparing(&device, pack, it.peers.as_deref(), it.date.clone(), it.seeds, &mut say)?;
    write(&it.out, &serde_json::to_string_pretty(&evidence).map_err(|e| failed(&e.to_string()))?)?;
    let faults = evidence.faults()?;
    faults.iter().for_each(|fault| println!("FAULT: {fault}"));
    println!("read rate {:.3} TB/s; {}; {} faults", evidence.read_tb_s, evidence.said(), faults.len());
    Ok(faults.is_empty())
}

fn failed(what: &str) -> Error {
    Error::input(format!("the evidence cannot be written: {what}"))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, format!("{text}\n")).map_err(|e| failed(&e.to_string()).at(path.display()))
}
