//! `karat trace`.

use std::path::Path;
use std::time::Instant;

use karat_audit::next_ids;
use karat_optimized::{History, Optimized, Plan, Stock};
use karat_reference::{Golden, Mode};
use karat_seam::{Block, Lane, NoTaps, Phase, Requests, RowId, Site, Tap, Visitor};
use karat_trace::{Header, History as TraceHistory, ModelId, Order, Sample, SketchWriter, Step, TapGlob, TraceWriter};

use super::audit::patch_list;
use crate::args::{Capture, Globals, PathName, Trace};
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::{inputs, model, output};

pub(crate) fn run(args: &Trace, globals: Globals) -> Result<u8> {
    let computed = args.computing.open()?;
    if computed.backend().is_some() && args.path != PathName::Golden {
        return Err(Failure::usage("--backend cuda needs --path golden: the low-precision path is computed here"));
    }
    let glob = args.taps.as_deref().map_or_else(|| Ok(TapGlob::all()), TapGlob::new)?;
    check_path(args)?;
    let source = model::open(args.model.as_deref())?;
    let mut names = args.scenarios.clone();
    names.extend(args.scenario.clone());
    let inputs = inputs::read(&source.checkpoint, &names, args.tokens.as_deref())?;
    let (checkpoint, requests) = (source.checkpoint.clone(), inputs.requests.clone());
    let threads = globals.threads();
    let path: Box<dyn karat_seam::Path> = match args.path {
        PathName::Golden => {
            Box::new(Golden::new(checkpoint, requests, Mode::F32, threads)?.computed_by(computed.backend()))
        }
        PathName::Stock | PathName::Optimized => {
            let patches = match args.path {
                PathName::Optimized => patch_list(args.patches.as_deref(), &[])?,
                _ => Vec::new(),
            };
            let plan = Plan { stock: stock(args)?, patches, history: History::Cold };
            Box::new(Optimized::new(checkpoint, requests, plan, threads)?)
        }
    };
    let progress = Progress::new(globals);
    let header = Header {
        producer: format!("karat {} {}", env!("CARGO_PKG_VERSION"), path.name()),
        model: ModelId::new(source.checkpoint.config_sha256(), source.checkpoint.weights_sha256()),
        history: history(path.as_ref(), &inputs.requests),
        ..Header::default()
    };
    // Every draft block, and those of which something is kept.
    let all: Vec<u16> = (0..path.blocks().mtp).collect();
    let seen = |i: &u16| Tap::ALL.iter().any(|tap| glob.admits(Site { block: Block::Mtp(*i), tap: *tap }));
    let drafts: Vec<u16> = all.iter().copied().filter(seen).collect();
    let start = Instant::now();
    let (kept, folder) = match args.capture {
        Capture::Off => {
            // Every tap is skipped: what the run alone costs.
            let recorded = record(path.as_ref(), &mut NoTaps, &all, &progress);
            computed.done(recorded)?;
            ("off", None)
        }
        Capture::Sketch => {
            let mut writer = SketchWriter::create(out(args)?, &inputs.requests, glob)?;
            computed.done(record(path.as_ref(), &mut writer, &drafts, &progress))?;
            ("sketch", Some(writer.finish()?))
        }
        Capture::Full => {
            let mut writer = TraceWriter::create(out(args)?, &inputs.requests, header, glob, Order::LayerMajor)?;
            let recorded = match args.sample {
                None => record(path.as_ref(), &mut writer, &drafts, &progress),
                Some(n) => {
                    let window = source.checkpoint.config().sliding_window;
                    let mut sample = Sample::evenly(&mut writer, &inputs.requests, n as usize, window);
                    // Of a draft block's cache no position's pages are told apart.
                    record(path.as_ref(), &mut sample, &[], &progress)
                }
            };
            computed.done(recorded)?;
            ("full", Some(writer.finish()?))
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    progress.finish();
    let rows: usize = inputs.requests.seqs.iter().map(|s| s.ids.len()).sum();
    if globals.json {
        output::json(&serde_json::json!({
            "trace": folder, "capture": kept, "seconds": seconds, "path": path.name(), "sequences": inputs.requests.seqs.len(), "rows": rows,
            "random_weights": source.random_weights,
        }));
    } else {
        let made = if source.random_weights { " (random weights)" } else { "" };
        let sequences = inputs.requests.seqs.len();
        let name = path.name();
        let place = folder.map_or_else(|| "nothing kept".to_owned(), |folder| folder.display().to_string());
        let what = if kept == "sketch" { " as sketches" } else { "" };
        output::stdout(&format!("{place}: {name}{made}, {sequences} sequences, {rows} rows{what}"));
    }
    Ok(0)
}

/// The folder to make.
fn out(args: &Trace) -> Result<&Path> {
    args.out.as_deref().ok_or_else(|| Failure::usage("--out DIR is needed: the folder to write"))
}

fn check_path(args: &Trace) -> Result<()> {
    let golden = args.path == PathName::Golden;
    if args.capture == Capture::Off && (args.out.is_some() || args.taps.is_some()) {
        return Err(Failure::usage("--capture off keeps nothing: --out and --taps have no meaning with it"));
    }
    if args.sample == Some(0) {
        return Err(Failure::usage("--sample 0 records nothing; give at least 1"));
    }
    if golden && args.stock.is_some() {
        return Err(Failure::usage("--stock has no meaning with --path golden"));
    }
    if args.path != PathName::Optimized && args.patches.is_some() {
        return Err(Failure::usage("--patches needs --path optimized"));
    }
    Ok(())
}

fn stock(args: &Trace) -> Result<Stock> {
    match args.stock.as_deref() {
        Some(word) => Ok(word.parse()?),
        None => Ok(Stock::Official),
    }
}

/// Steps of every sequence that was not one prefill.
fn history(path: &dyn karat_seam::Path, requests: &Requests) -> Vec<TraceHistory> {
    let mut out = Vec::new();
    for (seq, sequence) in requests.seqs.iter().enumerate() {
        let mut steps: Vec<Step> = Vec::new();
        for pos in 0..sequence.ids.len() as u32 {
            let phase = path.phase_of(RowId::new(seq as u32, pos));
            match steps.last_mut() {
                Some(step) if step.kind == phase.name() && phase == Phase::Prefill => step.end += 1,
                _ => steps.push(Step { kind: phase.name().to_string(), start: pos, end: pos + 1 }),
            }
        }
        if steps.iter().any(|s| s.kind != Phase::Prefill.name()) {
            out.push(TraceHistory { sequence: sequence.id.clone(), steps });
        }
    }
    out
}

/// One pass of a path through all its layers, its head and some of its draft blocks, as far as it has them.
fn record(
    path: &dyn karat_seam::Path,
    see: &mut dyn Visitor,
    drafts: &[u16],
    progress: &Progress,
) -> karat_audit::Result<()> {
    let layers = path.blocks().layers;
    let total = u64::from(layers) + 1 + drafts.len() as u64;
    let mut x = path.embed(see)?;
    for l in 0..layers {
        progress.show(u64::from(l), total, &format!("layer {l}"));
        let layer = path.layer(l)?;
        let mut lanes = [Lane::new(&x, &mut *see)];
        layer.run(&mut lanes)?;
        let out = lanes[0].out.take();
        let nothing = || karat_seam::Error::Request(format!("layer {l} left no streams"));
        x = out.ok_or_else(nothing)?.streams;
    }
    progress.show(u64::from(layers), total, "head");
    path.head(&mut [Lane::new(&x, &mut *see)])?;
    let next = next_ids(path.requests(), &x.rows)?;
    for (n, i) in drafts.iter().enumerate() {
        progress.show(u64::from(layers) + 1 + n as u64, total, &format!("mtp.{i}"));
        match path.mtp(*i, &mut [Lane::new(&x, &mut *see)], &next) {
            Ok(_) | Err(karat_seam::Error::Unsupported { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
