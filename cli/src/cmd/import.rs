//! `karat scenario import`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use karat_model::prompt::{Encoder, Tokenizer};
use karat_model::{Error, Plain};
use karat_scenarios::Scenario;
use karat_scenarios::import::{self, Exchange, Served};
use karat_scenarios::prompt_diff::{Comparison, Finding, ModeFrom, compare};
use serde_json::{Value, json};

use crate::args::Globals;
use crate::failure::Result;
use crate::{model, output};

/// Far above any log that is worth reading whole.
const MAX_BYTES: u64 = 1 << 30;

/// Exit code of a broken rule.
const FAIL: u8 = 1;
/// Exit code where no prompt was compared.
const UNPROVEN: u8 = 4;

/// Thinking mode or chat mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Thinking mode.
    Thinking,
    /// Chat mode.
    Chat,
}

/// `karat scenario import`.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Messages in the OpenAI shape (JSON, or JSON a line), or a log of SGLang with --log-requests
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Only exchanges with this text in one of their lines
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Checkpoint folder with tokenizer.json and encoding.json; without it the default model
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Also write the conversations down as scenarios, one file each, into this new folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Mode of the prompts; by default what a request says, or else the nearer of the two
    #[arg(long, value_enum, value_name = "MODE")]
    mode: Option<Mode>,
}

pub(crate) fn run(args: &Import, globals: Globals) -> Result<u8> {
    if let Some(out) = &args.out {
        super::scenario::refuse_existing(out)?;
    }
    let label = args.file.display().to_string();
    let unreadable = |e: std::io::Error| Error::input("the file can't be read").at(&label).found(e);
    let size = std::fs::metadata(&args.file).map_err(unreadable)?.len();
    if size > MAX_BYTES {
        return Err(Error::input("the file is too large to be read whole")
            .at(label)
            .expected(format!("at most {MAX_BYTES} bytes"))
            .found(size)
            .hint("cut out the lines of the exchange")
            .into());
    }
    let bytes = std::fs::read(&args.file).map_err(unreadable)?;
    let exchanges = import::read(&label, &bytes, args.grep.as_deref())?;
    if exchanges.is_empty() {
        return Err(Error::input("no exchange has this text")
            .at(label)
            .found(args.grep.as_deref().unwrap_or_default())
            .into());
    }
    let source = model::open(args.model.as_deref())?;
    let (tokenizer, encoder) = (Tokenizer::of(&source.checkpoint)?, Encoder::of(&source.checkpoint)?);
    let vocab = source.checkpoint.config().vocab_size;
    let thinking = args.mode.map(|mode| mode == Mode::Thinking);
    let mut compared = Vec::with_capacity(exchanges.len());
    for exchange in &exchanges {
        let one = |served: &Served| {
            let with = (&encoder, &tokenizer);
            compare(&exchange.messages, &exchange.asked, served, thinking, with, vocab)
                .map_err(|e| e.at(&exchange.place))
        };
        compared.push(exchange.served.as_ref().map(one).transpose()?);
    }
    let pairs: Vec<(&Exchange, Option<&Comparison>)> =
        exchanges.iter().zip(compared.iter().map(Option::as_ref)).collect();
    let written = args.out.as_deref().map(|out| write(out, &args.file, &pairs, thinking)).transpose()?;
    if globals.json {
        let exchanges: Vec<Value> = pairs.iter().map(|(e, c)| as_json(e, *c)).collect();
        output::json(&json!({"exchanges": exchanges, "scenarios": args.out, "files": written}));
    } else {
        let mut texts: Vec<String> = pairs.iter().map(|(e, c)| as_text(e, *c)).collect();
        if let (Some(out), Some(files)) = (&args.out, &written) {
            let n = files.len();
            texts.push(format!("{}: {n} conversation{}", out.display(), if n == 1 { "" } else { "s" }));
        }
        output::stdout(&texts.join("\n\n"));
    }
    let mut of_prompts = compared.iter().flatten();
    let broken = of_prompts.clone().any(|c| c.first.is_some());
    Ok(if broken {
        FAIL
    } else if of_prompts.next().is_none() && written.is_none() {
        UNPROVEN
    } else {
        0
    })
}

