//! `karat patches`.

use std::collections::BTreeMap;

use karat_audit::{expected_because, expected_verdict};
use karat_optimized::{Claim, DEFAULT_PATCHES, Patch, Stock, patches};
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
        let profiles: Vec<_> = Stock::ALL.iter().map(|s| profile_json(*s)).collect();
        let patches: Vec<_> = patches().iter().map(|p| as_json(p)).collect();
        output::json(&json!({"patches": patches, "default": DEFAULT_PATCHES, "profiles": profiles}));
        return Ok(0);
    }
    let mut text = String::new();
    for patch in patches() {
        text.push_str(&describe(patch));
    }
    text.push_str(&format!("\n--patches all is the default set: {}\n", DEFAULT_PATCHES.join(", ")));
    for stock in Stock::ALL {
        text.push_str(&describe_profile(*stock));
    }
    output::stdout(&text);
    Ok(0)
}

fn describe_profile(stock: Stock) -> String {
    let profile = stock.profile();
    let mut lines = vec![format!("stock profile {}: {}", profile.name, profile.about)];
    for row in profile.rows {
        lines.push(format!("  D{:<2} {} ({})", row.d, row.rule, row.basis.name()));
    }
    lines.join("\n") + "\n"
}

fn profile_json(stock: Stock) -> serde_json::Value {
    let profile = stock.profile();
    let rows: Vec<_> =
        profile.rows.iter().map(|r| json!({"row": r.d, "rule": r.rule, "basis": r.basis.name()})).collect();
    json!({"name": profile.name, "about": profile.about, "rows": rows})
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
        let given: Vec<String> =
            claim.given.iter().map(|(name, values)| format!("{name}={}", values.join("|"))).collect();
        let given = if given.is_empty() { String::new() } else { format!(" with {}", given.join(", ")) };
        lines.push(format!("  claims {:.1e} {}{given} ({})", claim.error, claim.metric, claim.source));
    }
    for stock in Stock::ALL {
        let (name, profile) = (patch.name, stock.name());
        if let Some((verdict, why)) = expected_verdict(name, profile).zip(expected_because(name, profile)) {
            lines.push(format!("  expected verdict on {profile}: {} ({why})", verdict.name()));
        }
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
    let claim = |c: &Claim| {
        let given: BTreeMap<_, _> = c.given.iter().copied().collect();
        json!({"error": c.error, "metric": c.metric, "source": c.source, "given": given})
    };
    let claims: Vec<_> = patch.claims.iter().map(claim).collect();
    let options: Vec<_> =
        patch.options.iter().map(|o| json!({"name": o.name, "values": o.values, "default": o.default})).collect();
    let verdict = |stock: &Stock| {
        let verdict = expected_verdict(patch.name, stock.name())?;
        let why = expected_because(patch.name, stock.name());
        Some(json!({"profile": stock.name(), "verdict": verdict.name(), "why": why}))
    };
    let expected: Vec<_> = Stock::ALL.iter().filter_map(verdict).collect();
    json!({
        "name": patch.name, "about": patch.about, "phases": phases(patch), "ops": ops(patch),
        "risk": patch.risk.name(), "claims": claims, "options": options, "conflicts": patch.conflicts,
        "env_aliases": patch.env_aliases, "expected_verdicts": expected,
    })
}
