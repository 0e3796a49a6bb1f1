//! Runs every kernel on this machine's GPU: correctness against the naive counterparts and f64, speed beside the device's own
//! ceilings and beside PyTorch, and writes one evidence file. It needs a driver, a pack and, for the peers, Python with torch.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports what it measures")]

mod cases;
mod compressor;
mod exact;
mod gemm;
mod golden;
mod index;
mod mhc;
mod mla;
mod moe;
mod nccl;
mod numbers;
mod peers;
mod timing;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use karat_kernels::cuda::{Device, Loader};
use karat_kernels::evidence::{Evidence, ImageRow, Place};
use karat_kernels::pack::Pack;
use karat_model::{Error, Result};

use peers::Peers;

/// What every part of the suite needs.
struct Suite {
    device: Device,
    loader: Loader,
    peers: Peers,
    evidence: Evidence,
    seeds: u64,
}

/// Command line: `gpu_suite --pack DIR --out FILE --date DAY [--peers SCRIPT] [--seeds N] [--parts WORD]`: fewer seeds, and only
/// the parts whose name holds the word, are for a run under a memory checker. With `--golden MODEL [--karat PROGRAM]` only golden on
/// the GPU is compared with golden on the CPU; with `--nccl MODEL` the part for several GPUs runs instead.
struct Args {
    pack: PathBuf,
    out: PathBuf,
    date: String,
    peers: Option<PathBuf>,
    seeds: u64,
    parts: String,
    golden: Option<PathBuf>,
    nccl: Option<PathBuf>,
    karat: Option<PathBuf>,
}

fn args() -> Result<Args> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let usage = || {
        Error::usage(
            "usage: gpu_suite --pack DIR --out FILE --date DAY [--peers SCRIPT] [--seeds N] [--parts WORD] [--golden MODEL] [--nccl MODEL] [--karat PROGRAM]",
        )
    };
    let mut found: BTreeMap<&str, &str> = BTreeMap::new();
    for pair in words.chunks(2) {
        let [name, value] = pair else { return Err(usage()) };
        if !["--pack", "--out", "--date", "--peers", "--seeds", "--parts", "--golden", "--nccl", "--karat"]
            .contains(&name.as_str())
        {
            return Err(usage().found(name));
        }
        found.insert(name, value);
    }
    let take = |name: &str| found.get(name).map(|v| (*v).to_string());
    Ok(Args {
        pack: take("--pack").ok_or_else(usage)?.into(),
        out: take("--out").ok_or_else(usage)?.into(),
        date: take("--date").ok_or_else(usage)?,
        peers: take("--peers").map(Into::into),
        seeds: take("--seeds").map_or(Ok(20), |n| n.parse().map_err(|_| usage().found(n)))?,
        parts: take("--parts").unwrap_or_default(),
        golden: take("--golden").map(Into::into),
        nccl: take("--nccl").map(Into::into),
        karat: take("--karat").map(Into::into),
    })
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("gpu_suite: {error}");
            ExitCode::from(3)
        }
    }
}

fn run() -> Result<bool> {
    let args = args()?;
    if let Some(model) = args.golden {
        let (pack, out, date, karat) = (args.pack, args.out, args.date, args.karat);
        return golden::run(&golden::Golden { pack, out, date, model, karat });
    }
    if let Some(model) = args.nccl {
        let (pack, out, date, karat) = (args.pack, args.out, args.date, args.karat);
        return nccl::run(&nccl::Part { pack, out, date, model, karat });
    }
    let device = Device::open()?;
    println!("{}", device.describe());
    let pack = Pack::open(&args.pack)?;
    let images = rows(&pack, device.arch());
    let loader = Loader::new(Some(pack), None, None)?;
    let mut peers = Peers::start(args.peers.as_deref())?;
    let place = Place {
        name: device.name.clone(),
        arch: device.arch().to_string(),
        driver: device.driver,
        processors: device.processors,
    };
    let evidence = Evidence {
        format: 1,
        date: args.date,
        device: place,
        peers: peers.versions()?,
        ceilings: BTreeMap::new(),
        images,
        correctness: Vec::new(),
        speed: Vec::new(),
    };
    let mut suite = Suite { device, loader, peers, evidence, seeds: args.seeds };
    // The file is written after each part: a part that fails leaves those before it.
    let parts: [(&str, fn(&mut Suite) -> Result<()>); 13] = [
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
    let mut broken = Vec::new();
    for (name, part) in parts.into_iter().filter(|(name, _)| name.contains(&args.parts)) {
        let start = std::time::Instant::now();
        if let Err(error) = part(&mut suite) {
            eprintln!("{name}: {error}");
            broken.push(name);
        }
        println!("== {name}: {:.1} s", start.elapsed().as_secs_f64());
        let text = serde_json::to_string_pretty(&suite.evidence)
            .map_err(|e| Error::input(format!("the evidence cannot be written: {e}")))?;
        std::fs::write(&args.out, text + "\n")
            .map_err(|e| Error::input(format!("the evidence cannot be written: {e}")).at(args.out.display()))?;
    }
    let correct = suite.evidence.correct();
    println!(
        "correct: {correct}; parts that failed: {}",
        if broken.is_empty() { "none".to_string() } else { broken.join(", ") }
    );
    Ok(correct && broken.is_empty())
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
