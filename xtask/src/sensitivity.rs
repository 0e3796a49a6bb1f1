//! `cargo xtask sensitivity`: what every speed patch and twenty faults do to answers and to KL; writes docs/sensitivity.md.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The test that holds the page's lists to its tables writes it where this is set.
const WRITE: &str = "KARAT_SENSITIVITY_WRITE";
const TEST: &str = "sensitivity::tests::the_committed_lists_follow_from_the_committed_tables";

/// Options of `cargo xtask sensitivity`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Begin no row that would not be done after so many seconds; what was measured is kept for the next call.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
}

/// Runs the test in its writing form. Seeded faults stay out of every other program this way.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let limit = args.seconds.map_or_else(|| "all".to_string(), |s| s.to_string());
    let args =
        ["test", "--quiet", "--locked", "-p", "karat-tests", "--test", "it", "--", "--exact", "--nocapture", TEST];
    let mut cargo = Command::new("cargo");
    let status = cargo.args(args).env(WRITE, limit).current_dir(root).status().context("failed to run cargo")?;
    if !status.success() {
        bail!("the table could not be measured");
    }
    Ok(())
}
