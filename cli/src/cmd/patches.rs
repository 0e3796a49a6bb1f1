//! `karat patches`.

use karat_optimized::{Patch, patches};
use serde_json::json;

use crate::args::{Globals, Patches};
use crate::cmd::verify;
use crate::failure::Result;
use crate::output;

pub(crate) fn run(args: &Patches, globals: Globals) -> Result<u8> {
    if args.verify {
        return verify::run(args, globals);
    }
    if let Some(file) = &args.from_diff {
        return verify::diff(file, globals);
    }
    if globals.json {
        output::json(&json!({"patches": patches().iter().map(|p| as_json(p)).collect::<Vec<_>>()}));
        return Ok(0);
    }
    let mut text = String::new();
    for patch in patches() {
        text.push_str(&describe(patch));
    }
    output::stdout(&text);
    Ok(0)
}

fn phases(patch: &Patch) -> Vec<&'static str> {
    patch.phases.iter().map(|p| p.name()).collect()
}

fn ops(patch: &Patch) -> Vec<&'static str> {
    patch.ops.iter().map(|op| op.spec().name).collect()
}

fn describe(patch: &Patch) -> String {
    let mut lines = vec![format!("{}: {}", patch.name, patch.about)];
    let (phases, ops) = (phases(patch).join(", "), ops(patch).join(", "));
    lines.push(format!("  {phases}; ops {ops}; risk {}", patch.risk.name()));
    for claim in patch.claims {
        lines.push(format!("  claims {:.1e} {} ({})", claim.error, claim.metric, claim.source));
    }
    for option in patch.options {
        lines.push(format!("  option {}: {} (default {})", option.name, option.values, option.default));
    }
    if !patch.conflicts.is_empty() {
        lines.push(format!("  not together with {}", patch.conflicts.join(", ")));
    }
    if !patch.env_aliases.is_empty() {
        lines.push(format!("  known as {}", patch.env_aliases.join("; ")));
    }
    lines.join("\n") + "\n"
}

fn as_json(patch: &Patch) -> serde_json::Value {
    let claims: Vec<_> =
        patch.claims.iter().map(|c| json!({"error": c.error, "metric": c.metric, "source": c.source})).collect();
    let options: Vec<_> =
        patch.options.iter().map(|o| json!({"name": o.name, "values": o.values, "default": o.default})).collect();
    json!({
        "name": patch.name, "about": patch.about, "phases": phases(patch), "ops": ops(patch),
        "risk": patch.risk.name(), "claims": claims, "options": options, "conflicts": patch.conflicts,
        "env_aliases": patch.env_aliases,
    })
}
