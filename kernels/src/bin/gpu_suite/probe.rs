//! The part `probe`: how this GPU's mma.sync accumulates. Answers to questions, the model that they speak for, and that model
//! against the device on many operands. An answer that nothing explains is kept and told.

use std::path::PathBuf;
use std::time::Instant;

use karat_kernels::cuda::{Device, Loader, MmaProbe};
use karat_kernels::evidence::Place;
use karat_kernels::list::PROBE;
use karat_kernels::mma::{Form, FormEvidence, MmaEvidence, compare, digest, find};
use karat_kernels::pack::Pack;
use karat_model::{Error, Result};

/// What the part is given.
pub(crate) struct Part {
    pub(crate) pack: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) date: String,
}

/// Tiles of each kind of operands: 8 kinds, 192 outputs for each (128 of single instructions, half as many of chains).
const TILES: usize = 1024;

/// Runs it; true if the model that is declared for the chip is what was found, to the bit.
pub(crate) fn run(it: &Part) -> Result<bool> {
    let start = Instant::now();
    let device = Device::open()?;
    println!("{}", device.describe());
    let loader = Loader::new(Some(Pack::open(&it.pack)?), None, None)?;
    let loaded = loader.load(&device, PROBE)?;
    let probe = MmaProbe::new(&device, &loaded)?;
    let place = Place {
        name: device.name.clone(),
        arch: device.arch().to_string(),
        driver: device.driver,
        processors: device.processors,
    };
    let mut evidence = MmaEvidence {
        format: 1,
        date: it.date.clone(),
        device: place,
        images: [(PROBE.to_string(), digest()?)].into(),
        seconds: [0.0; 2],
        accumulation: Vec::new(),
    };
    for form in Form::ALL {
        let asked = Instant::now();
        let found = find(&probe, form)?;
        evidence.seconds[0] += asked.elapsed().as_secs_f64();
        println!("== {}\n{}", form.name(), found.model.toml());
        found.unexplained.iter().for_each(|what| println!("UNEXPLAINED: {what}"));
        evidence.accumulation.push(FormEvidence { found, compared: Vec::new() });
    }
    // Written before the comparison: whatever becomes of that, this is known.
    write(it, &evidence)?;
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for form in &mut evidence.accumulation {
        form.compared = compare(&probe, &form.found.model, TILES, threads)?;
        for class in &form.compared {
            let (name, n, apart) = (form.found.model.form.name(), class.compared, class.different);
            println!("{name:<5} {:<36} x{} {n:>8} outputs, {apart:>8} differ", class.name, class.chain);
            for first in class.first.iter().take(2) {
                println!(
                    "  c {} device {} model {}\n  a {}\n  b {}",
                    first.c, first.device, first.model, first.a, first.b
                );
            }
        }
    }
    evidence.seconds[1] = start.elapsed().as_secs_f64();
    write(it, &evidence)?;
    let faults = evidence.faults()?;
    faults.iter().for_each(|fault| println!("FAULT: {fault}"));
    let (n, apart) =
        evidence.accumulation.iter().map(FormEvidence::outputs).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    let [asked, all] = evidence.seconds;
    println!("probe: {n} outputs compared, {apart} differ; {} faults; {asked:.3} s of {all:.1} s asking", faults.len());
    Ok(faults.is_empty())
}

fn write(it: &Part, evidence: &MmaEvidence) -> Result<()> {
    let text = serde_json::to_string_pretty(evidence)
        .map_err(|e| Error::input(format!("the evidence cannot be written: {e}")))?;
    std::fs::write(&it.out, text + "\n")
        .map_err(|e| Error::input(format!("the evidence cannot be written: {e}")).at(it.out.display()))
}
