//! `karat audit`.

use std::path::Path;

use karat_audit::{Inputs, Job, Subject, TraceJob};
use karat_bundle::Bundle;
use karat_diff::Claims;
use karat_optimized::{History, Stock};
use karat_trace::TapGlob;

use super::{histories, live};
use crate::args::{Audit, Globals};
use crate::backend::Place;
use crate::failure::{Failure, Result};
use crate::model::{self, Source};
use crate::progress::Progress;
use crate::{cache, inputs, output, stop, summary};

pub(crate) fn run(args: &Audit, globals: Globals) -> Result<u8> {
    let bundle = match make(args, globals)? {
        Made::Printed(code) => return Ok(code),
        Made::Bundle(bundle) => bundle,
    };
    if let Some(out) = &args.out {
        karat_bundle::write(out, &bundle)?;
    }
    repro_note(args);
    if globals.json {
        output::json(&summary::json(&bundle));
    } else {
        let page = if args.connect.endpoint.is_some() { summary::endpoint::audit_text } else { summary::text };
        output::page(&page(&bundle, args.out.as_deref(), output::Style::of_stdout()));
    }
    Ok(bundle.verdict.exit_code)
}

/// Says so when no op was left where one was asked for.
pub(crate) fn repro_note(args: &Audit) {
    if let Some(dir) = args.repro.as_ref().filter(|dir| !dir.join("repro.py").exists()) {
        output::stderr(&format!("--repro: no op of a layer is at fault: nothing was written to {}", dir.display()));
    }
}

/// What an audit's arguments ask for.
pub(crate) enum Made {
    /// A bundle.
    Bundle(Box<Bundle>),
    /// Something that is printed already (several histories, a server): its exit code.
    Printed(u8),
}

/// Runs what the arguments ask for.
pub(crate) fn make(args: &Audit, globals: Globals) -> Result<Made> {
    if args.claims.is_some() && args.candidate.is_none() && args.connect.endpoint.is_none() {
        return Err(Failure::usage("--claims says what a trace (--candidate) or a server (--endpoint) claims"));
    }
    if let Some(url) = &args.connect.endpoint {
        if args.patching.asked()? {
            return Err(Failure::usage(
                "--candidate-backend has no meaning with --endpoint: the candidate is the server",
            ));
        }
        let place = args.computing.open()?;
        if place.backend().is_some() {
            return Err(Failure::usage("--backend cuda has no meaning with --endpoint: golden is computed here"));
        }
        return Ok(Made::Bundle(Box::new(live::audit(args, url, globals)?)));
    }
    let elsewhere = args.computing.backend.as_deref() == Some("cuda");
    let partition = args.partition.as_deref().map(part_of).transpose()?;
    let taps = args.taps.as_deref().map(TapGlob::new).transpose()?;
    if args.layers == Some(0) {
        return Err(Failure::usage("--layers 0 compares nothing; give at least 1"));
    }
    let several = if args.candidate.is_none() { histories::list(args.histories.as_deref())? } else { None };
    if several.is_some() && (args.rerun || args.repro.is_some()) {
        let name = if args.rerun { "--rerun" } else { "--repro" };
        return Err(Failure::usage(format!("{name} has no meaning with several histories: name one")));
    }
    if several.is_some() && elsewhere {
        return Err(Failure::usage("--backend cuda has no meaning with several histories: golden runs once, here"));
    }
    let by_kernel = args.patching.asked()?;
    if by_kernel && (several.is_some() || args.candidate.is_some()) {
        let what = if several.is_some() { "several histories" } else { "--candidate" };
        return Err(Failure::usage(format!("--candidate-backend cuda has no meaning with {what}")));
    }
    let computed = args.computing.open_with(by_kernel)?;
    if let Some(dir) = &args.repro {
        karat_audit::repro_place(dir)?;
    }
    if partition.is_some() && (several.is_some() || args.candidate.is_some()) {
        let what = if several.is_some() { "several histories" } else { "--candidate" };
        return Err(Failure::usage(format!("--partition has no meaning with {what}: all of it is compared at once")));
    }
    // From here on: a model takes a moment to open.
    let _ = stop::on_interrupt();
    let progress = Progress::new(globals);
    let place = cache::place(args.no_cache)?;
    let (cache, no_cache) = match place.as_ref().map(cache::Place::open) {
        Some(Ok(cache)) => (Some(cache), String::new()),
        Some(Err(why)) => (None, why),
        None => (None, String::new()),
    };
    let states = cache::hold(args.hold.as_deref())?;
    let source = model::open(args.model.as_deref())?;
    let layers = source.checkpoint.config().layers.len();
    if let Some(asked) = args.layers.filter(|n| usize::from(*n) > layers) {
        return Err(Failure::usage(format!("--layers {asked}: the model has {layers}")));
    }
    let start = |inputs: Inputs| Job {
        taps: taps.clone(),
        layers: args.layers,
        floor: args.floor,
        second_look: partition.is_none(),
        rerun: args.rerun,
        repro: args.repro.clone(),
        cache: cache.as_ref(),
        states,
        backend: computed.backend(),
        kernels: computed.kernels(),
        reduce: computed.all_reduce(),
        ..inputs::job(&source, inputs, globals, &progress)
    };
    if let Some(histories) = several {
        let inputs = inputs::read(&source.checkpoint, &args.scenarios, args.tokens.as_deref())?;
        let code = histories::run(args, histories, &start(inputs), globals.json);
        progress.finish();
        return code.map(Made::Printed);
    }
    if args.page.is_some() {
        return Err(Failure::usage("--page has a meaning where histories are compared: --histories all, or a list"));
    }
    let mut part = None;
    let mut bundle = match &args.candidate {
        Some(dir) => candidate(args, dir, &source, &computed, start)?,
        None => {
            let subject = subject(args)?;
            let mut inputs = inputs::read(&source.checkpoint, &args.scenarios, args.tokens.as_deref())?;
            if let Some((index, of)) = partition {
                let (own, rest) = inputs.part(index, of);
                (inputs, part) = (own, Some(rest));
            }
            computed.done(karat_audit::audit(&start(inputs), &subject))?
        }
    };
    progress.finish();
    if !no_cache.is_empty() {
        bundle.run.cache.trouble = no_cache;
    }
    computed.tell(&mut bundle.run);
    if let Some(part) = part {
        karat_bundle::merge::as_part(&mut bundle, part);
    }
    Ok(Made::Bundle(Box::new(bundle)))
}

