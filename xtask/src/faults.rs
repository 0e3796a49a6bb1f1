//! `cargo xtask faults`: audits every seeded fault and writes the detection matrix, docs/faults.md.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The test that compares with the page writes it where this is set.
const WRITE: &str = "KARAT_FAULTS_WRITE";
const TEST: &str = "bench::tests::every_second_fault_is_found_as_the_committed_page_says";

/// Runs the test in its writing form. Seeded faults stay out of every other program this way.
pub(crate) fn run(root: &Path) -> Result<()> {
    let args =
        ["test", "--quiet", "--locked", "-p", "karat-faults", "--lib", "--", "--exact", "--include-ignored", TEST];
    let mut cargo = Command::new("cargo");
    let status = cargo.args(args).env(WRITE, "1").current_dir(root).status().context("failed to run cargo")?;
    if !status.success() {
        bail!("the faults could not be audited");
    }
    println!("faults: docs/faults.md written");
    Ok(())
}
