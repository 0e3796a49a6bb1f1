//! `karat merge`: the parts of a partitioned run, put together.

use std::path::PathBuf;

use clap::Args;
use karat_bundle::Bundle;

use crate::args::Globals;
use crate::failure::Result;
use crate::{output, summary};

/// `karat merge`.
#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// Bundles that audit, gate or recall --partition wrote, every part once
    #[arg(value_name = "BUNDLE", required = true)]
    pub(crate) bundles: Vec<PathBuf>,
    /// Write the whole run's bundle here
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

pub(crate) fn run(args: &Merge, globals: Globals) -> Result<u8> {
    let read = |dir: &PathBuf| Ok((dir.display().to_string(), karat_bundle::read(dir)?));
    let parts: Vec<(String, Bundle)> = args.bundles.iter().map(read).collect::<Result<_>>()?;
    let whole = karat_bundle::merge::merge(&parts)?;
    karat_bundle::write(&args.out, &whole)?;
    if globals.json {
        output::json(&summary::json(&whole));
    } else {
        output::page(&summary::of(&whole, Some(&args.out), output::Style::of_stdout()));
    }
    Ok(whole.verdict.exit_code)
}
