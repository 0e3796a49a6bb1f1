//! `cargo xtask story`: reproduces the story and writes docs/story.md.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The test that holds the page to a run writes it where this is set.
const WRITE: &str = "KARAT_STORY_WRITE";
const TEST: &str = "story::the_committed_story_is_what_two_lossy_schedulers_do";

/// Runs the test in its writing form. Seeded faults stay out of every other program this way.
pub(crate) fn run(root: &Path) -> Result<()> {
    let args = ["test", "--quiet", "--locked", "-p", "karat-tests", "--test", "it", "--", "--exact", TEST];
    let mut cargo = Command::new("cargo");
    let status = cargo.args(args).env(WRITE, "1").current_dir(root).status().context("failed to run cargo")?;
    if !status.success() {
        bail!("the story could not be reproduced");
    }
    println!("story: docs/story.md written");
    Ok(())
}
