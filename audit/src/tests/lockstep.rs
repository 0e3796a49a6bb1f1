use std::sync::atomic::AtomicBool;

use karat_bundle::{Evidence, Policy, Report, TapRow, Verdict, judge, row_verdict};
use karat_diff::Claims;
use karat_seam::{Site, Tap};

use super::fake::{D, EXPERTS, Fake, Fault, HC, requests};
use crate::{Candidate, Error, Facts, LayerFacts, Lockstep, Outcome, PatchSpec, Quiet};

pub(super) fn facts() -> Facts {
    let bias = vec![0.0; EXPERTS];
    let layer = LayerFacts { experts: EXPERTS, experts_per_token: 2, bias, ..LayerFacts::default() };
    Facts { layers: vec![layer; 3], ..Facts::default() }
}

pub(super) fn run(golden: &Fake, candidates: &[(&str, &Fake, Vec<PatchSpec>)], claims: Claims) -> Outcome {
    let candidates = candidates
        .iter()
        .map(|(set, path, patches)| Candidate { patches: patches.clone(), ..Candidate::new(*set, *path, claims) })
        .collect();
    let all = |_: Site| true;
    let lockstep = Lockstep {
        golden,
        floor: (claims == Claims::F32).then_some(golden as &dyn karat_seam::Path),
        candidates,
        scenarios: vec!["test".into(); golden.requests.seqs.len()],
        asks: &[],
        facts: facts(),
        taps: &all,
        layers: None,
        cache: None,
        states: None,
    };
    lockstep.run(&Quiet, &AtomicBool::new(false)).unwrap()
}

fn one(fault: Fault, claims: Claims) -> (Outcome, Report) {
    let golden = Fake::new(requests(&[7, 3]), Fault::default());
    let candidate = Fake::new(requests(&[7, 3]), fault);
    let outcome = run(&golden, &[("stock", &candidate, vec![])], claims);
    let report = report(&outcome);
    (outcome, report)
}

fn report(outcome: &Outcome) -> Report {
    let evidence = Evidence {
        taps: &outcome.taps,
        flips: &outcome.flips,
        findings: &outcome.findings,
        ..karat_bundle::Evidence::default()
    };
    judge(&evidence, &Policy::default())
}

fn find<'a>(outcome: &'a Outcome, layer: &str, tap: &str) -> Vec<&'a TapRow> {
    outcome.taps.iter().filter(|r| r.layer == layer && r.tap == tap && r.part.is_empty()).collect()
}

#[test]
fn golden_against_itself_passes_with_no_error_at_all() {
    let (outcome, report) = one(Fault::default(), Claims::F32);
    assert_eq!(report.verdict, Verdict::Pass, "{:?}", report.reasons);
    let gated: Vec<&TapRow> = outcome.taps.iter().filter(|r| r.gate == "max_over_max").collect();
    // Embed and logits, and 6 numeric taps in each of 3 layers, for each of 2 sequences.
    assert_eq!(gated.len(), 2 * (2 + 3 * 6));
    assert!(gated.iter().all(|r| r.value == Some(0.0) && r.total == Some(0.0) && r.inherited == Some(0.0)));
    assert_eq!(outcome.tokens.len(), 10);
    assert!(outcome.flips.is_empty() && outcome.notes.is_empty() && outcome.findings.is_empty());
    // Golden R(x), R(x'), the floor and the candidate: four passes.
    assert_eq!(outcome.forward_equivalents, 4.0);
}

#[test]
fn golden_loads_each_layer_once_whatever_the_number_of_lanes() {
    let candidates: Vec<Fake> = (0..6).map(|_| Fake::new(requests(&[5]), Fault::default())).collect();
    for n in [1, 3, 6] {
        let golden = Fake::new(requests(&[5]), Fault::default());
        let names: Vec<String> = (0..n).map(|i| format!("stock+{i}")).collect();
        let sets: Vec<_> = names.iter().zip(&candidates).map(|(name, path)| (name.as_str(), path, vec![])).collect();
        let outcome = run(&golden, &sets, Claims::Bf16);
        // R(x), and R(x') and the candidate of each set.
        assert_eq!(outcome.forward_equivalents, (1 + 2 * n) as f64);
        assert_eq!(golden.loads.into_inner(), 3, "{n} sets");
    }
}

