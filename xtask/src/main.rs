//! Automation of this workspace: `cargo xtask ci`, `tidy`, `counts`, `faults`, `story`, `sensitivity`, `fetch`, `peers`, `kernels`,
//! `gpu-suite`, `cpu-suite`, `evidence`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what an automation tool is for")]

mod ci;
mod counts;
mod cpu_suite;
mod evidence;
mod faults;
mod fetch;
mod gpu_suite;
mod kernels;
mod peers;
mod sensitivity;
mod story;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Automation of this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Every check of the continuous integration, each timed and bounded.
    Ci(ci::Args),
    /// The workspace's own rules: dependencies, sources, texts.
    Tidy,
    /// Instructions of each hot loop of golden, against the committed table (needs valgrind).
    Counts(counts::Args),
    /// Audits every seeded fault and writes the detection matrix, docs/faults.md; `--sizes` and `--pairs` write two more pages.
    Faults(faults::Args),
    /// Reproduces the story on two schedulers with a fault and writes docs/story.md.
    Story,
    /// What every speed patch and twenty faults do to answers and to KL; writes docs/sensitivity.md.
    Sensitivity(sensitivity::Args),
    /// Brings the files that some tests need and the repository doesn't hold.
    Fetch,
    /// Speed and fidelity beside other people's programs, in one run; writes a dated report.
    Peers(peers::Args),
    /// Compiles the CUDA kernels without a GPU, and holds them to their budgets.
    Kernels(kernels::Args),
    /// One folder that measures the kernels on a machine with a GPU.
    GpuSuite(gpu_suite::Args),
    /// One folder that measures golden's capture, dumps, depth and real shapes on a machine with many cores.
    CpuSuite(cpu_suite::Args),
    /// What was measured on a GPU, against the sources as they are.
    Evidence(evidence::Args),
}

/// The workspace's root folder: where this crate's folder lies, or the current folder where the program was carried to
/// another machine.
fn root() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    if built.exists() { built.to_path_buf() } else { PathBuf::from(".") }
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Ci(args) => ci::run(&root(), &args),
        Command::Tidy => tidy::run(&root()),
        Command::Counts(args) => counts::run(&root(), &args),
        Command::Faults(args) => faults::run(&root(), &args),
        Command::Story => story::run(&root()),
        Command::Sensitivity(args) => sensitivity::run(&root(), &args),
        Command::Fetch => fetch::run(&root()),
        Command::Peers(args) => peers::run(&root(), &args),
        Command::Kernels(args) => kernels::run(&root(), &args),
        Command::GpuSuite(args) => gpu_suite::run(&root(), &args),
        Command::CpuSuite(args) => cpu_suite::run(&root(), &args),
        Command::Evidence(args) => evidence::run(&root(), &args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
