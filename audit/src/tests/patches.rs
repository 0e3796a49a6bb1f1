use std::collections::BTreeSet;

use karat_bundle::{Bundle, PatchRow, TapRow, Verdict, gate};
use karat_diff::Claims;
use karat_diff::tolerance::Measure;
use karat_seam::{Op, Phase, Tap};

use super::fake::{Fake, Fault, requests};
use super::lockstep::run;
use crate::patch_rows::{self, Calls};
use crate::predict::{PatchSpec, tolerance};
use crate::{Outcome, finish};

fn spec(ops: &[Op], phases: &[Phase], claimed_error: f64) -> PatchSpec {
    PatchSpec {
        name: "fast".into(),
        ops: ops.to_vec(),
        phases: phases.to_vec(),
        claimed_error,
        risk: "low".into(),
        exact: false,
    }
}

#[test]
fn a_patch_reaches_what_is_computed_from_its_ops_up_to_a_decision() {
    let reach = spec(&[Op::IndexScore], &[Phase::Decode], 0.0).reach();
    assert_eq!(reach, BTreeSet::from([Tap::AttnIndexScore]), "the selection is forced");
    let reach = spec(&[Op::Attend], &[Phase::Decode], 0.0).reach();
    for tap in [Tap::AttnO, Tap::AttnLse, Tap::AttnOut, Tap::HcAttnOut, Tap::FfnRouterLogits, Tap::FfnOut, Tap::Out] {
        assert!(reach.contains(&tap), "{}", tap.name());
    }
    for tap in [Tap::HcAttnPre, Tap::AttnIn, Tap::AttnQ, Tap::FfnIdx, Tap::Logits] {
        assert!(!reach.contains(&tap), "{}", tap.name());
    }
}

#[test]
fn a_claimed_error_widens_the_tolerance_only_where_and_when_it_acts() {
    let patch = [spec(&[Op::Attend], &[Phase::Decode], 0.1)];
    let of = |tap, phase| tolerance(Claims::F32, tap, phase, &patch, |_| None);
    assert_eq!((of(Tap::AttnO, Phase::Decode).measure, of(Tap::AttnO, Phase::Decode).value), (Measure::RelL2, 0.4));
    assert_eq!(of(Tap::AttnO, Phase::Prefill).measure, Measure::MaxOverMax);
    assert_eq!(of(Tap::AttnQ, Phase::Decode).value, 1e-5);
    // The floor lifts a tolerance for f32 to ten floors.
    let lifted = tolerance(Claims::F32, Tap::AttnQ, Phase::Decode, &patch, |_| Some(5e-6));
    assert!((lifted.value - 5e-5).abs() < 1e-18);
}

fn outcome(stock: Fault, patched: Fault) -> Outcome {
    let golden = Fake::new(requests(&[7]), Fault::default());
    let stock = Fake::new(requests(&[7]), stock);
    let patched = Fake::new(requests(&[7]), patched);
    let patch = vec![spec(&[Op::OutputUp], &[Phase::Prefill], 1e-3)];
    let mut outcome = run(&golden, &[("stock", &stock, vec![]), ("stock+fast", &patched, patch)], Claims::Bf16);
    finish::added_to_stock(&mut outcome.taps);
    outcome
}

/// The row of the patch as it stands in a bundle.
fn row(patch: &PatchSpec, profile: &str, set: &str, calls: Calls, probed: Option<&str>, outcome: &Outcome) -> PatchRow {
    let row = patch_rows::row(patch, profile, set, calls, probed, outcome);
    let mut bundle = Bundle {
        taps: outcome.taps.clone(),
        tokens: outcome.tokens.clone(),
        flips: outcome.flips.clone(),
        patches: vec![row],
        ..Bundle::default()
    };
    gate::settle(&mut bundle, None, &[]);
    bundle.patches.remove(0)
}

fn gain(gain: f32) -> Fault {
    Fault { gain: Some((1, Tap::AttnOut, gain)), ..Fault::default() }
}

