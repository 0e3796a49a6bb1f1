//! `karat scenario list|render|generate|import`.

use std::path::Path;

use karat_model::prompt::{Encoder, Tokenizer};
use karat_scenarios::{Ask, Scenario, list};
use karat_seam::SpanKind;
use serde_json::json;

use crate::args::{Globals, Scenario as Args};
use crate::failure::{Failure, Result};
use crate::{inputs, model, output};

pub(crate) fn run(args: &Args, globals: Globals) -> Result<u8> {
    match args {
        Args::List { grep } => titles(grep.as_deref(), globals),
        Args::Render { scenario, number, model } => render(scenario, *number, model.as_deref(), globals),
        Args::Generate { scenario, out, model } => generate(scenario, out, model.as_deref(), globals),
        Args::Import(args) => super::import::run(args, globals),
    }
}

fn titles(grep: Option<&str>, globals: Globals) -> Result<u8> {
    let mut found = Vec::new();
    for builtin in list() {
        let content = inputs::content(builtin.name)?;
        let contains = |text: &str| grep.is_none_or(|g| text.to_lowercase().contains(&g.to_lowercase()));
        if contains(builtin.name) || contains(content.title()) {
            found.push((builtin.name, content.title().to_owned()));
        }
    }
    if globals.json {
        let scenarios: Vec<_> = found.iter().map(|(name, title)| json!({"name": name, "title": title})).collect();
        output::json(&json!({"scenarios": scenarios}));
    } else {
        let lines: Vec<String> = found.iter().map(|(name, title)| format!("{name}: {title}")).collect();
        output::stdout(&lines.join("\n"));
    }
    Ok(0)
}

/// Tokenizer and encoder of a model, and the conversations that they give.
fn conversations(name: &str, dir: Option<&Path>) -> Result<(Tokenizer, Encoder, Vec<Scenario>)> {
    let content = inputs::content(name)?;
    let source = model::open(dir)?;
    let (tokenizer, encoder) = (Tokenizer::of(&source.checkpoint)?, Encoder::of(&source.checkpoint)?);
    let made = content.conversations(&tokenizer, &encoder)?;
    Ok((tokenizer, encoder, made))
}

fn render(name: &str, number: usize, dir: Option<&Path>, globals: Globals) -> Result<u8> {
    let (tokenizer, encoder, made) = conversations(name, dir)?;
    let Some(scenario) = made.get(number) else {
        let what = format!("{name} has {} conversations; --number counts from 0", made.len());
        return Err(Failure::usage(what));
    };
    let rendered = scenario.render(&tokenizer, &encoder)?;
    let word = |kind| if kind == SpanKind::Generated { "generated" } else { "prompt" };
    let sequence = &rendered.sequence;
    if globals.json {
        let spans: Vec<_> =
            sequence.spans().iter().map(|s| json!({"kind": word(s.kind), "start": s.start, "end": s.end})).collect();
        let asks: Vec<_> = rendered.asks.iter().map(ask).collect();
        output::json(&json!({
            "name": scenario.name, "title": scenario.title, "text": rendered.text, "input_ids": *sequence.ids,
            "spans": spans, "rerendered": rendered.rerendered, "chunk": scenario.chunk, "questions": asks,
        }));
        return Ok(0);
    }
    let mut text = rendered.text.clone();
    text.push_str(&format!("\n\n{} ids", sequence.ids.len()));
    for span in sequence.spans() {
        text.push_str(&format!("; {} {}..{}", word(span.kind), span.start, span.end));
    }
    for a in &rendered.asks {
        let told = a.told.map_or(String::new(), |t| format!(", told at {t}"));
        text.push_str(&format!("\n{}..{} {}: {}{told}", a.answer.start, a.answer.end, a.kind, a.expected));
    }
    output::stdout(&text);
    Ok(0)
}

fn ask(a: &Ask) -> serde_json::Value {
    json!({
        "kind": a.kind, "fact": a.fact, "expected": a.expected, "told": a.told, "start": a.answer.start, "end": a.answer.end,
    })
}

/// One file a conversation, in a folder that was not there before.
fn generate(name: &str, out: &Path, dir: Option<&Path>, globals: Globals) -> Result<u8> {
    refuse_existing(out)?;
    let (.., made) = conversations(name, dir)?;
    let files = write_all(out, &made)?;
    if globals.json {
        output::json(&json!({"scenarios": out, "files": files}));
    } else {
        output::stdout(&format!("{}: {} conversations", out.display(), files.len()));
    }
    Ok(0)
}

/// A folder of results is a new one.
pub(crate) fn refuse_existing(out: &Path) -> Result<()> {
    match out.exists() {
        true => Err(Failure::usage(format!("{}: exists already; name a new folder", out.display()))),
        false => Ok(()),
    }
}

/// Writes scenarios, one file each, into a folder that was not there before; the names of the files.
pub(crate) fn write_all(out: &Path, made: &[Scenario]) -> Result<Vec<String>> {
    let failed = |e: std::io::Error| Failure::usage(format!("{}: cannot be written: {e}", out.display()));
    let mut texts = Vec::new();
    for scenario in made {
        texts.push((format!("{}.toml", scenario.name), scenario.to_toml()?));
    }
    // Whole or not at all: written beside its place, then renamed.
    let mut partial = out.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    std::fs::create_dir_all(partial).map_err(failed)?;
    for (file, text) in &texts {
        std::fs::write(partial.join(file), text).map_err(failed)?;
    }
    std::fs::rename(partial, out).map_err(failed)?;
    Ok(texts.into_iter().map(|(file, _)| file).collect())
}
