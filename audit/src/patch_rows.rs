//! Rows of `patches.csv`: what each speed patch did, measured against what it claims.

use std::collections::{BTreeMap, BTreeSet};

use karat_bundle::{PatchRow, TapRow};

use crate::expected::expected_verdict;
use crate::finish::{key, phases};
use crate::lockstep::Outcome;
use crate::predict::PatchSpec;

/// Executions of a patch that were counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// In prefill.
    pub prefill: u64,
    /// In decode.
    pub decode: u64,
    /// Rows of the largest prefill among them.
    pub largest_prefill: u64,
}

impl Calls {
    /// What was counted since `earlier`; the largest one may be from before.
    pub(crate) fn since(self, earlier: Self) -> Self {
        let (prefill, decode) = (self.prefill - earlier.prefill, self.decode - earlier.decode);
        Self { prefill, decode, ..self }
    }

    /// Adds other executions.
    pub(crate) fn add(&mut self, other: Self) {
        self.prefill += other.prefill;
        self.decode += other.decode;
        self.largest_prefill = self.largest_prefill.max(other.largest_prefill);
    }
}

/// The row of one patch, without what follows from other tables alone. `set` is the patch set in which it runs alone on stock; `probed` what its effect probe found.
pub(crate) fn row(
    patch: &PatchSpec,
    profile: &str,
    set: &str,
    calls: Calls,
    probed: Option<&str>,
    outcome: &Outcome,
) -> PatchRow {
    let own = own_rows(patch, set, &outcome.taps);
    PatchRow {
        patch: patch.name.clone(),
        profile: profile.to_string(),
        phases: phases(&patch.phases),
        risk: patch.risk.clone(),
        claimed_error: patch.claimed_error,
        measured_error: outcome.own_errors.get(&(set.to_string(), patch.name.clone())).copied(),
        calls_prefill: calls.prefill,
        calls_decode: calls.decode,
        largest_prefill: calls.largest_prefill,
        state: match probed {
            // No probe can tell it from stock; that it ran was counted, and a kernel's own order of sums may show.
            Some("inert") if is_lossless(patch) && calls.prefill + calls.decode > 0 => {
                match state(patch, calls, None, set, &own, &outcome.taps) {
                    "active" => "active".to_string(),
                    _ => "lossless".to_string(),
                }
            }
            Some(found) if found != "active" => found.to_string(),
            found => state(patch, calls, found.map(|_| "active"), set, &own, &outcome.taps).to_string(),
        },
        expected_verdict: expected_verdict(&patch.name, profile),
        ..PatchRow::default()
    }
}

/// True for a patch that, as it was asked for, is claimed to cost nothing at all.
fn is_lossless(patch: &PatchSpec) -> bool {
    !patch.exact && patch.claimed_error == 0.0
}

/// Rows of the taps that the patch's own ops write, in its phases.
fn own_rows<'a>(patch: &PatchSpec, set: &str, taps: &'a [TapRow]) -> Vec<&'a TapRow> {
    let own: BTreeSet<&str> = patch.own_taps().into_iter().map(karat_seam::Tap::name).collect();
    let acts: BTreeSet<&str> = patch.phases.iter().map(|p| p.name()).collect();
    let mine = |r: &&TapRow| r.patch_set == set && r.part.is_empty() && own.contains(r.tap.as_str());
    taps.iter().filter(mine).filter(|r| acts.contains(r.phase.as_str())).collect()
}

/// A patch that ran but left stock's results bit for bit is inert: it is not what was meant to be tested. What did not
/// run here, or was not compared, is as the probe found it.
fn state(
    patch: &PatchSpec,
    calls: Calls,
    probed: Option<&'static str>,
    set: &str,
    own: &[&TapRow],
    taps: &[TapRow],
) -> &'static str {
    let ran = calls.prefill + calls.decode > 0;
    if patch.exact {
        return if ran { "active" } else { "unknown" };
    }
    if !ran || own.is_empty() {
        return probed.unwrap_or(if own.is_empty() { "unknown" } else { "inert" });
    }
    let stock: BTreeMap<_, &TapRow> = taps.iter().filter(|r| r.patch_set == "stock").map(|r| (key(r), r)).collect();
    if set == "stock" || stock.is_empty() {
        return "active";
    }
    let bits = |r: &TapRow| [r.sum_y, r.sum_yy, r.sum_abs_d, r.sum_dd, r.value].map(|v| v.map(f64::to_bits));
    let changed = own.iter().any(|r| stock.get(&key(r)).is_none_or(|s| bits(s) != bits(r)));
    if changed { "active" } else { "inert" }
}
