use super::*;

/// A gated row at a place in op order.
fn row(order: u64, value: f64, tolerance: f64) -> TapRow {
    TapRow {
        scenario: "s".into(),
        sequence: "a".into(),
        history: "cold".into(),
        phase: "decode".into(),
        patch_set: "stock".into(),
        layer: (order / 100).to_string(),
        op: "attn.attend".into(),
        tap: format!("tap{}", order % 100),
        gate: "rel_l2".into(),
        value: Some(value),
        tolerance: Some(tolerance),
        order,
        max_abs_position: Some(7),
        ..TapRow::default()
    }
}

fn patch(phases: &str, prefill: u64, decode: u64, state: &str) -> PatchRow {
    PatchRow {
        patch: "fast".into(),
        phases: phases.into(),
        calls_prefill: prefill,
        calls_decode: decode,
        state: state.into(),
        ..PatchRow::default()
    }
}

fn of(taps: &[TapRow], patches: &[PatchRow], findings: &[Finding]) -> Report {
    judge(&Evidence { taps, patches, findings, ..Evidence::default() }, &Policy::default())
}

#[test]
fn every_line_of_the_table() {
    let good = [row(100, 1e-3, 4e-3)];
    let bad = [row(100, 5e-3, 4e-3)];
    let found = |v| vec![Finding::new(v, "x")];
    let cases = [
        (&good, Verdict::Pass, vec![], 0),
        (&good, Verdict::Improved, found(Verdict::Improved), 0),
        (&bad, Verdict::Fail, vec![], 1),
        (&good, Verdict::Regressed, found(Verdict::Regressed), 1),
        (&good, Verdict::Usage, found(Verdict::Usage), 2),
        (&good, Verdict::Input, found(Verdict::Input), 3),
        (&good, Verdict::Unproven, found(Verdict::Unproven), 4),
        (&good, Verdict::Infra, found(Verdict::Infra), 75),
        (&good, Verdict::Flaky, found(Verdict::Flaky), 75),
        (&good, Verdict::Skipped, found(Verdict::Skipped), 125),
    ];
    for (taps, verdict, findings, exit) in cases {
        let report = of(taps, &[], &findings);
        assert_eq!((report.verdict, report.exit_code), (verdict, exit));
        assert!(!report.next_step.is_empty());
    }
}

#[test]
fn when_several_apply_the_order_is_the_documented_one() {
    let order = ["input", "usage", "infra", "fail", "regressed", "unproven", "skipped", "improved", "pass"];
    let verdicts: Vec<Verdict> = order.iter().map(|n| Verdict::from_name(n).unwrap()).collect();
    for (i, strong) in verdicts.iter().enumerate() {
        for weak in &verdicts[i..] {
            let findings = [Finding::new(*weak, "weak"), Finding::new(*strong, "strong")];
            let report = of(&[row(1, 0.0, 1.0)], &[], &findings);
            assert_eq!(report.verdict, *strong, "{strong:?} with {weak:?}");
        }
    }
}

#[test]
fn nothing_compared_is_unproven() {
    assert_eq!(of(&[], &[], &[]).verdict, Verdict::Unproven);
    let ungated = TapRow { value: None, ..row(1, 0.0, 1.0) };
    let report = of(&[ungated], &[], &[]);
    assert_eq!((report.verdict, report.exit_code), (Verdict::Unproven, 4));
    assert!(report.reasons[0].contains("nothing was compared"), "{:?}", report.reasons);
}

#[test]
fn a_patch_that_was_not_exercised_is_named() {
    let good = [row(1, 0.0, 1.0)];
    for (phases, prefill, decode, state, ok) in [
        ("decode", 0, 5, "active", true),
        ("decode", 9, 0, "active", false),
        ("prefill|decode", 9, 0, "active", false),
        ("prefill|decode", 9, 1, "active", true),
        ("decode", 0, 5, "inert", false),
        ("decode", 0, 5, "unknown", false),
    ] {
        let report = of(&good, &[patch(phases, prefill, decode, state)], &[]);
        let expected = if ok { Verdict::Pass } else { Verdict::Unproven };
        assert_eq!(report.verdict, expected, "{phases} {prefill} {decode} {state}");
        assert!(ok || report.reasons[0].contains("patch fast"), "{:?}", report.reasons);
    }
}

