//! Golden computed with an error of its own: what its floor is, and what that leaves of a tolerance.

use std::sync::atomic::AtomicBool;

use karat_bundle::{Policy, TapRow, Verdict, row_verdict};
use karat_diff::Claims;
use karat_seam::{Path, Tap};

use super::fake::{Fake, Fault, requests};
use super::lockstep::facts;
use crate::{Candidate, Lockstep, Quiet};

/// Judged rows of the tap that is off.
fn rows(golden: &Fake, wide: Option<&Fake>, candidate: &Fake, claims: Claims) -> Vec<TapRow> {
    let lockstep = Lockstep {
        golden,
        floor: wide.map(|wide| wide as &dyn Path),
        candidates: vec![Candidate::new("stock", candidate, claims)],
        scenarios: vec!["test".into()],
        asks: &[],
        facts: facts(),
        taps: &|_| true,
        layers: None,
        cache: None,
        states: None,
    };
    let rows = lockstep.run(&Quiet, &AtomicBool::new(false)).unwrap().taps;
    let at = |row: &TapRow| row.layer == "1" && row.tap == Tap::FfnOut.name() && row.tolerance.is_some();
    rows.into_iter().filter(at).collect()
}

fn off_by(gain: f32, stated: f64) -> Fake {
    let fault = Fault { gain: Some((1, Tap::FfnOut, 1.0 + gain)), ..Fault::default() };
    Fake { stated, ..Fake::new(requests(&[7]), fault) }
}

#[test]
fn a_run_in_f64_measures_what_goldens_products_cost_wherever_they_ran() {
    // Golden is off by 3e-6 in one tap, as products of another tier would be; golden in f64 is not.
    let (golden, wide) = (off_by(3e-6, 0.0), off_by(0.0, 0.0));
    for row in rows(&golden, Some(&wide), &off_by(0.0, 0.0), Claims::F32) {
        let floor = row.floor.unwrap();
        assert!((floor / 3e-6 - 1.0).abs() < 0.05, "{floor:e}");
        assert!(row.tolerance.unwrap() >= 9.9 * floor, "the tolerance of f32 is no less than ten floors");
    }
}

#[test]
fn a_tolerance_under_ten_stated_floors_is_unproven() {
    let policy = Policy::default();
    let verdict = |golden: &Fake, wide: Option<&Fake>, gain: f32, claims| {
        let found = rows(golden, wide, &off_by(gain, 0.0), claims);
        assert!(!found.is_empty());
        (found[0].clone(), row_verdict(&found[0], &policy))
    };
    let wide = off_by(0.0, 0.0);
    let (bits, split) = (off_by(0.0, 0.0), off_by(0.0, 2.6e-6));
    // 1e-5 of f32 is under ten floors of 2.6e-6: an error between says nothing, one at the floor passes, one over ten of it fails.
    assert_eq!(verdict(&bits, Some(&wide), 5e-6, Claims::F32).1, Some(Verdict::Pass));
    let (row, said) = verdict(&split, Some(&wide), 5e-6, Claims::F32);
    assert_eq!((row.floor, said), (Some(2.6e-6), Some(Verdict::Unproven)));
    assert_eq!(verdict(&split, Some(&wide), 1e-6, Claims::F32).1, Some(Verdict::Pass));
    assert_eq!(verdict(&split, Some(&wide), 5e-5, Claims::F32).1, Some(Verdict::Fail));
    // A floor that was measured larger stands.
    let (row, _) = verdict(&off_by(2e-5, 2.6e-6), Some(&wide), 0.0, Claims::F32);
    assert!(row.floor.unwrap() > 1.5e-5, "{row:?}");
    // Tolerances of bf16 are far over it, with or without a run in f64; without either there is no floor.
    let (row, said) = verdict(&split, None, 1e-4, Claims::Bf16);
    assert_eq!((row.floor, said), (Some(2.6e-6), Some(Verdict::Pass)));
    assert_eq!(verdict(&bits, None, 1e-4, Claims::Bf16).0.floor, None);
}
