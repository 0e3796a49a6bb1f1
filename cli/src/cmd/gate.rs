//! `karat gate`: a run, a policy and a baseline make a verdict.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use karat_bundle::gate::gate;
use karat_bundle::lock::{self, Lock};
use karat_bundle::policy::{DEFAULT, find};
use karat_bundle::{Bundle, Date, Policy, Verdict};

use super::audit::{Made, make, repro_note};
use super::histories;
use crate::args::{Audit, Globals};
use crate::failure::{Failure, Result};
use crate::{output, summary};

/// `karat gate`.
#[derive(Debug, Args)]
pub(crate) struct Gate {
    /// What to run.
    #[command(flatten)]
    pub(crate) run: Audit,
    /// Judge this bundle again instead of running anything
    #[arg(long, value_name = "BUNDLE")]
    pub(crate) from: Option<PathBuf>,
    /// The policy; without it the default one, which --print-policy shows
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Compare with this baseline: worse beyond noise is regressed, better asks for a new one
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// Make this run the baseline, if it passes
    #[arg(long, requires = "baseline")]
    pub(crate) update_baseline: bool,
    /// Why the new baseline is worse, or held to wider limits, than the old one
    #[arg(long, value_name = "TEXT", requires = "update_baseline")]
    pub(crate) reason: Option<String>,
    /// Print the tightest policy that this run passes, and nothing else
    #[arg(long, conflicts_with_all = ["policy", "baseline"])]
    pub(crate) find_tolerances: bool,
    /// Head-room of --find-tolerances: limits lie so many times over what the run shows
    #[arg(long, value_name = "FACTOR", default_value_t = 1.25, requires = "find_tolerances")]
    pub(crate) head_room: f64,
    /// Print the default policy
    #[arg(long, conflicts_with_all = ["from", "policy", "baseline", "find_tolerances"])]
    pub(crate) print_policy: bool,
    /// The day of the verdict, for expiries of allowances; today by default
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub(crate) today: Option<Date>,
}

pub(crate) fn run(args: &Gate, globals: Globals) -> Result<u8> {
    if args.print_policy {
        output::stdout(DEFAULT);
        return Ok(0);
    }
    if !(args.head_room >= 1.0 && args.head_room.is_finite()) {
        return Err(Failure::usage(format!("--head-room: expected a factor from 1 on, found {}", args.head_room)));
    }
    // What is wrong with the files is told before minutes are spent on a run.
    let policy = args.policy.as_deref().map(Policy::read).transpose()?.unwrap_or_default();
    let old = match &args.baseline {
        Some(path) if !args.update_baseline || path.exists() => Some(Lock::read(path)?),
        _ => None,
    };
    let today = args.today.unwrap_or_else(now);
    let mut bundle = bundle(args, globals)?;
    if args.find_tolerances {
        return Ok(tolerances(&bundle, &policy, args.head_room, today));
    }
    let compared = if args.update_baseline { None } else { old.as_ref() };
    let gated = gate(&mut bundle, &policy, compared, today);
    let note = match &args.baseline {
        Some(path) if args.update_baseline => update(&bundle, old.as_ref(), args.reason.as_deref(), path)?,
        _ => None,
    };
    if let Some(out) = &args.run.out {
        karat_bundle::write(out, &bundle)?;
    }
    repro_note(&args.run);
    if globals.json {
        output::json(&summary::gate::json(&bundle, &gated));
    } else {
        let (out, style) = (args.run.out.as_deref(), output::Style::of_stdout());
        output::page(&summary::gate::text(&bundle, &gated, note.as_deref(), out, style));
    }
    Ok(bundle.verdict.exit_code)
}

