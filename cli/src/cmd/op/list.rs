//! `karat op --list`: the ops, what they read and what they write.

use karat_audit::{first_layer, op_named, op_names};
use karat_model::Checkpoint;
use karat_seam::{OpSpec, Tap};
use serde_json::{Value, json};

use crate::args::Globals;
use crate::failure::Result;
use crate::output;

/// Symbols of the shapes.
const SYMBOLS: &str = "S rows, D hidden, hc streams, H heads, hd head size, R q_lora, T entries, Hi index heads, di index \
head size, E experts, K experts a token, I inner size, G output groups, c 2 where windows overlap (CSA), else 1";

/// Element type of a tap in files.
fn dtype(tap: Tap) -> &'static str {
    match tap {
        Tap::FfnIdx => "I64",
        Tap::AttnSelected => "U8",
        _ => "F32",
    }
}

/// Prints all of them, or one.
pub(super) fn print(checkpoint: &Checkpoint, name: Option<&str>, globals: Globals) -> Result<()> {
    let only = name.map(op_named).transpose()?;
    let ops: Vec<&OpSpec> = op_names().filter(|spec| only.is_none_or(|op| op == spec.op)).collect();
    let patches = |spec: &OpSpec| -> Vec<&str> {
        karat_optimized::patches().iter().filter(|p| p.ops.contains(&spec.op)).map(|p| p.name).collect()
    };
    if globals.json {
        let tap = |tap: &Tap| json!({"tap": tap.name(), "dtype": dtype(*tap), "about": tap.about()});
        let ops: Vec<Value> = ops
            .iter()
            .map(|spec| {
                json!({
                    "op": spec.name, "first_layer": first_layer(checkpoint, spec.op).ok(), "patches": patches(spec),
                    "operands": spec.reads.iter().map(tap).collect::<Vec<_>>(),
                    "results": spec.writes.iter().map(tap).collect::<Vec<_>>(),
                })
            })
            .collect();
        output::json(&json!({"symbols": SYMBOLS, "ops": ops}));
        return Ok(());
    }
    let mut text = String::new();
    for spec in ops {
        text.push_str(spec.name);
        let acting = patches(spec);
        if !acting.is_empty() {
            text.push_str(&format!("   patches: {}", acting.join(", ")));
        }
        text.push('\n');
        for (word, taps) in [("in ", spec.reads), ("out", spec.writes)] {
            for tap in taps {
                text.push_str(&format!("  {word} {:<22} {:<4} {}\n", tap.name(), dtype(*tap), tap.about()));
            }
        }
    }
    text.push_str(&format!("{SYMBOLS}\n"));
    text.push_str("an op whose layer kind lacks an operand (no entries, no indexer) goes without it\n");
    output::page(&text);
    Ok(())
}
