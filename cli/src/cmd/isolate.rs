//! `karat isolate`.

use std::path::PathBuf;

use clap::Args;
use karat_audit::{Inputs, Isolate, Job, Subject, isolate};
use karat_optimized::History;

use super::audit::low_precision;
use super::bisect::write;
use crate::args::Globals;
use crate::failure::Result;
use crate::model::{self, Source};
use crate::progress::Progress;
use crate::{cache, inputs, output, summary};

/// Conversations of the recall step when none are named: short ones of each kind of question.
const QUICK: [&str; 3] = ["turn-two", "to-a-file", "tool-result"];

/// `karat isolate`.
#[derive(Debug, Args)]
pub(crate) struct IsolateArgs {
    /// Scenarios: names of built-in ones or .toml files; by default tic-tac-toe, and short ones for the recall step
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Checkpoint folder; without it the mini golden model
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Stock profile under the patches: official, sglang, sglang-sm120, vllm or none (f32, the control)
    #[arg(long, value_name = "PROFILE")]
    stock: Option<String>,
    /// Speed patches, all of them at once: all (the default set), none, or names with commas between
    #[arg(long, value_name = "LIST")]
    patches: Option<String>,
    /// Leave this patch out (repeatable)
    #[arg(long, value_name = "PATCH")]
    without: Vec<String>,
    /// Token ids instead of scenarios
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Take nothing from the cache of earlier runs and leave nothing there (as KARAT_NO_CACHE=1 does)
    #[arg(long)]
    no_cache: bool,
    /// Write the result (isolate.json and isolate.txt) here
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &IsolateArgs, globals: Globals) -> Result<u8> {
    let (stock, patches) = low_precision(args.stock.as_deref(), args.patches.as_deref(), &args.without)?;
    let source = model::open(args.model.as_deref())?;
    let inputs = inputs::read(&source.checkpoint, &args.scenarios, args.tokens.as_deref())?;
    let quick = quick(args, &source, &inputs);
    let place = cache::place(args.no_cache)?;
    let cache = place.as_ref().and_then(|place| place.open().ok());
    let progress = Progress::new(globals);
    let job = Job { cache: cache.as_ref(), ..inputs::job(&source, inputs, globals, &progress) };
    let subject = Subject { stock, patches, history: History::Cold };
    let result = isolate(&job, &Isolate { subject, quick, arguments: arguments(args), change: None, books: None });
    progress.finish();
    let synthesis = result?;
    let value = summary::isolate::json(&synthesis);
    let style = output::Style::of_stdout();
    if let Some(out) = &args.out {
        write(out, "isolate.json", &(serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"))?;
        write(out, "isolate.txt", &(summary::isolate::text(&synthesis, output::Style::plain()) + "\n"))?;
    }
    if globals.json {
        output::json(&value);
    } else {
        output::page(&summary::isolate::text(&synthesis, style));
    }
    Ok(synthesis.verdict.exit_code())
}

/// What the recall step asks: the named conversations where they ask something, else the quick set. A model whose prompts
/// can't be made has none; the other steps run all the same.
fn quick(args: &IsolateArgs, source: &Source, inputs: &Inputs) -> std::result::Result<Inputs, String> {
    let is_named = !args.scenarios.is_empty() || args.tokens.is_some();
    if is_named && inputs.asks.iter().any(|asks| !asks.is_empty()) {
        return Ok(inputs.clone());
    }
    if args.tokens.is_some() {
        return Err("token files ask nothing: name scenarios for it".to_owned());
    }
    let names: Vec<String> = QUICK.iter().map(ToString::to_string).collect();
    inputs::scenarios(&source.checkpoint, &names).map_err(|failure| failure.message().to_owned())
}

/// Model and conversations, as they were typed.
fn arguments(args: &IsolateArgs) -> String {
    let mut out: Vec<String> = args.scenarios.iter().map(|s| quoted(s)).collect();
    for (name, path) in [("--model", &args.model), ("--tokens", &args.tokens)] {
        out.extend(path.iter().flat_map(|p| [name.to_owned(), quoted(&p.display().to_string())]));
    }
    out.join(" ")
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