/// `I/N`: part I, from 1, of N.
pub(crate) fn part_of(text: &str) -> Result<(u64, u64)> {
    let parsed = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    match parsed {
        Some((i, n)) if (1..=n).contains(&i) && n <= 4096 => Ok((i, n)),
        _ => Err(Failure::usage(format!("--partition: expected I/N with I from 1 to N, found `{text}`"))),
    }
}

/// Another engine's trace.
fn candidate<'a>(
    args: &Audit,
    dir: &Path,
    source: &Source,
    computed: &Place,
    start: impl FnOnce(Inputs) -> Job<'a>,
) -> Result<Bundle> {
    for (name, given) in [
        ("a scenario", !args.scenarios.is_empty()),
        ("--stock", args.stock.is_some()),
        ("--without", !args.without.is_empty()),
        ("--histories", args.histories.is_some()),
    ] {
        if given {
            return Err(Failure::usage(format!("{name} has no meaning with --candidate: the trace holds what ran")));
        }
    }
    let word = args.claims.as_deref().unwrap_or_default();
    let Some(claims) = Claims::from_name(word) else {
        let names: Vec<&str> = Claims::ALL.iter().map(|c| c.name()).collect();
        return Err(Failure::usage(format!("--claims: expected {}, found `{word}`", names.join(", "))));
    };
    let (trace, inputs) = karat_audit::requests_of(dir)?;
    let expected = match &args.tokens {
        Some(file) => Some(inputs::read(&source.checkpoint, &[], Some(file))?.requests),
        None => None,
    };
    let patches = args.patches.as_deref().map(|list| patch_list(Some(list), &[])).transpose()?;
    let rerun = args.rerun_trace.as_deref().map(karat_audit::requests_of).transpose()?.map(|(trace, _)| trace);
    computed.done(karat_audit::audit_trace(
        &start(inputs),
        &TraceJob { trace, claims, rerun, patches, expected, cold: !args.no_cold_run },
    ))
}

/// The optimized path.
fn subject(args: &Audit) -> Result<Subject> {
    let history: History = match args.histories.as_deref() {
        Some(word) => word.parse()?,
        None => History::Cold,
    };
    let (stock, patches) = low_precision(args.stock.as_deref(), args.patches.as_deref(), &args.without)?;
    Ok(Subject { stock, patches, history })
}

/// The low-precision path: its stock profile and speed patches.
pub(crate) fn low_precision(
    stock: Option<&str>,
    patches: Option<&str>,
    without: &[String],
) -> Result<(Stock, Vec<String>)> {
    let stock: Stock = match stock {
        Some(word) => word.parse()?,
        None => Stock::Official,
    };
    Ok((stock, patch_list(patches, without)?))
}

/// `all` (the default set), `none` or names; less what `--without` names.
pub(crate) fn patch_list(list: Option<&str>, without: &[String]) -> Result<Vec<String>> {
    let known: Vec<&str> = karat_optimized::patches().iter().map(|p| p.name).collect();
    let mut patches: Vec<String> = match list.unwrap_or("all") {
        "all" => karat_optimized::DEFAULT_PATCHES.iter().map(ToString::to_string).collect(),
        "none" => Vec::new(),
        names => names.split(',').map(|n| n.trim().to_string()).collect(),
    };
    for name in without {
        if !known.contains(&name.as_str()) {
            return Err(Failure::usage(format!("--without: expected {}, found `{name}`", known.join(", "))));
        }
        patches.retain(|p| p.split(':').next() != Some(name));
    }
    Ok(patches)
}
