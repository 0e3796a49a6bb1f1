//! `cargo xtask faults`: audits every seeded fault and writes the detection matrix, docs/faults.md; `--sizes` writes how small each
//! may be (docs/fault-sizes.md), `--pairs N` what is named of two at once (docs/fault-pairs.md).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The test that compares with the page writes it where this is set; of pairs, so many.
const WRITE: &str = "KARAT_FAULTS_WRITE";
const MATRIX: &str = "bench::tests::every_second_fault_is_found_as_the_committed_page_says";
const SIZES: &str = "bench::tests::the_committed_thresholds_hold";
const PAIRS: &str = "bench::tests::two_faults_are_named_one_after_the_other";

/// What to audit.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Scale each fault down until it is missed
    #[arg(long)]
    sizes: bool,
    /// So many random pairs of faults
    #[arg(long, value_name = "N", conflicts_with = "sizes")]
    pairs: Option<usize>,
}

/// Runs a test in its writing form. Seeded faults stay out of every other program this way.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let (test, page, write) = match args {
        Args { sizes: true, .. } => (SIZES, "docs/fault-sizes.md", "1".to_string()),
        Args { pairs: Some(n), .. } => (PAIRS, "docs/fault-pairs.md", n.to_string()),
        _ => (MATRIX, "docs/faults.md", "1".to_string()),
    };
    let args =
        ["test", "--quiet", "--locked", "-p", "karat-faults", "--lib", "--", "--exact", "--include-ignored", test];
    let mut cargo = Command::new("cargo");
    let status = cargo.args(args).env(WRITE, write).current_dir(root).status().context("failed to run cargo")?;
    if !status.success() {
        bail!("the faults could not be audited");
    }
    println!("faults: {page} written");
    Ok(())
}
