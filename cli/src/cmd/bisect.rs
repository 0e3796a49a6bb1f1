//! `karat bisect`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use karat_audit::search::Noise;
use karat_audit::{Asking, Bisect, BisectReport, Check, Criterion, Job, Metric, Over, bisect, bisect_check};
use karat_optimized::History;

use super::audit::{low_precision, patch_list};
use crate::args::Globals;
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::{cache, inputs, model, output, stop, summary};

/// Along what to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Along {
    /// The smallest set of patches that is bad.
    Patches,
    /// The first layer.
    Layers,
    /// The first op of a layer (--layer, or the first bad one).
    Ops,
    /// The first position, and so the smallest prompt.
    Tokens,
    /// The first history that is not the path's own cold run.
    Histories,
    /// One after the other, each on what the one before left.
    All,
}

/// `karat bisect`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes, as `git bisect run` reads them: 0 nothing bad, 1 found, 125 could not be told.")]
pub(crate) struct BisectArgs {
    /// Scenarios: names of built-in ones or .toml files; tic-tac-toe by default
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Along what to search
    #[arg(long, value_enum, default_value_t = Along::Patches)]
    over: Along,
    /// Checkpoint folder; without it the mini golden model
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Stock profile under the patches: official, sglang, sglang-sm120, vllm or none (f32, the control)
    #[arg(long, value_name = "PROFILE")]
    stock: Option<String>,
    /// Speed patches: all (the default set), none, or names with commas between; with --check any names
    #[arg(long, value_name = "LIST")]
    patches: Option<String>,
    /// Leave this patch out (repeatable)
    #[arg(long, value_name = "PATCH")]
    without: Vec<String>,
    /// How the conversation is served: cold, decoded or chunked:TOKENS
    #[arg(long, value_name = "HISTORY")]
    histories: Option<String>,
    /// Token ids instead of scenarios
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// What is measured instead of the verdict: kl (mean, nats), flips (changed top ids) or recall (lost answers)
    #[arg(long, value_name = "METRIC")]
    metric: Option<String>,
    /// The largest value that is good; without it, half of the whole (not over patches)
    #[arg(long, value_name = "X", requires = "metric")]
    limit: Option<f64>,
    /// With --over ops: the layer (the number of layers for the head)
    #[arg(long, value_name = "N")]
    layer: Option<u16>,
    /// Judge patch sets by this command: exit 0 good, 1 bad, 125 skip. It gets the set as KARAT_PATCHES and for {patches}
    #[arg(long, value_name = "CMD", conflicts_with_all = ["scenarios", "model", "stock", "histories", "tokens", "metric",
        "layer", "no_cache"])]
    check: Option<String>,
    /// With --check: chance that one of its answers is wrong (0 to 0.45); it is asked again until the search is sure
    #[arg(long, value_name = "P", requires = "check")]
    noise: Option<f64>,
    /// With --noise: chance that the search as a whole errs, at most
    #[arg(long, value_name = "P", requires = "noise", default_value_t = 0.05)]
    error: f64,
    /// Keep every answer in this file, and take those that it holds: a search goes on where it was interrupted
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Take nothing from the cache of earlier runs and leave nothing there (as KARAT_NO_CACHE=1 does)
    #[arg(long)]
    no_cache: bool,
    /// Write the result (bisect.json) here
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &BisectArgs, globals: Globals) -> Result<u8> {
    let report = match &args.check {
        Some(command) => check(args, command, globals)?,
        None => numbers(args, globals)?,
    };
    let value = summary::bisect::json(&report);
    if let Some(out) = &args.out {
        write(out, "bisect.json", &(serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"))?;
    }
    if globals.json {
        output::json(&value);
    } else {
        output::page(&summary::bisect::text(&report, output::Style::of_stdout()));
    }
    Ok(report.exit_code())
}

/// A command as the judge.
fn check(args: &BisectArgs, command: &str, globals: Globals) -> Result<BisectReport> {
    if args.over != Along::Patches {
        return Err(Failure::usage("--check judges patch sets: --over patches is all that it can search"));
    }
    let patches = match args.patches.as_deref() {
        None | Some("all" | "none") => patch_list(args.patches.as_deref(), &args.without)?,
        // Names that karat does not know may be another engine's.
        Some(names) => {
            let all: Vec<String> = names.split(',').map(|n| n.trim().to_string()).collect();
            if let Some(name) = args.without.iter().find(|w| !all.contains(w)) {
                return Err(Failure::usage(format!("--without: expected one of {names}, found `{name}`")));
            }
            all.into_iter().filter(|p| !args.without.contains(p)).collect()
        }
    };
    let noise = match args.noise {
        Some(wrong) if !(0.0..=0.45).contains(&wrong) => {
            return Err(Failure::usage(format!("--noise: expected 0 to 0.45, found {wrong}")));
        }
        Some(_) if !(args.error > 0.0 && args.error < 0.5) => {
            return Err(Failure::usage(format!("--error: expected over 0 and under 0.5, found {}", args.error)));
        }
        wrong => wrong.map(|wrong| Noise { wrong, error: args.error }),
    };
    let progress = Progress::new(globals);
    let asking = Asking { noise, replay: args.replay.clone(), progress: &progress, stop: stop::on_interrupt() };
    let report = bisect_check(&Check::new(command, !globals.quiet)?, &patches, &asking);
    progress.finish();
    Ok(report?)
}

/// The optimized path's own numbers as the judge.
fn numbers(args: &BisectArgs, globals: Globals) -> Result<BisectReport> {
    let (stock, patches) = low_precision(args.stock.as_deref(), args.patches.as_deref(), &args.without)?;
    let history: History = match args.histories.as_deref() {
        Some(word) => word.parse()?,
        None => History::Cold,
    };
    let over = match args.over {
        Along::Patches => Over::Patches,
        Along::Layers => Over::Layers,
        Along::Ops => Over::Ops,
        Along::Tokens => Over::Tokens,
        Along::Histories => Over::Histories,
        Along::All => Over::All,
    };
    if args.layer.is_some() && args.over != Along::Ops {
        return Err(Failure::usage("--layer names the layer whose ops are searched: it needs --over ops"));
    }
    if let Some(limit) = args.limit.filter(|x| !x.is_finite() || *x < 0.0) {
        return Err(Failure::usage(format!("--limit: expected a number of 0 or more, found {limit}")));
    }
    let criterion = match args.metric.as_deref() {
        None => Criterion::Verdict,
        Some(word) => Criterion::Over(word.parse::<Metric>()?, args.limit),
    };
    if matches!(criterion, Criterion::Over(_, None)) && matches!(over, Over::Patches | Over::All) {
        return Err(Failure::usage("--metric over patches needs --limit: the largest value that is good"));
    }
    let source = model::open(args.model.as_deref())?;
    let inputs = inputs::read(&source.checkpoint, &args.scenarios, args.tokens.as_deref())?;
    if matches!(criterion, Criterion::Over(Metric::Recall, _)) && inputs.asks.iter().all(Vec::is_empty) {
        return Err(Failure::usage("--metric recall: these conversations ask nothing (no `answers`)"));
    }
    let place = cache::place(args.no_cache)?;
    let cache = place.as_ref().and_then(|place| place.open().ok());
    let progress = Progress::new(globals);
    let job = Job { cache: cache.as_ref(), ..inputs::job(&source, inputs, globals, &progress) };
    let ask = Bisect {
        over,
        stock,
        patches,
        history,
        criterion,
        layer: args.layer,
        replay: args.replay.clone(),
        change: None,
    };
    let report = bisect(&job, &ask);
    progress.finish();
    Ok(report?)
}

/// Writes a file of a result folder, under a temporary name until it is whole.
pub(crate) fn write(out: &Path, name: &str, text: &str) -> Result<()> {
    let (file, partial) = (out.join(name), out.join(format!(".{name}.partial")));
    let written = std::fs::create_dir_all(out)
        .and_then(|()| std::fs::write(&partial, text))
        .and_then(|()| std::fs::rename(&partial, &file));
    let failed = |e| karat_model::Error::input("the result can't be written").at(file.display().to_string()).found(e);
    Ok(written.map_err(failed)?)
}