#[test]
fn the_perturbed_tap_is_named_and_later_layers_inherit() {
    for (layer, tap) in [(0, Tap::AttnIn), (1, Tap::AttnOut), (1, Tap::FfnIn), (2, Tap::FfnOut), (2, Tap::Out)] {
        let (outcome, report) = one(Fault { at: Some((layer, tap, 4, 0.01)), ..Fault::default() }, Claims::F32);
        assert_eq!(report.verdict, Verdict::Fail);
        let bad = report.first_bad.unwrap();
        assert_eq!((bad.layer, bad.tap.as_str()), (layer.to_string(), tap.name()));
        assert_eq!((bad.sequence.as_str(), bad.position), ("s0", Some(4)), "row 4 of the longer sequence");
        for later in layer + 1..3 {
            let rows = find(&outcome, &later.to_string(), "attn.in");
            assert_eq!(rows[0].injected, Some(0.0), "layer {later} injects nothing");
            assert!(rows[0].inherited.unwrap() > 0.0 && rows[0].amplification.unwrap() > 0.0);
            assert_eq!(rows[1].inherited, Some(0.0), "the other sequence is clean");
        }
        let logits = find(&outcome, "head", "logits");
        assert!(logits[0].total.unwrap() > 0.0 && logits[0].injected == Some(0.0));
    }
}

#[test]
fn total_is_inherited_plus_injected() {
    let (outcome, _) = one(Fault { gain: Some((0, Tap::AttnOut, 1.01)), ..Fault::default() }, Claims::Bf16);
    let (second, _) = one(Fault { gain: Some((1, Tap::AttnOut, 1.02)), ..Fault::default() }, Claims::Bf16);
    for row in outcome.taps.iter().chain(&second.taps).filter(|r| r.cross.is_some()) {
        let (t, h, j) = (row.total.unwrap(), row.inherited.unwrap(), row.injected.unwrap());
        let sum = h * h + j * j + 2.0 * row.cross.unwrap();
        assert!((t * t - sum).abs() <= 1e-12 * (t * t).max(h * h).max(j * j), "{row:?}");
    }
}

#[test]
fn streams_are_told_apart() {
    let (outcome, _) = one(Fault { at: Some((1, Tap::Out, 2, 0.5)), ..Fault::default() }, Claims::Bf16);
    let parts: Vec<&TapRow> = outcome.taps.iter().filter(|r| r.layer == "1" && r.part.starts_with("stream")).collect();
    assert_eq!(parts.len(), 2 * HC);
    assert!(parts[0].injected.unwrap() > 0.0 && parts[1].injected == Some(0.0), "element 1 lies in stream 0");
    assert_eq!(parts[0].n, 7 * D as u64);
    assert!(parts.iter().all(|p| row_verdict(p, &Policy::default()).is_none()), "parts are shown, not gated");
}

#[test]
fn rows_are_kept_apart_by_the_candidates_phase() {
    let golden = Fake::new(requests(&[7]), Fault::default());
    let mut candidate = Fake::new(requests(&[7]), Fault { at: Some((1, Tap::AttnOut, 6, 0.3)), ..Fault::default() });
    candidate.decode_from = 5;
    let outcome = run(&golden, &[("stock", &candidate, vec![])], Claims::Bf16);
    let rows = find(&outcome, "1", "attn.out");
    let phases: Vec<_> = rows.iter().map(|r| (r.phase.as_str(), r.rows, r.injected == Some(0.0))).collect();
    assert_eq!(phases, [("prefill", 5, true), ("decode", 2, false)]);
    assert_eq!(outcome.tokens.iter().filter(|t| t.phase == "decode").count(), 2);
}

#[test]
fn a_wrong_expert_is_a_flip_and_golden_follows_it() {
    let (outcome, report) = one(Fault { wrong_experts: Some((1, 3)), ..Fault::default() }, Claims::Bf16);
    let bad = report.first_bad.unwrap();
    assert_eq!((bad.layer.as_str(), bad.tap.as_str(), bad.position), ("1", "ffn.idx", Some(3)));
    // Same experts on both sides: what they compute is not at fault.
    assert_eq!(find(&outcome, "1", "ffn.out")[0].injected, Some(0.0));
    assert!(find(&outcome, "1", "ffn.out")[0].total.unwrap() > 0.0);
    let flips: Vec<_> = outcome.flips.iter().filter(|f| f.kind == "expert").collect();
    assert_eq!(flips.len(), 2, "two experts at position 3; the second sequence is shorter");
    assert!(flips.iter().all(|f| f.margin > 0.0 && f.position == 3 && f.layer == "1"));
}

