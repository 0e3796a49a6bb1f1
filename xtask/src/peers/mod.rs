//! `cargo xtask peers`: golden and the diff engine beside other people's programs, taking turns in one run, and beside
//! what the machine can do at most; a dated report.

mod comparators;
mod environment;
mod fidelity;
mod kernels;
mod model;
mod report;
mod short;
mod turns;
mod worker;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use environment::Environment;
use report::Report;
use serde_json::Value;
use worker::{Log, Worker};

/// Compares speed and fidelity with other programs.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Prompt lengths of the model runs
    #[arg(long, value_delimiter = ',', default_value = "512,2048", value_name = "N,N")]
    lens: Vec<usize>,
    /// Threads of everybody
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Times that each pair takes turns (A B B A)
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// MiB of each tensor that comparators read
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=4096))]
    mib: u16,
    /// A Python that has the packages already, instead of one that is set up under target/peers
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// Folder with `peer_golden` and `peer_diff` built before, for a machine without cargo; its file `commit`, where there
    /// is one, says of what
    #[arg(long, value_name = "DIR")]
    built: Option<PathBuf>,
    /// Hold golden and the diff engine, and the ceilings, to AVX2; the peers take what they take
    #[arg(long)]
    avx2: bool,
    /// Leave out other people's comparators, of which some take half a minute
    #[arg(long)]
    no_comparators: bool,
    /// Leave out ceilings, products and comparators: the model alone, where a long prompt takes the time
    #[arg(long)]
    model_only: bool,
    /// The report; docs/performance/DATE.md by default
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Every answer of every program, one JSON line each
    #[arg(long, value_name = "FILE")]
    raw: Option<PathBuf>,
}

/// What the measuring parts need.
struct Setting<'a> {
    args: &'a Args,
    environment: &'a Environment,
    /// Scratch folder.
    folder: PathBuf,
    /// Golden's and the diff engine's workers.
    golden: PathBuf,
    diff: PathBuf,
    /// Where answers are written down.
    log: Log,
}

impl Setting<'_> {
    /// Golden's worker.
    fn golden(&self) -> Result<Worker> {
        let mut command = Command::new(&self.golden);
        command.arg(self.folder.join("mini"));
        Ok(self.ours("peer_golden", command)?.0)
    }

    /// The diff engine's, and what it says about itself.
    fn diff(&self) -> Result<(Worker, Value)> {
        self.ours("peer_diff", Command::new(&self.diff))
    }

    fn ours(&self, name: &str, mut command: Command) -> Result<(Worker, Value)> {
        command.arg(self.args.threads.to_string());
        if name == "peer_diff" {
            command.arg(&self.folder);
        }
        if self.args.avx2 {
            command.arg("avx2");
        }
        Worker::start(name, &mut command, &self.log)
    }

    /// One of the Python programs.
    fn peer(&self, script: &str) -> Result<Worker> {
        let mut command = self.environment.command(script);
        Ok(Worker::start(script, command.arg(self.args.threads.to_string()), &self.log)?.0)
    }
}

/// Runs it all.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    if let Some(longest) = args.lens.iter().max()
        && (*longest > LONGEST || args.lens.contains(&0))
    {
        bail!("--lens takes lengths of 1 to {LONGEST}, found {:?}", args.lens);
    }
    let folder = root.join("target/peers");
    std::fs::create_dir_all(&folder)?;
    let scripts = root.join("xtask/peers");
    let environment = environment::prepare(&folder, scripts, args.python.as_deref(), args.threads)?;
    let example = |package, name| match &args.built {
        Some(folder) => Ok(folder.join(name)),
        None => build(root, package, name),
    };
    let (golden, diff) = (example("karat-reference", "peer_golden")?, example("karat-diff", "peer_diff")?);
    environment.script("mini.py", &[&folder.join("mini").display().to_string()])?;
    let log = Log::open(args.raw.as_deref())?;
    let setting = Setting { args, environment: &environment, folder, golden, diff, log };
    let mut report = Report::new(root, args.threads, args.built.as_deref())?;
    if args.avx2 {
        report.held("golden, the diff engine and the ceilings held to AVX2");
    }
    if args.model_only {
        kernels::versions(&setting, &mut report)?;
    } else {
        kernels::measure(&setting, &mut report)?;
    }
    for &n in &args.lens {
        model::measure(&setting, n, &mut report)?;
    }
    let out = args.out.clone().unwrap_or_else(|| root.join(format!("docs/performance/{}.md", report.date())));
    std::fs::create_dir_all(out.parent().context("the report needs a folder")?)?;
    let text = report.markdown();
    println!("{text}");
    std::fs::write(&out, text).with_context(|| format!("failed to write {}", out.display()))?;
    println!("peers: report in {}", out.display());
    Ok(())
}

/// Ids of the prompt that mini.py writes.
const LONGEST: usize = 8192;

/// Builds an example with optimisation and gives its path.
fn build(root: &Path, package: &str, example: &str) -> Result<PathBuf> {
    println!("peers: building {example}");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = std::process::Command::new(cargo)
        .current_dir(root)
        .args(["build", "--release", "--quiet", "--package", package, "--example", example])
        .status()
        .context("failed to run cargo")?;
    if !status.success() {
        bail!("{example} could not be built");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("release/examples").join(example))
}
