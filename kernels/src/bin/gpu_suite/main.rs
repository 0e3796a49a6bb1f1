//! Runs every kernel on this machine's GPU: correctness against the naive counterparts and f64, speed beside the device's own
//! ceilings and beside PyTorch, and writes one evidence file. It needs a driver, a pack and, for the peers, Python with torch.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports what it measures")]

mod capture;
mod compare;
mod golden;
mod looks;
mod nccl;
mod probe;
mod split;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use karat_kernels::cuda::Device;
use karat_kernels::evidence::SpeedRow;
use karat_kernels::pack::Pack;
use karat_kernels::suite::{Part, Suite};
use karat_model::{Error, Result};

/// Command line: `gpu_suite --pack DIR --out FILE --date DAY [--peers SCRIPT] [--seeds N] [--parts WORD]`: fewer seeds, and only
/// the parts whose name holds the word, are for a run under a memory checker. With `--golden MODEL [--karat PROGRAM]` only golden on
/// the GPU is compared with golden on the CPU; with `--nccl MODEL` the part for several GPUs runs instead, with
/// `--capture MODEL [--layer MODEL]` what traces of golden on the GPU hold and cost, the second one a model of released shapes, with `--compare yes` comparing two tensors there, with
/// `--split MODEL` golden's exact-split tier, with `--probe all` how its mma.sync accumulates.
struct Args {
    pack: PathBuf,
    out: PathBuf,
    date: String,
    peers: Option<PathBuf>,
    seeds: u64,
    parts: String,
    golden: Option<PathBuf>,
    nccl: Option<PathBuf>,
    capture: Option<PathBuf>,
    layer: Option<PathBuf>,
    compare: bool,
    split: Option<PathBuf>,
    probe: bool,
    karat: Option<PathBuf>,
}

const NAMES: [&str; 14] = [
    "--pack",
    "--out",
    "--date",
    "--peers",
    "--seeds",
    "--parts",
    "--golden",
    "--nccl",
    "--capture",
    "--layer",
    "--compare",
    "--probe",
    "--split",
    "--karat",
];

fn args() -> Result<Args> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let usage = || {
        Error::usage(
            "usage: gpu_suite --pack DIR --out FILE --date DAY [--peers SCRIPT] [--seeds N] [--parts WORD] [--golden MODEL] [--nccl MODEL] [--capture MODEL [--layer MODEL]] [--compare yes] [--split MODEL] [--probe all] [--karat PROGRAM]",
        )
    };
    let mut found: BTreeMap<&str, &str> = BTreeMap::new();
    for pair in words.chunks(2) {
        let [name, value] = pair else { return Err(usage()) };
        if !NAMES.contains(&name.as_str()) {
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
        capture: take("--capture").map(Into::into),
        layer: take("--layer").map(Into::into),
        compare: take("--compare").is_some(),
        split: take("--split").map(Into::into),
        probe: take("--probe").is_some(),
        karat: take("--karat").map(Into::into),
    })
}

fn main() -> ExitCode {
    // As the program does.
    karat_model::checkpoint::tune_allocator();
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
    if let Some(model) = args.capture {
        let (pack, out, date, layer) = (args.pack, args.out, args.date, args.layer);
        return capture::run(&capture::Part { pack, out, date, model, layer });
    }
    if let Some(model) = args.split {
        let (pack, out, date, seeds) = (args.pack, args.out, args.date, args.seeds);
        return split::run(&split::Part { pack, out, date, model, seeds });
    }
    if args.probe {
        return probe::run(&probe::Part { pack: args.pack, out: args.out, date: args.date });
    }
    if args.compare {
        let (pack, out, date, peers, seeds) = (args.pack, args.out, args.date, args.peers, args.seeds);
        return compare::run(&compare::Part { pack, out, date, peers, seeds });
    }
    if let Some(model) = args.nccl {
        let (pack, out, date, karat) = (args.pack, args.out, args.date, args.karat);
        return nccl::run(&nccl::Part { pack, out, date, model, karat });
    }
    let device = Device::open()?;
    println!("{}", device.describe());
    let pack = Pack::open(&args.pack)?;
    let mut suite = Suite::new(device, pack, args.peers.as_deref(), args.date, args.seeds)?;
    // The file is written after each part: a part that fails leaves those before it.
    let mut show = |part: &Part<'_>| {
        print(part);
        part.evidence.write(&args.out)
    };
    let broken = suite.run(&|name| name.contains(&args.parts), &mut show)?;
    let correct = suite.evidence.correct();
    println!(
        "correct: {correct}; parts that failed: {}",
        if broken.is_empty() { "none".to_string() } else { broken.join(", ") }
    );
    Ok(correct && broken.is_empty())
}

/// What the naive counterpart took, in words.
fn naive(row: &SpeedRow) -> String {
    let Some(naive) = &row.naive else { return "-".to_string() };
    naive.mean().map_or_else(|| naive.skipped.clone().unwrap_or_default(), |us| format!("{us:.1} us"))
}

/// A line a row.
fn print(part: &Part<'_>) {
    if part.name == "ceilings" {
        println!("ceilings: {:?}", part.evidence.ceilings);
    }
    for row in part.correctness {
        let good = row.bad == 0 && row.worst <= row.bound;
        println!(
            "{:<18} {:<13} {:>3} cases, {:>2} on the CPU: worst {:.2e} of {:.1e} (naive f32 {:.2e}), {} bad: {}  [{}]",
            row.image,
            row.quantity,
            row.cases,
            row.cpu_cases,
            row.worst,
            row.bound,
            row.naive,
            row.bad,
            if good { "good" } else { "BROKEN" },
            row.worst_case
        );
    }
    for row in part.speed {
        let peers: Vec<String> = row.peers.iter().map(|(name, us)| format!("{name} {us:.1}")).collect();
        println!(
            "{:<18} {:<62} {:>8.1} / {:>8.1} us  {:.2} TB/s  {:.0} TFLOP/s  naive {}  [{}]",
            row.image,
            row.shape,
            row.us,
            row.us_again,
            row.tb_s,
            row.tflop_s,
            naive(row),
            peers.join(", ")
        );
    }
    if let Some(error) = &part.error {
        eprintln!("{}: {error}", part.name);
    }
    println!("== {}: {:.1} s", part.name, part.took.as_secs_f64());
}
