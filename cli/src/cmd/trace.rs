//! `karat trace`.

use karat_optimized::{History, Optimized, Plan, Stock};
use karat_reference::{Golden, Mode};
use karat_seam::{Lane, Path, Phase, Requests, RowId, Visitor};
use karat_trace::{Header, History as TraceHistory, ModelId, Order, Sample, Step, TapGlob, TraceWriter};

use super::audit::patch_list;
use crate::args::{Globals, PathName, Trace};
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::{inputs, model, output};

pub(crate) fn run(args: &Trace, globals: Globals) -> Result<u8> {
    let glob = args.taps.as_deref().map_or_else(|| Ok(TapGlob::all()), TapGlob::new)?;
    check_path(args)?;
    let source = model::open(args.model.as_deref())?;
    let mut names = args.scenarios.clone();
    names.extend(args.scenario.clone());
    let inputs = inputs::read(&source.checkpoint, &names, args.tokens.as_deref())?;
    let (checkpoint, requests) = (source.checkpoint.clone(), inputs.requests.clone());
    let threads = globals.threads();
    let path: Box<dyn Path> = match args.path {
        PathName::Golden => Box::new(Golden::new(checkpoint, requests, Mode::F32, threads)?),
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
    let mut writer = TraceWriter::create(&args.out, &inputs.requests, header, glob, Order::LayerMajor)?;
    match args.sample {
        None => record(path.as_ref(), &mut writer, &progress)?,
        Some(n) => {
            let window = source.checkpoint.config().sliding_window;
            let mut sample = Sample::evenly(&mut writer, &inputs.requests, n as usize, window);
            record(path.as_ref(), &mut sample, &progress)?;
        }
    }
    let folder = writer.finish()?;
    progress.finish();
    let rows: usize = inputs.requests.seqs.iter().map(|s| s.ids.len()).sum();
    if globals.json {
        output::json(&serde_json::json!({
            "trace": folder, "path": path.name(), "sequences": inputs.requests.seqs.len(), "rows": rows,
            "random_weights": source.random_weights,
        }));
    } else {
        let made = if source.random_weights { " (random weights)" } else { "" };
        let sequences = inputs.requests.seqs.len();
        let name = path.name();
        output::stdout(&format!("{}: {name}{made}, {sequences} sequences, {rows} rows", folder.display()));
    }
    Ok(0)
}

fn check_path(args: &Trace) -> Result<()> {
    let golden = args.path == PathName::Golden;
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
fn history(path: &dyn Path, requests: &Requests) -> Vec<TraceHistory> {
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

/// One pass of a path through all its layers.
fn record(path: &dyn Path, see: &mut dyn Visitor, progress: &Progress) -> Result<()> {
    let layers = path.blocks().layers;
    let total = u64::from(layers) + 1;
    let mut x = path.embed(see)?;
    for l in 0..layers {
        progress.show(u64::from(l), total, &format!("layer {l}"));
        let layer = path.layer(l)?;
        let mut lanes = [Lane::new(&x, &mut *see)];
        layer.run(&mut lanes)?;
        let out = lanes[0].out.take();
        x = out.ok_or_else(|| Failure::bug("a layer left no streams"))?.streams;
    }
    progress.show(u64::from(layers), total, "head");
    path.head(&mut [Lane::new(&x, &mut *see)])?;
    Ok(())
}
