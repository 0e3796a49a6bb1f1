//! Times golden on a checkpoint: `forward DIR PROMPT.json N [session|cold|bits] [threads] [repetitions]`.
//!
//! `session` keeps the weights decoded between repetitions, `cold` streams them layer by layer through the seam, `bits`
//! prints one hash over every tap of a cold run. PROMPT.json is an array of ids, repeated or cut to N.
#![expect(clippy::print_stdout, reason = "an example is for people")]

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Instant;

use karat_model::Checkpoint;
use karat_reference::{Golden, Mode, Session};
use karat_seam::{DataMut, Lane, NoTaps, Path, Requests, Result, RowId, Sequence, Site, TensorMut, Visitor, Want};
use sha2::{Digest, Sha256};

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let at = |i: usize, default: &str| args.get(i).cloned().unwrap_or_else(|| default.into());
    let checkpoint = Arc::new(Checkpoint::open(FilePath::new(&at(0, ".")))?);
    let prompt: Vec<u32> = serde_json::from_slice(&std::fs::read(at(1, "prompt.json"))?)?;
    let ids: Vec<u32> = prompt.iter().copied().cycle().take(at(2, "512").parse()?).collect();
    let (mode, threads, repetitions) = (at(3, "session"), at(4, "2").parse()?, at(5, "3").parse::<usize>()?);
    let requests = Requests { seqs: vec![Sequence::prompt("a", ids.as_slice())] };
    let golden = Golden::new(checkpoint, requests, Mode::F32, threads)?;
    match mode.as_str() {
        "bits" => {
            let mut bits = Bits::default();
            cold(&golden, &mut bits)?;
            let mut all = Sha256::new();
            for (site, hash) in bits.0 {
                let hash = hash.finalize();
                println!("{site} {}", hash.iter().take(8).map(|b| format!("{b:02x}")).collect::<String>());
                all.update(hash);
            }
            println!("all {}", all.finalize().iter().map(|b| format!("{b:02x}")).collect::<String>());
        }
        "cold" => time(&ids, repetitions, || cold(&golden, &mut NoTaps))?,
        _ => {
            // The first one decodes the experts.
            let mut weights = Session::new(&golden)?;
            weights.extend(&ids, &mut NoTaps)?;
            time(&ids, repetitions, || {
                weights.clear();
                weights.extend(&ids, &mut NoTaps).map(drop)
            })?;
            let start = Instant::now();
            let steps = 32;
            for i in 0..steps {
                weights.extend(&ids[i..=i], &mut NoTaps)?;
            }
            println!("decode step {:.3} ms", start.elapsed().as_secs_f64() * 1e3 / steps as f64);
        }
    }
    Ok(())
}

fn time(ids: &[u32], repetitions: usize, mut run: impl FnMut() -> Result<()>) -> Result<()> {
    for _ in 0..repetitions {
        let start = Instant::now();
        run()?;
        let took = start.elapsed().as_secs_f64();
        println!("{} ids: {took:.4} s, {:.0} tok/s", ids.len(), ids.len() as f64 / took);
    }
    Ok(())
}

fn cold(golden: &Golden, see: &mut dyn Visitor) -> Result<()> {
    let mut x = golden.embed(see)?;
    for l in 0..golden.blocks().layers {
        let layer = golden.layer(l)?;
        let mut lanes = [Lane::new(&x, see)];
        layer.run(&mut lanes)?;
        let [lane] = lanes;
        x = lane.out.expect("a layer fills every lane").streams;
    }
    golden.head(&mut [Lane::new(&x, see)]).map(drop)
}

/// A hash of every tap.
#[derive(Default)]
struct Bits(BTreeMap<Site, Sha256>);

impl Visitor for Bits {
    fn want(&self, _: Site) -> Want {
        Want::Read
    }

    fn visit(&mut self, at: Site, _: &[RowId], tensor: TensorMut<'_>) -> Result<()> {
        let hash = self.0.entry(at).or_default();
        match tensor.data {
            DataMut::F32(v) => v.iter().for_each(|v| hash.update(v.to_bits().to_le_bytes())),
            DataMut::F64(v) => v.iter().for_each(|v| hash.update(v.to_bits().to_le_bytes())),
            DataMut::I64(v) => v.iter().for_each(|v| hash.update(v.to_le_bytes())),
            DataMut::U8(v) => hash.update(&*v),
        }
        Ok(())
    }
}