#[test]
fn a_patch_that_is_applied_twice_fails_and_says_so() {
    let good = [row(1, 0.0, 1.0)];
    for (state, verdict) in
        [("applied 2 times", Verdict::Fail), ("applied 0 times", Verdict::Fail), ("applied 1 times", Verdict::Pass)]
    {
        let report = of(&good, &[patch("decode", 0, 5, state)], &[]);
        assert_eq!(report.verdict, verdict, "{state}");
        assert!(verdict == Verdict::Pass || report.reasons[0].contains(state), "{:?}", report.reasons);
    }
    // A bundle says how large a prefill the patch has seen.
    let seen = PatchRow { largest_prefill: 90, ..patch("prefill|decode", 3, 0, "active") };
    let report = of(&good, &[seen], &[]);
    let reason = "patch fast was not exercised in decode; largest prefill that exercised this patch: 90 tokens";
    assert_eq!(report.reasons, [reason]);
}

#[test]
fn floors_decide_what_could_have_been_seen() {
    let policy = Policy::default();
    let with_floor = |value, tolerance, floor| TapRow { floor: Some(floor), ..row(1, value, tolerance) };
    // At or under the floor: a pass, even where the tolerance is too near to it.
    assert_eq!(row_verdict(&with_floor(1e-6, 5e-6, 1e-6), &policy), Some(Verdict::Pass));
    assert_eq!(row_verdict(&with_floor(2e-6, 5e-6, 1e-6), &policy), Some(Verdict::Unproven));
    assert_eq!(row_verdict(&with_floor(2e-6, 10e-6, 1e-6), &policy), Some(Verdict::Pass));
    assert_eq!(row_verdict(&with_floor(11e-6, 10e-6, 1e-6), &policy), Some(Verdict::Fail));
    // Over a tolerance that is too near to the floor: the floor may explain it, until it no longer can.
    assert_eq!(row_verdict(&with_floor(6e-6, 5e-6, 1e-6), &policy), Some(Verdict::Unproven));
    assert_eq!(row_verdict(&with_floor(11e-6, 5e-6, 1e-6), &policy), Some(Verdict::Fail));
    assert_eq!(row_verdict(&with_floor(2e-6, 5e-6, f64::NAN), &policy), Some(Verdict::Fail));
    let report = of(&[with_floor(2e-6, 5e-6, 1e-6)], &[], &[]);
    assert_eq!(report.verdict, Verdict::Unproven);
    assert!(report.reasons[0].contains("under 10 floors"), "{:?}", report.reasons);
}

#[test]
fn numbers_that_are_none_never_pass() {
    let policy = Policy::default();
    assert_eq!(row_verdict(&row(1, f64::NAN, 1.0), &policy), Some(Verdict::Fail));
    assert_eq!(row_verdict(&row(1, f64::INFINITY, 1.0), &policy), Some(Verdict::Fail));
    assert_eq!(row_verdict(&row(1, 0.0, f64::NAN), &policy), Some(Verdict::Fail));
    assert_eq!(row_verdict(&TapRow { nonfinite: 1, ..row(1, 0.0, 1.0) }, &policy), Some(Verdict::Fail));
}

#[test]
fn a_tighter_policy_is_applied_to_the_stored_numbers() {
    let taps = [row(1, 3e-3, 4e-3)];
    let tight = Policy { tolerance_scale: 0.5, ..Policy::default() };
    let evidence = Evidence { taps: &taps, ..Evidence::default() };
    assert_eq!(judge(&evidence, &Policy::default()).verdict, Verdict::Pass);
    let report = judge(&evidence, &tight);
    assert_eq!(report.verdict, Verdict::Fail);
    assert_eq!(report.first_bad.unwrap().tolerance, 2e-3);
}

