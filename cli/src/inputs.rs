//! Scenarios or token files as requests.

use std::collections::BTreeSet;
use std::path::Path;

use karat_audit::Inputs;
use karat_model::Checkpoint;
use karat_model::prompt::{Encoder, Tokenizer};
use karat_scenarios::Scenario;

use crate::failure::{Failure, Result};

/// A built-in scenario by name, or a file.
pub(crate) fn scenario(name: &str) -> Result<Scenario> {
    let is_file = Path::new(name).extension().is_some_and(|e| e.eq_ignore_ascii_case("toml"));
    Ok(if is_file { Scenario::load(Path::new(name))? } else { Scenario::builtin(name)? })
}

/// What to run: a token file, or scenarios (all built-in ones when none is named).
pub(crate) fn read(checkpoint: &Checkpoint, names: &[String], tokens: Option<&Path>) -> Result<Inputs> {
    if let Some(file) = tokens {
        if !names.is_empty() {
            return Err(Failure::usage("name scenarios or a token file (--tokens), not both"));
        }
        return token_file(checkpoint, file);
    }
    let scenarios: Vec<Scenario> = match names {
        [] => karat_scenarios::list().iter().map(|b| scenario(b.name)).collect::<Result<_>>()?,
        names => names.iter().map(|name| scenario(name)).collect::<Result<_>>()?,
    };
    let (tokenizer, encoder) = (Tokenizer::of(checkpoint)?, Encoder::of(checkpoint)?);
    tokenizer.check_vocab(checkpoint.config().vocab_size)?;
    let mut inputs = Inputs::default();
    let mut seen = BTreeSet::new();
    for scenario in scenarios {
        if !seen.insert(scenario.name.clone()) {
            return Err(Failure::usage(format!("scenario `{}` is named twice", scenario.name)));
        }
        inputs.requests.seqs.push(scenario.to_sequence(&tokenizer, &encoder)?);
        inputs.scenarios.push(scenario.name);
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
    Ok(Inputs { scenarios: vec![name; requests.seqs.len()], requests })
}
