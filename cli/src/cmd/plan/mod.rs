//! `karat doctor --plan CONFIG`: what an audit of a model would take, with the arithmetic shown. A prediction, never a measurement.

mod machines;
mod work;

use std::path::Path;

use karat_model::Config;
use serde_json::{Value, json};

use self::machines::{GIB, MACHINES, Machine};
use self::work::Work;
use crate::args::{Globals, PlanOf};
use crate::failure::{Failure, Result};
use crate::output;

/// Copies of a row's taps that an audit holds: of golden, and of each patch set. Measured: peak memory of audits of the mini golden
/// model over 512 and 1024 rows, with one and with five patch sets, over the bytes of a layer's taps.
const COPIES: (f64, f64) = (4.6, 5.1);

/// A plan, or the tokens of a conversation that there would be room for.
type Fit<'m> = std::result::Result<Plan<'m>, f64>;

/// One machine's plan.
struct Plan<'m> {
    machine: &'m Machine,
    /// Patch sets of one run: stock, patches alone, and all together.
    sets: usize,
    /// Runs, each with as many patches as fit.
    runs: usize,
    /// Seconds: arithmetic, weights, comparing.
    seconds: [f64; 3],
    /// Bytes for the longest conversation.
    memory: f64,
}

pub(super) fn run(file: &Path, of: &PlanOf, globals: Globals) -> Result<u8> {
    let path = if file.is_dir() { file.join("config.json") } else { file.to_path_buf() };
    let unreadable = |e| karat_model::Error::input("the config can't be read").at(path.display()).found(e);
    // A config says `config.json` of itself; here it may be any file.
    let named = |e: karat_model::Error| {
        let place = e.place.replacen("config.json", &path.display().to_string(), 1);
        karat_model::Error { place, ..e }
    };
    let config = Config::from_json(&std::fs::read(&path).map_err(unreadable)?).map_err(named)?;
    if of.tokens == 0 || of.conversations == 0 || of.tokens > config.max_position_embeddings {
        let most = config.max_position_embeddings;
        return Err(Failure::usage(format!("--plan-tokens takes 1 to {most}, --plan-conversations 1 and more")));
    }
    let work = Work::of(&config, of.tokens);
    let plans: Vec<Fit<'_>> = MACHINES.iter().map(|m| plan(&work, of, m)).collect();
    if globals.json {
        output::json(&as_json(&work, of, &plans));
    } else {
        output::stdout(&text(&work, of, &plans));
    }
    Ok(0)
}

/// Bytes that an audit holds for a row with so many patch sets.
fn row_bytes(work: &Work, sets: usize) -> f64 {
    work.taps * (COPIES.0 + COPIES.1 * sets as f64)
}

/// The most patch sets that the longest conversation leaves room for; where not even stock fits, the tokens that would.
fn plan<'m>(work: &Work, of: &PlanOf, machine: &'m Machine) -> Fit<'m> {
    let weights = if machine.is_resident { work.checkpoint } else { work.layer };
    let room = machine.memory - weights;
    let needed = |sets: usize| row_bytes(work, sets) * of.tokens as f64;
    // Stock, each patch, and all of them where there are several.
    let sets_of = |patches: usize| 1 + patches + usize::from(patches > 1);
    let least = of.patches.min(1);
    let Some(patches) = (least..=of.patches).rev().find(|p| needed(sets_of(*p)) <= room) else {
        return Err((room / row_bytes(work, sets_of(least))).max(0.0));
    };
    let runs = if patches == 0 { 1 } else { of.patches.div_ceil(patches) };
    let sets = sets_of(patches);
    let rows = (of.tokens * of.conversations) as f64;
    // Golden on its own input, golden on each candidate's, and each candidate, whose pass takes as long as golden's.
    let passes = (1 + 2 * sets) as f64;
    // Weights pass once for every run and for as many rows as fit at a time.
    let at_once = (room / needed(sets)).floor().max(1.0);
    let loads = if machine.is_resident { 1.0 } else { runs as f64 * (of.conversations as f64 / at_once).ceil() };
    let seconds = [
        runs as f64 * passes * rows * work.flop / machine.flop.value,
        loads * work.checkpoint / machine.load.value,
        runs as f64 * sets as f64 * 2.0 * rows * work.taps_of_all / machine.compare.value,
    ];
    Ok(Plan { machine, sets, runs, seconds, memory: needed(sets) + weights })
}

