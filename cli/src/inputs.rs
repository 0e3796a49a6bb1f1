//! Scenarios or token files as requests.

use std::collections::BTreeSet;
use std::path::Path;

use karat_audit::{Inputs, Job};
use karat_model::Checkpoint;
use karat_model::prompt::{Encoder, Tokenizer};
use karat_scenarios::Content;

use crate::args::Globals;
use crate::failure::{Failure, Result};
use crate::model::Source;
use crate::progress::Progress;
use crate::stop;

/// A built-in scenario by name, or a file.
pub(crate) fn content(name: &str) -> Result<Content> {
    let is_file = Path::new(name).extension().is_some_and(|e| e.eq_ignore_ascii_case("toml"));
    Ok(if is_file { Content::load(Path::new(name))? } else { Content::builtin(name)? })
}

/// What to run: a token file, or scenarios (the story when none is named).
pub(crate) fn read(checkpoint: &Checkpoint, names: &[String], tokens: Option<&Path>) -> Result<Inputs> {
    if let Some(file) = tokens {
        if !names.is_empty() {
            return Err(Failure::usage("name scenarios or a token file (--tokens), not both"));
        }
        return token_file(checkpoint, file);
    }
    let story = [karat_scenarios::story().name.to_owned()];
    scenarios(checkpoint, if names.is_empty() { &story } else { names })
}

/// What every command that runs a model asks for alike: without a cache, every tap and layer.
pub(crate) fn job<'a>(source: &Source, inputs: Inputs, globals: Globals, progress: &'a Progress) -> Job<'a> {
    Job {
        random_weights: source.random_weights,
        threads: globals.threads(),
        producer: format!("karat {}", env!("CARGO_PKG_VERSION")),
        command: std::env::args().skip(1).collect(),
        ..Job::new(source.checkpoint.clone(), inputs, progress, stop::on_interrupt())
    }
}

/// Every conversation of these scenarios.
pub(crate) fn scenarios(checkpoint: &Checkpoint, names: &[String]) -> Result<Inputs> {
    let contents: Vec<Content> = names.iter().map(|name| content(name)).collect::<Result<_>>()?;
    let (tokenizer, encoder) = (Tokenizer::of(checkpoint)?, Encoder::of(checkpoint)?);
    tokenizer.check_vocab(checkpoint.config().vocab_size)?;
    let mut inputs = Inputs::default();
    let mut seen = BTreeSet::new();
    for content in contents {
        let name = content.name().to_owned();
        if !seen.insert(name.clone()) {
            return Err(Failure::usage(format!("scenario `{name}` is named twice")));
        }
        for scenario in content.conversations(&tokenizer, &encoder)? {
            let rendered = scenario.render(&tokenizer, &encoder)?;
            inputs.requests.seqs.push(rendered.sequence);
            inputs.scenarios.push(name.clone());
            inputs.variants.push(scenario.maker);
            inputs.asks.push(rendered.asks);
            inputs.chunks.push(scenario.chunk);
            inputs.free.push(scenario.free);
        }
    }
    Ok(inputs)
}

/// A token file's sequences, under the file's name.
fn token_file(checkpoint: &Checkpoint, file: &Path) -> Result<Inputs> {
    let label = file.display().to_string();
    let unreadable = |e| karat_model::Error::input("the token file can't be read").at(&label).found(e);
    let bytes = std::fs::read(file).map_err(unreadable)?;
    let requests = karat_scenarios::read_tokens(&label, &bytes, checkpoint.config().vocab_size)?;
    let name = file.file_name().map_or(label.clone(), |n| n.to_string_lossy().into_owned());
    Ok(Inputs { scenarios: vec![name; requests.seqs.len()], requests, ..Inputs::default() })
}
