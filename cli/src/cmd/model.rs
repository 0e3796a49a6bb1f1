//! `karat model inspect|new|verify|diff|encoding`.

use std::path::Path;

use karat_model::prompt::encoding_from_python;
use karat_model::{Checkpoint, Error, Experts, Geometry, new_model_with, write_model};
use serde_json::json;

use crate::args::{Globals, Model};
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::{model, output};

pub(crate) fn run(command: &Model, globals: Globals) -> Result<u8> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(globals.threads()).build();
    let pool = pool.map_err(|e| Failure::usage(format!("threads cannot be started: {e}")))?;
    pool.install(|| match command {
        Model::Inspect { dir } => inspect(dir.as_deref(), globals),
        Model::New { geometry, seed, experts, out } => make((geometry, experts), *seed, out, globals),
        Model::Verify { dir } => verify(dir.as_deref(), globals),
        Model::Diff { a, b } => diff(a, b, globals),
        Model::Encoding { file, out } => encoding(file, out, globals),
    })
}

/// Prints a report as json or as text.
fn print(globals: Globals, text: &impl std::fmt::Display, data: serde_json::Result<serde_json::Value>) {
    if globals.json {
        output::json(&data.unwrap_or_default());
    } else {
        output::stdout(&text.to_string());
    }
}

fn inspect(dir: Option<&Path>, globals: Globals) -> Result<u8> {
    let source = model::open(dir)?;
    let summary = karat_model::inspect::inspect(&source.checkpoint)?;
    print(globals, &summary, serde_json::to_value(&summary));
    Ok(0)
}

fn make((geometry, experts): (&str, &str), seed: u64, out: &Path, globals: Globals) -> Result<u8> {
    let Some(shape) = Geometry::from_name(geometry) else {
        return Err(Failure::usage(format!("--geometry: expected default or mini, found `{geometry}`")));
    };
    let Some(format) = Experts::from_name(experts) else {
        return Err(Failure::usage(format!("--experts: expected mxfp4 or nvfp4, found `{experts}`")));
    };
    let files = new_model_with(shape, seed, format);
    write_model(out, &files)?;
    let bytes: usize = files.values().map(|f| f.len()).sum();
    if globals.json {
        let names: Vec<&String> = files.keys().collect();
        output::json(&json!({
            "model": out, "geometry": geometry, "seed": seed, "experts": experts, "random_weights": true, "files": names,
            "bytes": bytes,
        }));
    } else {
        let place = out.display();
        output::stdout(&format!("{place}: {geometry} geometry, random weights of seed {seed}, {bytes} bytes"));
        if format == Experts::Nvfp4 {
            output::stdout("NVFP4 experts: golden is these bytes dequantised, not the values that they were made from");
        }
    }
    Ok(0)
}

fn verify(dir: Option<&Path>, globals: Globals) -> Result<u8> {
    let progress = Progress::new(globals);
    let show = |done: usize, all: usize| progress.show(done as u64, all as u64, "tensors");
    let report = match dir {
        Some(dir) => karat_model::verify::verify(dir, &show)?,
        None => karat_model::verify::verify_memory(model::LABEL, model::default_files()?, &show)?,
    };
    progress.finish();
    print(globals, &report, serde_json::to_value(&report));
    // A checkpoint that isn't what its config says is unusable input, like a file that can't be read.
    Ok(if report.ok() { 0 } else { 3 })
}

fn diff(a: &Path, b: &Path, globals: Globals) -> Result<u8> {
    let progress = Progress::new(globals);
    let show = |done: usize, all: usize| progress.show(done as u64, all as u64, "tensors");
    let report = karat_model::diff::diff(&Checkpoint::open(a)?, &Checkpoint::open(b)?, &show)?;
    progress.finish();
    print(globals, &report, serde_json::to_value(&report));
    Ok(u8::from(!report.same()))
}

fn encoding(file: &Path, out: &Path, globals: Globals) -> Result<u8> {
    let label = file.display().to_string();
    let source = std::fs::read(file).map_err(|e| Error::input("the file can't be read").at(&label).found(e))?;
    let found = encoding_from_python(&label, &source)?;
    if out.exists() {
        return Err(Failure::usage(format!("{}: exists already; name another file or remove this one", out.display())));
    }
    // Whole or not at all: written beside its place, then renamed.
    let mut partial = out.as_os_str().to_owned();
    partial.push(".partial");
    let write = std::fs::write(&partial, found.texts.to_json()).and_then(|()| std::fs::rename(&partial, out));
    write.map_err(|e| Failure::usage(format!("{}: cannot be written: {e}", out.display())))?;
    if globals.json {
        output::json(&json!({"encoding": out, "warnings": found.warnings}));
    } else {
        for warning in &found.warnings {
            output::stderr(&format!("warning: {warning}"));
        }
        output::stdout(&format!("{}: written", out.display()));
    }
    Ok(0)
}