pub(crate) fn now() -> Date {
    Date::of_unix_seconds(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
}

/// The stored bundle, or a fresh one.
fn bundle(args: &Gate, globals: Globals) -> Result<Bundle> {
    let run = &args.run;
    let Some(dir) = &args.from else {
        if histories::list(run.histories.as_deref())?.is_some() {
            return Err(Failure::usage("--histories: the gate takes one history; karat audit compares several"));
        }
        return match make(run, globals)? {
            Made::Bundle(bundle) => Ok(*bundle),
            Made::Printed(_) => {
                Err(Failure::usage("no bundle was made: run karat audit --out DIR, then karat gate --from DIR"))
            }
        };
    };
    for (name, given) in [
        ("a scenario", !run.scenarios.is_empty()),
        ("--model", run.model.is_some()),
        ("--stock", run.stock.is_some()),
        ("--patches", run.patches.is_some()),
        ("--without", !run.without.is_empty()),
        ("--histories", run.histories.is_some()),
        ("--backend", run.computing.backend.is_some()),
        ("--tier", run.computing.tier.is_some()),
        ("--candidate-backend", run.patching.candidate_backend.is_some()),
        ("--tokens", run.tokens.is_some()),
        ("--taps", run.taps.is_some()),
        ("--layers", run.layers.is_some()),
        ("--floor", run.floor),
        ("--candidate", run.candidate.is_some()),
        ("--endpoint", run.connect.endpoint.is_some()),
        ("--partition", run.partition.is_some()),
        ("--rerun", run.rerun),
        ("--repro", run.repro.is_some()),
    ] {
        if given {
            return Err(Failure::usage(format!("{name} has no meaning with --from: the bundle holds what ran")));
        }
    }
    Ok(karat_bundle::read(dir)?)
}

/// Prints the tightest policy that the bundle passes.
fn tolerances(bundle: &Bundle, policy: &Policy, head_room: f64, today: Date) -> u8 {
    let found = find(bundle, policy.min_floors, head_room);
    let mut under = bundle.clone();
    gate(&mut under, &found.policy, None, today);
    let verdict = under.verdict.verdict;
    if verdict != Verdict::Pass || !found.beyond.is_empty() {
        let why = found.beyond.first().cloned().or_else(|| under.verdict.reasons.first().cloned()).unwrap_or_default();
        let more = found.beyond.len().saturating_sub(1);
        let more = if more > 0 { format!(" ({more} more)") } else { String::new() };
        output::stderr(&format!("no tolerance lets this run pass: {why}{more}"));
        return if found.beyond.is_empty() { under.verdict.exit_code } else { Verdict::Fail.exit_code() };
    }
    let ids: Vec<String> = bundle.run.scenarios.iter().map(|s| format!("{} ({} rows)", s.name, s.rows)).collect();
    let head = format!(
        "# Found by `karat gate --find-tolerances` with a head-room of {head_room}: what one run of\n# {} shows. \
         Another run may show more.\n",
        ids.join(", "),
    );
    output::stdout(&format!("{head}{}", found.policy.to_toml()));
    0
}

/// Writes the baseline if the run passed; the note for people. A run that did not pass has its own verdict and exit code.
fn update(bundle: &Bundle, old: Option<&Lock>, reason: Option<&str>, path: &Path) -> Result<Option<String>> {
    let verdict = bundle.verdict.verdict;
    if bundle.run.is_part() {
        return Err(Failure::usage("a part of a run is no baseline: merge the parts, then gate"));
    }
    if verdict != Verdict::Pass {
        output::stderr(&format!("the baseline was not written: the run's verdict is {}", verdict.name()));
        return Ok(None);
    }
    let new = lock::measure(bundle).replacing(old, reason).map_err(|asks| {
        let (first, more) = (&asks[..asks.len().min(3)], asks.len().saturating_sub(3));
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let why = format!("the baseline was not written: {}{more}", first.join("; "));
        Failure::usage(format!("{why}; --reason TEXT says why that is right"))
    })?;
    new.write(path)?;
    Ok(Some(format!("baseline: {} metrics written to {}", new.metrics.len(), path.display())))
}