#[test]
fn other_ids_compare_nothing() {
    let golden = Fake::new(requests(&[7]), Fault::default());
    let mut other = requests(&[7]);
    let mut ids = other.seqs[0].ids.to_vec();
    ids[5] = 0;
    other.seqs[0].ids = ids.into();
    for candidate in [Fake::new(other, Fault::default()), Fake::new(requests(&[6]), Fault::default())] {
        let outcome = run(&golden, &[("trace", &candidate, vec![])], Claims::F32);
        let report = report(&outcome);
        assert_eq!((report.verdict, report.exit_code), (Verdict::Unproven, 4));
        assert!(outcome.taps.is_empty() && report.reasons[0].contains("ids differ"), "{:?}", report.reasons);
    }
}

#[test]
fn without_layer_outputs_only_totals_are_told_and_it_is_said() {
    let (outcome, report) = one(Fault { no_out: Some(0), no_embed: true, ..Fault::default() }, Claims::F32);
    let rows = find(&outcome, "1", "attn.in");
    assert_eq!((rows[0].total, rows[0].injected, rows[0].value), (Some(0.0), None, None));
    assert!(find(&outcome, "0", "attn.in")[0].value.is_some(), "golden's embedding stands in");
    assert!(find(&outcome, "2", "attn.in")[0].value.is_some(), "layers.1.out is there again");
    assert!(outcome.notes.iter().any(|n| n.contains("layers.0.out")), "{:?}", outcome.notes);
    assert!(outcome.notes.iter().any(|n| n.contains("embedding")), "{:?}", outcome.notes);
    assert_eq!(report.verdict, Verdict::Pass);
}

#[test]
fn a_candidate_without_a_head_is_judged_up_to_there() {
    let (outcome, report) = one(Fault { no_head: true, ..Fault::default() }, Claims::F32);
    assert!(outcome.tokens.is_empty() && outcome.notes.iter().any(|n| n.contains("no logits")));
    assert_eq!(report.verdict, Verdict::Pass);
}

#[test]
fn a_patch_is_judged_by_stocks_noise() {
    let golden = Fake::new(requests(&[7]), Fault::default());
    let stock = Fake::new(requests(&[7]), Fault { gain: Some((0, Tap::AttnOut, 1.0001)), ..Fault::default() });
    let bad = Fake::new(requests(&[7]), Fault { gain: Some((2, Tap::FfnOut, -3.0)), ..Fault::default() });
    let outcome = run(&golden, &[("stock", &stock, vec![]), ("stock+bad", &bad, vec![])], Claims::Bf16);
    let gate = outcome.taps.iter().find(|r| r.part == "argmax").unwrap();
    assert_eq!(gate.patch_set, "stock+bad");
    let flips = outcome.flips.iter().filter(|f| f.kind == "argmax" && f.patch_set == "stock+bad").count();
    let tokens = outcome.tokens.iter().filter(|t| t.patch_set == "stock+bad");
    let expected: f64 = tokens.map(|t| t.expected_flip_probability.unwrap()).sum();
    assert!(flips as f64 > expected, "{flips} {expected}");
    // Its margins are far beyond what noise of stock's size can turn: one such change is enough.
    assert_eq!(gate.value, Some(f64::INFINITY), "{gate:?}");
    assert_eq!(row_verdict(gate, &Policy::default()), Some(Verdict::Fail), "{gate:?}");
    assert!(outcome.tokens.iter().all(|t| (t.patch_set == "stock") == t.expected_flip_probability.is_none()));
}

#[test]
fn a_stopped_run_leaves_nothing() {
    let golden = Fake::new(requests(&[7]), Fault::default());
    let all = |_: Site| true;
    let lockstep = Lockstep {
        golden: &golden,
        floor: None,
        candidates: vec![],
        scenarios: vec![],
        asks: &[],
        facts: facts(),
        taps: &all,
        layers: None,
        cache: None,
        states: None,
    };
    assert!(matches!(lockstep.run(&Quiet, &AtomicBool::new(true)), Err(Error::Interrupted)));
}

#[test]
fn the_same_rows_for_every_thread_count() {
    let bytes = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let (outcome, _) =
            pool.install(|| one(Fault { gain: Some((0, Tap::AttnIn, 1.003)), ..Fault::default() }, Claims::Bf16));
        format!("{:?}{:?}{:?}", outcome.taps, outcome.tokens, outcome.flips)
    };
    assert_eq!(bytes(1), bytes(2));
    assert_eq!(bytes(1), bytes(4));
}