#[test]
fn a_patch_is_measured_at_its_own_ops_against_stock() {
    let outcome = outcome(gain(1.001), gain(1.003));
    let calls = Calls { prefill: 3, decode: 0, largest_prefill: 7 };
    let patch = spec(&[Op::OutputUp], &[Phase::Prefill], 1e-3);
    let row = row(&patch, "official", "stock+fast", calls, None, &outcome);
    assert!(row.measured_error.is_none(), "a fake has no ops to run on the patch's operands: {row:?}");
    assert_eq!((row.state.as_str(), row.calls_prefill, row.largest_prefill), ("active", 3, 7));
    assert_eq!(row.verdict, Some(Verdict::Pass));
    assert!(row.added_kl.unwrap() > 0.0 && row.added_flips.is_some());
    let is_own = |r: &&TapRow| r.patch_set == "stock+fast" && r.layer == "1" && r.tap == "attn.out";
    let own = outcome.taps.iter().find(is_own).unwrap();
    assert!((own.added_to_stock.unwrap() - 2e-3).abs() < 1e-5, "signed: more than stock");
    assert!(outcome.taps.iter().all(|r| r.patch_set == "stock+fast" || r.added_to_stock.is_none()));
}

#[test]
fn a_patch_that_changes_nothing_is_inert() {
    let patch = spec(&[Op::OutputUp], &[Phase::Prefill], 1e-3);
    let calls = Calls { prefill: 3, decode: 0, largest_prefill: 7 };
    let same = outcome(gain(1.001), gain(1.001));
    let got = row(&patch, "official", "stock+fast", calls, None, &same);
    assert_eq!((got.state.as_str(), got.verdict), ("inert", Some(Verdict::Unproven)));
    let unused = row(&patch, "official", "stock+fast", Calls::default(), None, &same);
    assert_eq!(unused.state, "inert");
    let nowhere = spec(&[Op::Attend], &[Phase::Prefill], 1e-3);
    assert_eq!(
        row(&nowhere, "official", "stock+fast", calls, None, &same).state,
        "unknown",
        "none of its taps was compared"
    );
}

#[test]
fn only_what_a_patch_adds_fails_it() {
    let patch = spec(&[Op::OutputUp], &[Phase::Prefill], 1e-3);
    let calls = Calls { prefill: 3, decode: 0, largest_prefill: 7 };
    let bad = outcome(gain(1.001), gain(1.5));
    assert_eq!(row(&patch, "official", "stock+fast", calls, None, &bad).verdict, Some(Verdict::Fail));
    let inherited = outcome(gain(1.5), gain(1.501));
    assert_eq!(row(&patch, "official", "stock+fast", calls, None, &inherited).verdict, Some(Verdict::Pass));
}

/// What a probe found counts before what the run's own taps look like, and also where the run compared nothing.
#[test]
fn a_probe_decides_the_state() {
    let patch = spec(&[Op::OutputUp], &[Phase::Prefill], 1e-3);
    let calls = Calls { prefill: 3, decode: 0, largest_prefill: 7 };
    let changed = outcome(gain(1.001), gain(1.003));
    let of = |calls, probed| row(&patch, "official", "stock+fast", calls, probed, &changed);
    assert_eq!(of(calls, Some("active")).verdict, Some(Verdict::Pass));
    let inert = of(calls, Some("inert"));
    assert_eq!((inert.state.as_str(), inert.verdict), ("inert", Some(Verdict::Unproven)));
    let twice = of(calls, Some("applied 2 times"));
    assert_eq!((twice.state.as_str(), twice.verdict), ("applied 2 times", Some(Verdict::Fail)));
    let unused = of(Calls::default(), Some("active"));
    assert_eq!(
        (unused.state.as_str(), unused.verdict),
        ("active", Some(Verdict::Unproven)),
        "active, but not exercised"
    );
    // One that is claimed to cost nothing changes no bit, and no probe can tell it from stock: that it ran is what counts.
    let free = PatchSpec { claimed_error: 0.0, ..patch.clone() };
    let same = outcome(gain(1.001), gain(1.001));
    let of_free = |calls, seen| row(&free, "official", "stock+fast", calls, Some("inert"), seen);
    let lossless = of_free(calls, &same);
    assert_eq!((lossless.state.as_str(), lossless.verdict), ("lossless", Some(Verdict::Pass)));
    assert_eq!(of_free(calls, &changed).state, "active", "a kernel adds in another order");
    let unused = of_free(Calls::default(), &same);
    assert_eq!((unused.state.as_str(), unused.verdict), ("inert", Some(Verdict::Unproven)));
    // A patch that only cuts prompts is told by its steps.
    let exact = PatchSpec { exact: true, ..spec(&[Op::Attend], &[Phase::Prefill], 1e-3) };
    let of = |calls| row(&exact, "official", "stock+fast", calls, None, &changed);
    assert_eq!((of(calls).state.as_str(), of(calls).verdict), ("active", Some(Verdict::Pass)));
    let unused = of(Calls::default());
    assert_eq!((unused.state.as_str(), unused.verdict), ("unknown", Some(Verdict::Unproven)));
}