#[test]
fn the_first_bad_place_is_the_first_in_op_order_not_the_worst() {
    let taps = [row(305, 9.0, 1.0), row(204, 2.0, 1.0), row(203, 0.5, 1.0), row(208, 50.0, 1.0)];
    let report = of(&taps, &[], &[]);
    let bad = report.first_bad.unwrap();
    assert_eq!((bad.layer.as_str(), bad.tap.as_str(), bad.injected), ("2", "tap4", 2.0));
    assert!(report.reasons[0].contains("layers.2.tap4"), "{:?}", report.reasons);
    // One suspect a layer: its first bad tap; the worst layer first.
    let places: Vec<_> = report.suspects.iter().map(|s| (s.layer.as_str(), s.tap.as_str())).collect();
    assert_eq!(places, [("3", "tap5"), ("2", "tap4")]);
}

#[test]
fn of_one_tap_the_whole_comes_before_parts_and_the_worst_first() {
    let part = TapRow { part: "stream.2".into(), ..row(204, 9.0, 1.0) };
    let mild = TapRow { patch_set: "stock+fast".into(), ..row(204, 2.0, 1.0) };
    let nan = TapRow { patch_set: "stock+odd".into(), ..row(204, f64::NAN, 1.0) };
    let bad = of(&[part.clone(), mild.clone()], &[], &[]).first_bad.unwrap();
    assert_eq!((bad.part.as_str(), bad.patch_set.as_str()), ("", "stock+fast"));
    let bad = of(&[part, mild, nan], &[], &[]).first_bad.unwrap();
    assert_eq!(bad.patch_set, "stock+odd");
}

#[test]
fn a_failed_patch_is_told_from_failed_stock() {
    let patched = TapRow { patch_set: "stock+fast".into(), ..row(1, 2.0, 1.0) };
    assert!(of(&[patched], &[], &[]).next_step.contains("--without fast"));
    assert!(!of(&[row(1, 2.0, 1.0)], &[], &[]).next_step.contains("--without"));
}

#[test]
fn an_unexplained_flip_is_named() {
    let taps = [TapRow { gate: "unexplained_flips".into(), layer: "4".into(), ..row(410, 1.0, 0.0) }];
    let flip = |position, margin| FlipRow {
        layer: "4".into(),
        kind: "expert".into(),
        patch_set: "stock".into(),
        position,
        golden: 3,
        candidate: 5,
        margin,
        predicted_noise: Some(0.01),
        ..FlipRow::default()
    };
    let flips = [flip(1, 0.02), flip(2, 0.5)];
    let report = judge(&Evidence { taps: &taps, flips: &flips, ..Evidence::default() }, &Policy::default());
    assert_eq!(report.verdict, Verdict::Fail);
    assert!(report.reasons[1].contains("expert 3 became 5 at position 2 of layer 4"), "{:?}", report.reasons);
}

#[test]
fn a_path_that_does_not_round_where_it_says_is_unproven() {
    let row = |value: f64, basis: &str, derived: f64| TapRow {
        layer: "2".into(),
        tap: "attn.kv".into(),
        phase: "decode".into(),
        patch_set: "stock".into(),
        gate: "rel_l2".into(),
        value: Some(value),
        tolerance: Some(5e-2),
        derived: Some(derived),
        effective_rows: Some(1e9),
        basis: basis.into(),
        ..TapRow::default()
    };
    let of = |row: TapRow| judge(&Evidence { taps: &[row], ..Evidence::default() }, &Policy::default());
    let report = of(row(5e-3, "derived", 2.7e-2));
    assert_eq!(report.verdict, Verdict::Unproven);
    assert!(report.reasons[0].starts_with("layers.2.attn.kv in decode of stock"), "{:?}", report.reasons);
    for passes in [row(2e-2, "derived", 2.7e-2), row(5e-3, "provisional", 2.7e-2), row(0.0, "derived", 1e-7)] {
        assert_eq!(of(passes).verdict, Verdict::Pass);
    }
    // Three rows carry the error: chance may do that.
    assert_eq!(of(TapRow { effective_rows: Some(3.0), ..row(5e-3, "derived", 2.7e-2) }).verdict, Verdict::Pass);
}
