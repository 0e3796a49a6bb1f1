//! Data of the mini golden model: `golden-data model` writes tokenizer.json and encoding.json, `golden-data rows` writes
//! conversations as ids and loss classes.
#![expect(clippy::print_stdout, reason = "printing is what a tool is for")]

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use karat_golden_data::{render, vocabulary};
use karat_scenarios::grammar::families::Family;

/// Data of the mini golden model.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes tokenizer.json and encoding.json.
    Model {
        /// Folder to write into.
        #[arg(long)]
        out: PathBuf,
        /// Ids at most.
        #[arg(long, default_value_t = 768)]
        vocab: usize,
    },
    /// Writes STEM.ids (u16), STEM.cls (u8: 0 rest, 1 predictable, 2 answer, 3 padding, 4 answer about the whole) and, with --spans, STEM.jsonl.
    Rows {
        /// Folder with tokenizer.json and encoding.json.
        #[arg(long)]
        model: PathBuf,
        /// Names the stream of rows.
        #[arg(long)]
        seed: u64,
        /// Ids a row.
        #[arg(long)]
        length: usize,
        /// Rows.
        #[arg(long)]
        count: usize,
        /// One family only; by their shares otherwise.
        #[arg(long, value_parser = family)]
        family: Option<Family>,
        /// Also write where answers and their facts lie.
        #[arg(long)]
        spans: bool,
        /// Path without ending.
        #[arg(long)]
        out: PathBuf,
    },
    /// Prints one rendered conversation.
    Show {
        /// Folder with tokenizer.json and encoding.json.
        #[arg(long)]
        model: PathBuf,
        /// Names the stream of rows.
        #[arg(long)]
        seed: u64,
        /// Ids at most.
        #[arg(long)]
        length: usize,
        /// Family.
        #[arg(long, value_parser = family)]
        family: Family,
    },
}

fn family(name: &str) -> Result<Family, String> {
    let names = || Family::SHARES.map(|(family, _)| family.name()).join(", ");
    Family::from_name(name).ok_or_else(|| format!("expected one of {}", names()))
}

fn main() -> anyhow::Result<()> {
    let report = match Cli::parse().command {
        Command::Model { out, vocab } => vocabulary::write(&out, vocab)?,
        Command::Rows { model, seed, length, count, family, spans, out } => {
            render::Renderer::open(&model)?.write(seed, length, count, family, spans, &out)?
        }
        Command::Show { model, seed, length, family } => {
            let renderer = render::Renderer::open(&model)?;
            let row = renderer.row(seed, 0, length, Some(family))?;
            format!("{}\n{} of {length} ids, answers: {:?}", row.text, row.used, row.answers)
        }
    };
    println!("{report}");
    Ok(())
}
