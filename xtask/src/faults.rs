//! `cargo xtask faults`: audits every seeded fault and writes the detection matrix, docs/faults.md; with `--sizes` how small
//! each can be (docs/fault-sizes.md), with `--pairs` two at once (docs/fault-pairs.md).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args as Arguments;

/// What to find out about the seeded faults. Without a flag: the detection matrix.
#[derive(Arguments)]
pub(crate) struct Args {
    /// The rows of these faults alone, shown and not written: ROUTE-01,ACT-02.
    #[arg(long, value_name = "IDS", conflicts_with_all = ["sizes", "pairs"])]
    only: Option<String>,
    /// How small each fault can be until it is missed, instead of the matrix.
    #[arg(long, conflicts_with = "pairs")]
    sizes: bool,
    /// So many random pairs of faults of different families at once, instead of the matrix.
    #[arg(long, value_name = "N")]
    pairs: Option<u32>,
    /// The seed that draws the pairs.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "pairs")]
    seed: u64,
    /// Ends after so many seconds, when the pass that runs is done; the same command goes on from there.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Starts over, without what an earlier run kept.
    #[arg(long)]
    again: bool,
}

/// The test that compares with the page writes it where this is set.
const WRITE: &str = "KARAT_FAULTS_WRITE";
/// Shows the rows of these ids instead.
const ONLY: &str = "KARAT_FAULTS_ONLY";
/// What a long command reads (`faults/src/long.rs`).
const KEPT: &str = "KARAT_FAULTS_KEPT";
const SECONDS: &str = "KARAT_FAULTS_SECONDS";
const PAIRS: &str = "KARAT_FAULTS_PAIRS";
const SEED: &str = "KARAT_FAULTS_SEED";

const MATRIX_TEST: &str = "bench::tests::every_second_fault_is_found_as_the_committed_page_says";
const SIZES_TEST: &str = "sizes::tests::the_committed_page_has_every_fault_that_is_no_control";
const PAIRS_TEST: &str = "pairs::tests::the_committed_page_has_the_pairs_that_its_seed_draws";

/// Runs a test in its writing form. Seeded faults stay out of every other program this way.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    if !args.sizes && args.pairs.is_none() {
        if args.seconds.is_some() || args.again {
            bail!("the matrix is written in one run: --seconds and --again belong to --sizes or --pairs");
        }
        if let Some(ids) = &args.only {
            return cargo(root, MATRIX_TEST, &[(ONLY, ids.clone())]);
        }
        return test(root, MATRIX_TEST, &[(WRITE, "1".to_string())], "docs/faults.md");
    }
    let kept = root.join("target/faults");
    let (kept, name, page) = match args.pairs {
        None => (kept.join("sizes.jsonl"), SIZES_TEST, "docs/fault-sizes.md"),
        Some(n) => (kept.join(format!("pairs-{n}-{}.jsonl", args.seed)), PAIRS_TEST, "docs/fault-pairs.md"),
    };
    if args.again && kept.exists() {
        std::fs::remove_file(&kept).with_context(|| format!("failed to remove {}", kept.display()))?;
    }
    let mut with = vec![(KEPT, kept.display().to_string())];
    with.extend(args.seconds.map(|s| (SECONDS, s.to_string())));
    if let Some(n) = args.pairs {
        with.extend([(PAIRS, n.to_string()), (SEED, args.seed.to_string())]);
    }
    test(root, name, &with, page)
}

fn test(root: &Path, name: &str, with: &[(&str, String)], page: &str) -> Result<()> {
    let page_file = root.join(page);
    let written = || std::fs::metadata(&page_file).and_then(|m| m.modified()).ok();
    let before = written();
    cargo(root, name, with)?;
    match written() == before {
        true => println!("faults: {page} is as it was; the same command goes on from what was kept"),
        false => println!("faults: {page} written"),
    }
    Ok(())
}

fn cargo(root: &Path, name: &str, with: &[(&str, String)]) -> Result<()> {
    let args = [
        "test",
        "--quiet",
        "--locked",
        "-p",
        "karat-faults",
        "--lib",
        "--",
        "--exact",
        "--include-ignored",
        "--nocapture",
    ];
    let mut cargo = Command::new("cargo");
    cargo.args(args).arg(name).envs(with.iter().cloned()).current_dir(root);
    if !cargo.status().context("failed to run cargo")?.success() {
        bail!("the faults could not be audited");
    }
    Ok(())
}
