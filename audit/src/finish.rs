//! From the rows of a lockstep run to a bundle with its verdict.

use std::collections::BTreeMap;

use karat_bundle::{
    Bundle, Candidate as RunCandidate, Finding, PatchRow, Policy, Run, TapRow, Verdict, Walls, gate, merge,
};
use karat_model::checkpoint::Encoding;
use karat_optimized::Stock;
use karat_seam::Phase;

use crate::job::{Job, peak_memory};
use crate::lockstep::Outcome;
use crate::rerun;

/// Fills in what follows from other rows (stock's share, verdicts), judges, and makes the bundle whole.
pub(crate) fn bundle(
    job: &Job<'_>,
    mut outcome: Outcome,
    candidate: RunCandidate,
    patches: Vec<PatchRow>,
    total_s: f64,
) -> Bundle {
    let mut run: Run = job.provenance();
    run.candidate = candidate;
    run.policy = Policy::default();
    run.findings = outcome.findings;
    outcome.notes.push(tolerances(&outcome.taps));
    outcome.notes.extend(rerun::note(&outcome.taps));
    let has_rows = !job.inputs.requests.seqs.is_empty();
    if has_rows && outcome.taps.is_empty() && job.taps.is_some() && run.findings.is_empty() {
        let reason = "--taps admits none of the taps that are compared (docs/formats.md lists them)";
        run.findings.push(Finding::new(Verdict::Unproven, reason));
    }
    run.notes = outcome.notes;
    let [golden, candidate, diff] = outcome.wall;
    run.wall_s = Walls { total: total_s, golden, candidate, diff, parts: None };
    if let Some(cache) = job.cache {
        run.cache = cache.used();
    }
    run.peak_memory_bytes = peak_memory();
    let mut bundle =
        Bundle { run, taps: outcome.taps, tokens: outcome.tokens, flips: outcome.flips, patches, ..Bundle::default() };
    bundle.derivations = outcome.derivations;
    bundle.recall = outcome.recall;
    bundle.verdict.forward_equivalents = outcome.forward_equivalents;
    merge::sort(&mut bundle, &job.inputs.conversations());
    gate::settle(&mut bundle, None, &[]);
    bundle
}

/// Names the place of a row, whatever the patch set.
pub(crate) fn key(row: &TapRow) -> (&str, u64, &str, &str) {
    (&row.sequence, row.order, &row.phase, &row.part)
}

/// Injected error of each patch set less that of stock, row by row.
pub(crate) fn added_to_stock(taps: &mut [TapRow]) {
    let stock: BTreeMap<(String, u64, String, String), Option<f64>> = taps
        .iter()
        .filter(|r| r.patch_set == "stock")
        .map(|r| ((r.sequence.clone(), r.order, r.phase.clone(), r.part.clone()), r.injected))
        .collect();
    for row in taps.iter_mut().filter(|r| r.patch_set != "stock") {
        let key = (row.sequence.clone(), row.order, row.phase.clone(), row.part.clone());
        let base = stock.get(&key).copied().flatten();
        row.added_to_stock = row.injected.zip(base).map(|(with, without)| with - without);
    }
}

/// What no run on this machine is evidence for. `stock` is the profile of the candidate, which may rest on assumptions.
pub(crate) fn limits(job: &Job<'_>, contracts: bool, stock: Option<Stock>) -> Vec<String> {
    let mut notes = Vec::new();
    if job.random_weights {
        notes.push("random weights: nothing here is evidence about a trained model".to_string());
    }
    if contracts && job.kernels.is_none() {
        notes.push("patches ran as contracts on the CPU: no kernel ran, on sm_90, sm_120 or any GPU".to_string());
    }
    if job.checkpoint.linear("layers.0.ffn.experts.0.w1").is_ok_and(|w| w.encoding == Encoding::Nvfp4) {
        notes.push(
            "NVFP4 experts: golden is these bytes dequantised, not the checkpoint they were made from".to_string(),
        );
    }
    for row in stock.iter().flat_map(|s| s.assumed()) {
        notes.push(format!("stock {}, D{}: {} ({})", stock.map_or("", Stock::name), row.d, row.rule, row.basis.name()));
    }
    notes
}

/// Which tolerances are derived, and which are not.
fn tolerances(taps: &[TapRow]) -> String {
    let rule = "four one-rounding errors, four claims of a patch, or 1e-5 of a tap's largest value";
    let count = |basis: &str| taps.iter().filter(|r| r.basis == basis).count();
    let (derived, tighter, provisional) = (count("derived"), count("tighter"), count("provisional"));
    let raised = count("raised");
    if derived + tighter + raised == 0 {
        return format!("tolerances are provisional: {rule}");
    }
    let mut kept = match tighter {
        0 => String::new(),
        n => format!(" ({n} more: derived is looser, and the provisional one is kept)"),
    };
    if raised > 0 {
        kept.push_str(&format!(", {raised} of index scores raised to what the plan itself costs"));
    }
    format!(
        "{derived} of {} tolerances are derived, 1.5 times what the stock plan's roundings cost on golden{kept}; \
         {provisional} are provisional: {rule}",
        derived + tighter + raised + provisional,
    )
}

/// The phases of a descriptor as the csv writes them.
pub(crate) fn phases(phases: &[Phase]) -> String {
    phases.iter().map(|p| p.name()).collect::<Vec<_>>().join("|")
}
