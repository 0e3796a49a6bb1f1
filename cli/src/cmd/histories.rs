//! `karat audit --histories LIST`: the ways in which an engine comes to a final context.

use karat_audit::{Histories, Job};
use karat_optimized::serving::Served;

use super::audit::low_precision;
use crate::args::Audit;
use crate::failure::{Failure, Result};
use crate::{output, summary};

/// The histories of a list, or `None` for the one history of an ordinary audit.
pub(crate) fn list(word: Option<&str>) -> Result<Option<Vec<Served>>> {
    let Some(word) = word else { return Ok(None) };
    if word == "all" {
        return Ok(Some(Served::ALL.to_vec()));
    }
    if !word.contains(',') && word.parse::<karat_optimized::History>().is_ok() {
        return Ok(None);
    }
    let mut out: Vec<Served> = Vec::new();
    for name in word.split(',') {
        let history: Served = name.trim().parse()?;
        if out.contains(&history) {
            return Err(Failure::usage(format!("--histories: `{history}` is named twice")));
        }
        out.push(history);
    }
    Ok(Some(out))
}

/// Runs and prints them.
pub(crate) fn run(args: &Audit, histories: Vec<Served>, job: &Job<'_>, json: bool) -> Result<u8> {
    for (name, given) in [("--taps", args.taps.is_some()), ("--layers", args.layers.is_some()), ("--floor", args.floor)]
    {
        if given {
            return Err(Failure::usage(format!(
                "{name} has no meaning with several histories: whole runs are compared"
            )));
        }
    }
    let (stock, patches) = low_precision(args.stock.as_deref(), args.patches.as_deref(), &args.without)?;
    let report = karat_audit::histories(job, &Histories { stock, patches, histories, page: args.page, seed: 1 })?;
    if let Some(out) = &args.out {
        karat_bundle::write(out, &report.bundle)?;
    }
    if json {
        output::json(&summary::histories::json(&report));
    } else {
        output::page(&summary::histories::text(&report, args.out.as_deref(), output::Style::of_stdout()));
    }
    Ok(report.verdict().exit_code())
}