fn text(work: &Work, of: &PlanOf, plans: &[Fit<'_>]) -> String {
    let rows = of.tokens * of.conversations;
    let mut lines = vec![
        "a prediction: shapes of the config, rates measured elsewhere, and assumptions that are named".to_string(),
        String::new(),
        format!(
            "checkpoint  {:.1} GB; its largest layer {:.2} GB, of it routed experts {:.2} GB",
            work.checkpoint / 1e9,
            work.layer / 1e9,
            work.experts / 1e9
        ),
        format!(
            "audit       {} conversations of {} tokens = {rows} rows; {} patches",
            of.conversations, of.tokens, of.patches
        ),
        format!(
            "a row       {:.2} GFLOP in a forward pass; {:.2} MB in the taps of one layer",
            work.flop / 1e9,
            work.taps / 1e6
        ),
        format!(
            "memory      a row's taps times ({} + {} a patch set), for the longest conversation, and one layer's weights",
            COPIES.0, COPIES.1
        ),
        "passes      golden 1 + 1 a patch set, candidates 1 a patch set; sets: stock, each patch, all of them"
            .to_string(),
    ];
    for (plan, machine) in plans.iter().zip(&MACHINES) {
        lines.push(String::new());
        lines.push(format!("{}: {}", machine.name, machine.but));
        match plan {
            Err(tokens) => lines.push(format!("  does not fit: one patch at a time has room for {tokens:.0} tokens")),
            Ok(p) => {
                let [compute, load, compare] = p.seconds;
                lines.push(format!(
                    "  {} in {} run(s) of {} patch sets, {:.0} GiB",
                    took(compute + load + compare),
                    p.runs,
                    p.sets,
                    p.memory / GIB
                ));
                let passes = p.runs * (1 + 2 * p.sets);
                lines.push(format!(
                    "  arithmetic {}: {passes} passes x {rows} rows x {:.2} GFLOP / {:.3e} a second",
                    took(compute),
                    work.flop / 1e9,
                    machine.flop.value
                ));
                lines.push(format!(
                    "  weights {}: {:.1} GB a time / {:.0} GB/s",
                    took(load),
                    work.checkpoint / 1e9,
                    machine.load.value / 1e9
                ));
                lines.push(format!(
                    "  comparing {}: {} sets x 2 x {rows} rows x {:.1} MB / {:.0} GB/s",
                    took(compare),
                    p.runs * p.sets,
                    work.taps_of_all / 1e6,
                    machine.compare.value / 1e9
                ));
            }
        }
        for rate in [machine.flop, machine.load, machine.compare] {
            lines.push(format!("  - {}", rate.from));
        }
    }
    lines.join("\n")
}

fn took(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

fn as_json(work: &Work, of: &PlanOf, plans: &[Fit<'_>]) -> Value {
    let one = |(plan, machine): (&Fit<'_>, &Machine)| {
        let rates = [machine.flop, machine.load, machine.compare].map(|r| json!({"value": r.value, "from": r.from}));
        match plan {
            Err(tokens) => {
                json!({"machine": machine.name, "fits": false, "tokens_that_fit": tokens.floor(), "note": machine.but, "rates": rates})
            }
            Ok(p) => json!({
                "machine": p.machine.name, "fits": true, "runs": p.runs, "patch_sets": p.sets, "memory_bytes": p.memory.round(),
                "seconds": {"arithmetic": p.seconds[0], "weights": p.seconds[1], "comparing": p.seconds[2]},
                "note": machine.but, "rates": rates,
            }),
        }
    };
    json!({
        "prediction": true, "checkpoint_bytes": work.checkpoint, "layer_bytes": work.layer, "flop_per_row": work.flop,
        "tap_bytes_per_row": work.taps, "conversations": of.conversations, "tokens": of.tokens,
        "patches": of.patches, "machines": plans.iter().zip(&MACHINES).map(one).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
