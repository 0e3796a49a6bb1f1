//! `karat scenario list|render|import`.

use karat_model::prompt::{Encoder, Tokenizer};
use karat_scenarios::list;
use karat_seam::SpanKind;
use serde_json::json;

use crate::args::{Globals, Scenario as Args};
use crate::failure::Result;
use crate::later::not_yet;
use crate::{inputs, model, output};

pub(crate) fn run(args: &Args, globals: Globals) -> Result<u8> {
    match args {
        Args::List { grep } => titles(grep.as_deref(), globals),
        Args::Render { scenario, model } => render(scenario, model.as_deref(), globals),
        Args::Generate(_) => Err(not_yet("karat scenario generate")),
        Args::Import(args) => super::import::run(args, globals),
    }
}

fn titles(grep: Option<&str>, globals: Globals) -> Result<u8> {
    let mut found = Vec::new();
    for builtin in list() {
        let scenario = inputs::scenario(builtin.name)?;
        let contains = |text: &str| grep.is_none_or(|g| text.to_lowercase().contains(&g.to_lowercase()));
        if contains(builtin.name) || contains(&scenario.title) {
            found.push((builtin.name, scenario.title));
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

fn render(name: &str, dir: Option<&std::path::Path>, globals: Globals) -> Result<u8> {
    let scenario = inputs::scenario(name)?;
    let source = model::open(dir)?;
    let (tokenizer, encoder) = (Tokenizer::of(&source.checkpoint)?, Encoder::of(&source.checkpoint)?);
    let rendered = scenario.render(&tokenizer, &encoder)?;
    let word = |kind| if kind == SpanKind::Generated { "generated" } else { "prompt" };
    let sequence = &rendered.sequence;
    if globals.json {
        let spans: Vec<_> =
            sequence.spans().iter().map(|s| json!({"kind": word(s.kind), "start": s.start, "end": s.end})).collect();
        output::json(&json!({
            "name": scenario.name, "title": scenario.title, "text": rendered.text, "input_ids": *sequence.ids,
            "spans": spans, "rerendered": rendered.rerendered,
        }));
        return Ok(0);
    }
    let mut text = rendered.text.clone();
    text.push_str(&format!("\n\n{} ids", sequence.ids.len()));
    for span in sequence.spans() {
        text.push_str(&format!("; {} {}..{}", word(span.kind), span.start, span.end));
    }
    output::stdout(&text);
    Ok(0)
}
