//! The sentences of a verdict.

use crate::{FirstBad, FlipRow, PatchRow, Policy, TapRow, Verdict};

/// Name of a tap as people write it.
pub(crate) fn place(layer: &str, tap: &str) -> String {
    if let Some(kept) = tap.strip_prefix("state.") {
        format!("state/layers.{layer}.{kept}")
    } else if layer.bytes().all(|b| b.is_ascii_digit()) {
        format!("layers.{layer}.{tap}")
    } else if layer.starts_with("mtp.") {
        format!("{layer}.{tap}")
    } else {
        tap.to_string()
    }
}

pub(super) fn over_tolerance(bad: &FirstBad, rows: usize) -> String {
    let at = place(&bad.layer, &bad.tap);
    let part = if bad.part.is_empty() { String::new() } else { format!(" ({})", bad.part) };
    let position = bad.position.map(|p| format!(", position {p}")).unwrap_or_default();
    let size = if bad.gate == "unexplained_flips" {
        format!("{} decisions changed that the formats' noise does not explain", bad.injected)
    } else if bad.gate == "unexplained_rows" {
        format!("{} KV rows are not what the conversation leaves there", bad.injected)
    } else if bad.gate == "flips_added_to_stock" && bad.injected.is_infinite() {
        "a most likely id changed that noise of stock's size cannot change".to_string()
    } else if bad.gate == "flips_added_to_stock" {
        format!("{} more most likely ids changed than under stock, {:.1} may", bad.injected, bad.tolerance)
    } else {
        format!("injected {:.3e}, tolerance {:.3e} ({})", bad.injected, bad.tolerance, bad.gate)
    };
    let more = if rows > 1 { format!("; {rows} rows are over tolerance in all") } else { String::new() };
    format!(
        "first bad: {at}{part} ({op}) in {phase} of {set}, sequence {seq}{position}: {size}{more}",
        op = bad.op,
        phase = bad.phase,
        set = bad.patch_set,
        seq = bad.sequence,
    )
}

/// The worst flip behind failing rows that count flips.
pub(super) fn unexplained(flips: &[FlipRow], failing: &[&TapRow]) -> Option<String> {
    let counted = |f: &FlipRow| {
        let same = |r: &&&TapRow| r.gate == "unexplained_flips" && r.layer == f.layer && r.patch_set == f.patch_set;
        failing.iter().find(same).is_some()
    };
    let sigmas = |f: &FlipRow| f.predicted_noise.map_or(0.0, |s| f.margin / s);
    let worst = flips.iter().filter(|f| counted(f)).max_by(|a, b| sigmas(a).total_cmp(&sigmas(b)))?;
    Some(format!(
        "{} {} became {} at position {} of layer {} ({}): golden's margin {:.3e} is {:.1} times the predicted noise",
        worst.kind,
        worst.golden,
        worst.candidate,
        worst.position,
        worst.layer,
        worst.patch_set,
        worst.margin,
        sigmas(worst),
    ))
}

pub(super) fn blind(row: &TapRow, rows: usize, policy: &Policy) -> String {
    let floor = row.floor.unwrap_or(0.0);
    let (what, size) = match row.rerun.filter(|noise| *noise > floor) {
        Some(noise) => ("distances between two runs", noise),
        None => ("floors", floor),
    };
    format!(
        "{}: tolerance {:.3e} is under {} {what} of {size:.3e}: an error could not have been seen ({rows} rows)",
        place(&row.layer, &row.tap),
        row.tolerance.unwrap_or(f64::NAN) * policy.scale(row),
        policy.min_floors,
    )
}

/// Share of a derived error under which a path that claims to round does not.
const INACTIVE: f64 = 0.3;
/// A derived error under this is f32's own.
const ROUNDS: f64 = 1e-4;

/// Rows whose error is far under what the plan's roundings must cost: what is claimed to be tested is not what ran.
pub(super) fn does_not_round(taps: &[TapRow]) -> Option<String> {
    let is_under = |row: &&TapRow| {
        let of_stock = row.patch_set == "stock" && row.basis == "raised";
        let is_stock = of_stock || row.basis == "derived" || row.basis == "tighter";
        // What chance may do to so few rows: as where tolerances are derived.
        let c = (4.0 / row.effective_rows.unwrap_or(1.0).max(f64::MIN_POSITIVE)).exp();
        let chance = c + (c * c - 1.0).sqrt();
        let too_little = |(value, derived): (f64, f64)| derived >= ROUNDS && value < INACTIVE * derived / chance;
        is_stock && row.value.zip(row.derived).is_some_and(too_little)
    };
    let rows: Vec<&TapRow> = taps.iter().filter(is_under).collect();
    let first = rows.iter().min_by_key(|r| r.order)?;
    Some(format!(
        "{} in {} of {}: error {:.2e}, its roundings cost {:.2e}: the path does not round where its plan says ({} rows)",
        place(&first.layer, &first.tap),
        first.phase,
        first.patch_set,
        first.value.unwrap_or(f64::NAN),
        first.derived.unwrap_or(f64::NAN),
        rows.len(),
    ))
}

pub(super) fn not_exercised(patch: &PatchRow) -> Option<String> {
    let missing: Vec<&str> = patch
        .phases
        .split('|')
        .filter(|phase| match *phase {
            "prefill" => patch.calls_prefill == 0,
            "decode" => patch.calls_decode == 0,
            _ => false,
        })
        .collect();
    let (name, ran) = (&patch.patch, patch.calls_prefill + patch.calls_decode > 0);
    if patch.state == "inert" {
        let what = if ran { "ran but changed no bit" } else { "changes no bit" };
        return Some(format!("patch {name} {what}: it is not active"));
    }
    if !missing.is_empty() {
        let most = patch.largest_prefill;
        let missing = missing.join(" and ");
        return Some(format!(
            "patch {name} was not exercised in {missing}; largest prefill that exercised this patch: {most} tokens"
        ));
    }
    (patch.state == "unknown").then(|| format!("patch {name}: nothing shows whether it ran"))
}

/// A patch that is applied never where it must be, or more than once.
pub(super) fn misapplied(patch: &PatchRow) -> Option<String> {
    let times = patch.state.strip_prefix("applied ")?.strip_suffix(" times")?;
    (times != "1").then(|| format!("patch {} is applied {times} times: once is right", patch.patch))
}

pub(super) fn next_step(verdict: Verdict, bad: Option<&FirstBad>) -> String {
    match (verdict, bad) {
        (Verdict::Fail | Verdict::Regressed, Some(bad)) => match bad.patch_set.strip_prefix("stock+") {
            Some("all") => format!("run again with `--without` for each patch that touches {}", bad.op),
            Some(patch) => {
                format!("run again with `--without {patch}`; then look at {} of layer {}", bad.op, bad.layer)
            }
            None => format!("look at op {} of layer {} on the rows named above", bad.op, bad.layer),
        },
        (Verdict::Fail | Verdict::Regressed, None) => "read the reasons above".to_string(),
        (Verdict::Input, _) => "mend the file that is named and run again".to_string(),
        (Verdict::Usage, _) => "mend the arguments and run again".to_string(),
        (Verdict::Infra | Verdict::Flaky, _) => "run again".to_string(),
        (Verdict::Unproven, _) => "give it something that can be judged: see the reasons above".to_string(),
        (Verdict::Skipped, _) => "nothing: this revision cannot be judged".to_string(),
        (Verdict::Improved, _) => "make this run the new baseline".to_string(),
        (Verdict::Pass, _) => "nothing".to_string(),
    }
}
