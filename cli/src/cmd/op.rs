//! `karat op NAME`: one op on the same operands: golden, a contract, and somebody's kernel.

mod exec;
mod list;
mod show;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use karat_audit::{OpJob, OpSides, Operands, first_layer, op_named, read_answer};
use karat_optimized::Stock;
use karat_seam::Phase;

use super::audit::patch_list;
use crate::args::Globals;
use crate::failure::{Failure, Result};
use crate::{model, output};

/// `karat op`.
#[derive(Debug, Args)]
pub(crate) struct Op {
    /// Name of the op, e.g. attn.attend; --list shows all
    #[arg(value_name = "NAME", required_unless_present = "list")]
    name: Option<String>,
    /// List the ops with their operands and results
    #[arg(long)]
    list: bool,
    /// Operands as safetensors: op.safetensors of karat audit --repro, or what --save wrote. Without it golden runs seeded ids
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// The kernel's results as safetensors, made before
    #[arg(long, value_name = "FILE", conflicts_with_all = ["exec", "list"])]
    candidate: Option<PathBuf>,
    /// Run this on the operands: {in} and {out} become the paths of the file to read and the file to write; without them the two
    /// paths come last
    #[arg(long, value_name = "CMD", conflicts_with = "list")]
    exec: Option<String>,
    /// Seconds that CMD may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "exec", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Write the operands, with the op's weights, to this file
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    save: Option<PathBuf>,
    /// Checkpoint folder; without it the mini golden model
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Layer of the op; by default the one that the file names, else the first that has the op
    #[arg(long, value_name = "N")]
    layer: Option<u16>,
    /// Stock profile of the contract: official, sglang, sglang-sm120, vllm or none (f32)
    #[arg(long, value_name = "PROFILE")]
    stock: Option<String>,
    /// Speed patches of the contract: names with commas between (NAME:option=value sets an option); none by default
    #[arg(long, visible_alias = "patch", value_name = "LIST")]
    patches: Option<String>,
    /// The phase whose contract it is: prefill or decode
    #[arg(long, value_name = "PHASE", default_value = "prefill")]
    phase: String,
    /// Without --inputs: rows
    #[arg(long, value_name = "N", default_value_t = 96, conflicts_with = "inputs", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    rows: u32,
    /// Without --inputs: seed of the ids
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "inputs")]
    seed: u64,
}

pub(crate) fn run(args: &Op, globals: Globals) -> Result<u8> {
    let source = model::open(args.model.as_deref())?;
    let Some(name) = args.name.as_deref().filter(|_| !args.list) else {
        list::print(&source.checkpoint, args.name.as_deref(), globals)?;
        return Ok(0);
    };
    let op = op_named(name)?;
    let stock: Stock = args.stock.as_deref().map_or(Ok(Stock::Official), str::parse)?;
    let phase = match args.phase.as_str() {
        "prefill" => Phase::Prefill,
        "decode" => Phase::Decode,
        other => return Err(Failure::usage(format!("--phase: expected prefill or decode, found `{other}`"))),
    };
    let command = args.exec.as_deref().map(exec::Command::new).transpose()?;
    let read = args.inputs.as_deref().map(|path| Operands::read(path, op)).transpose()?;
    let told = read.as_ref().and_then(|(_, layer)| *layer);
    let layer = match (args.layer, told) {
        (Some(asked), Some(told)) if asked != told => {
            return Err(Failure::usage(format!("--layer {asked}: the operands are of layer {told}")));
        }
        (Some(layer), _) | (None, Some(layer)) => layer,
        (None, None) => first_layer(&source.checkpoint, op)?,
    };
    let patches = patch_list(Some(args.patches.as_deref().unwrap_or("none")), &[])?;
    let threads = globals.threads();
    let job = OpJob { checkpoint: source.checkpoint, op, layer, stock, patches, phase, threads };
    job.check()?;
    let operands = match read {
        Some((operands, _)) => operands,
        None => Operands::seeded(&job, args.rows as usize, args.seed)?,
    };
    let sides = OpSides::run(&job, &operands)?;
    if let Some(path) = &args.inputs {
        operands.check_weights(path, &job)?;
    }
    if let Some(path) = &args.save {
        let failed = |e| karat_model::Error::usage("the operands can't be written").at(path.display()).found(e);
        std::fs::write(path, operands.file(&job)?).map_err(failed)?;
    }
    let judged = match (&command, &args.candidate) {
        (Some(command), _) => {
            let given = operands.file(&job)?;
            let limit = Duration::from_secs(args.timeout);
            let answer = command.run(&given, limit, globals, |path| Ok(read_answer(path, sides.wanted())?))?;
            sides.judge(&job, &answer)?
        }
        (None, Some(path)) => sides.judge(&job, &read_answer(path, sides.wanted())?)?,
        (None, None) => sides.contract_alone(&job)?,
    };
    let shown = show::Shown { job: &job, operands: &operands, judged: &judged, kernel: args.exec.as_deref() };
    if globals.json {
        output::json(&shown.json());
    } else {
        output::page(&shown.text());
    }
    Ok(shown.exit())
}