/// The conversations as scenario files: `STEM-NUMBER.toml`, in the mode that their prompts were compared in.
fn write(
    out: &Path,
    file: &Path,
    pairs: &[(&Exchange, Option<&Comparison>)],
    thinking: Option<bool>,
) -> Result<Vec<String>> {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
    let stem: String = stem.chars().map(plain).take(100).collect();
    let one = |(i, (exchange, comparison)): (usize, &(&Exchange, Option<&Comparison>))| {
        let thinking = comparison.map(|c| c.options.thinking).or(thinking);
        exchange.scenario(&format!("{stem}-{i:03}"), thinking).map_err(|e| e.at(&exchange.place))
    };
    let made: Vec<Scenario> = pairs.iter().enumerate().map(one).collect::<karat_model::Result<_>>()?;
    super::scenario::write_all(out, &made)
}

fn mode(comparison: &Comparison) -> &'static str {
    if comparison.options.thinking { "thinking" } else { "chat" }
}

fn mode_from(comparison: &Comparison) -> &'static str {
    match comparison.mode_from {
        ModeFrom::Person => "as told",
        ModeFrom::Request => "as the request says",
        ModeFrom::Prompt => "the nearer one: nobody says which",
    }
}

fn as_text(exchange: &Exchange, comparison: Option<&Comparison>) -> String {
    let rid = exchange.rid.as_ref().map_or(String::new(), |rid| format!(", request {}", Plain(rid)));
    let mut lines = vec![format!("{}{rid}: {} messages", Plain(&exchange.place), exchange.messages.len())];
    if exchange.aborted {
        lines.push("  the answer was interrupted".to_owned());
    }
    lines.extend(exchange.notes.iter().map(|note| format!("  note: {}", Plain(note))));
    let Some(comparison) = comparison else {
        lines.push("  not compared: the file has no prompt that a server made of it".to_owned());
        return lines.join("\n");
    };
    lines.extend(comparison.notes.iter().map(|note| format!("  note: {}", Plain(note))));
    let ids = format!("{} ids expected, {} found", comparison.expected_ids, comparison.found_ids);
    lines.push(format!("  {ids}; {} mode ({})", mode(comparison), mode_from(comparison)));
    match comparison.first {
        None => lines.push("  the prompts are equal".to_owned()),
        Some(first) => lines.push(format!("  the first id that differs is at {first}")),
    }
    lines.extend(comparison.findings.iter().map(finding_text));
    lines.join("\n")
}

fn finding_text(f: &Finding) -> String {
    let message = f.message.map_or(String::new(), |m| format!(", message {m}"));
    let detail = f.detail.as_ref().map_or(String::new(), |d| format!(" ({})", Plain(d)));
    let mut text = format!("  id {} (found {}){message}: {}{detail}", f.expected_at, f.found_at, f.rule.name());
    text.push_str(&format!("\n    {}", f.rule.says()));
    text.push_str(&format!("\n    expected {:?}", f.expected));
    text.push_str(&format!("\n    found    {:?}", f.found));
    text
}

fn as_json(exchange: &Exchange, comparison: Option<&Comparison>) -> Value {
    let findings = |c: &Comparison| -> Vec<Value> {
        c.findings
            .iter()
            .map(|f| {
                json!({
                    "rule": f.rule.name(), "says": f.rule.says(), "detail": f.detail, "message": f.message,
                    "part": f.part.map(|p| format!("{p:?}")), "expected_at": f.expected_at, "found_at": f.found_at,
                    "expected": f.expected, "found": f.found,
                })
            })
            .collect()
    };
    json!({
        "place": exchange.place,
        "rid": exchange.rid,
        "messages": exchange.messages.len(),
        "answer": exchange.answer,
        "interrupted": exchange.aborted,
        "notes": exchange.notes,
        "comparison": comparison.map(|c| json!({
            "mode": mode(c), "mode_from": mode_from(c), "expected_ids": c.expected_ids, "found_ids": c.found_ids,
            "first_difference": c.first, "notes": c.notes, "findings": findings(c),
        })),
    })
}
