use karat_seam::Tap;

use super::*;
use crate::support::{close, gaussian, noise, tensor};
use crate::{Grid, Storage, measure};

fn metrics(x: &[f64], y: &[f64]) -> Metrics {
    let (x, y) = (tensor(&[1, x.len()], x), tensor(&[1, y.len()], y));
    Metrics::of(&measure("t", &x, &y, Storage::F32, &Grid::of(&x)).unwrap().total)
}

#[test]
fn f32_is_one_part_in_100000_of_the_largest_value_but_never_under_ten_floors() {
    let plain = Tolerance::provisional(Claims::F32, Tap::AttnO, None);
    assert_eq!((plain.measure, plain.value, plain.provisional), (Measure::MaxOverMax, 1e-5, true));
    assert_eq!(Tolerance::provisional(Claims::F32, Tap::AttnO, Some(1e-7)).value, 1e-5);
    close(Tolerance::provisional(Claims::F32, Tap::AttnO, Some(4e-6)).value, 4e-5, 1e-15);
}

#[test]
fn formats_get_four_times_one_rounding() {
    let of = |claims, tap| Tolerance::provisional(claims, tap, None);
    assert_eq!(of(Claims::Bf16, Tap::AttnIn).value, 4.0 * 1.7e-3);
    assert_eq!(of(Claims::Official, Tap::AttnKv).value, 4.0 * 2.7e-2);
    assert_eq!(of(Claims::Official, Tap::AttnIndexQ).value, 4.0 * 1.2e-1);
    assert_eq!(of(Claims::Sglang, Tap::AttnIndexQ).value, 4.0 * 2.7e-2);
    assert!(Tap::ALL.iter().all(|t| of(Claims::Official, *t).measure == Measure::RelL2));
}

#[test]
fn no_claim_allows_less_than_a_finer_one() {
    for tap in Tap::ALL {
        let of = |c: Claims| c.rounding(*tap).rel_l2();
        assert!(of(Claims::F32) < of(Claims::Bf16), "{}", tap.name());
        assert!(of(Claims::Bf16) <= of(Claims::Sglang) && of(Claims::Sglang) <= of(Claims::Official), "{}", tap.name());
    }
    for claims in Claims::ALL {
        assert_eq!(Claims::from_name(claims.name()), Some(*claims));
    }
    assert_eq!(Claims::from_name("fp8"), None);
}

#[test]
fn the_table_agrees_with_a_rounding_of_normal_values() {
    let x = gaussian(1, 50_000);
    let rel = |round: &dyn Fn(f64) -> f64| {
        let y: Vec<f64> = x.iter().map(|v| round(*v)).collect();
        metrics(&x, &y).rel_l2
    };
    let bf16 = rel(&|v| half::bf16::from_f64(v).to_f64());
    let f16 = rel(&|v| half::f16::from_f64(v).to_f64());
    assert!((bf16 / Rounding::Bf16.rel_l2() - 1.0).abs() < 0.05, "{bf16}");
    assert!((f16 / Rounding::F16.rel_l2() - 1.0).abs() < 0.05, "{f16}");
}

#[test]
fn verdicts_by_error_tolerance_and_floor() {
    let t = Tolerance { value: 1e-3, ..Tolerance::provisional(Claims::Bf16, Tap::Out, None) };
    for (error, floor, verdict) in [
        (5e-4, None, Verdict::Pass),
        (1e-3, None, Verdict::Pass),
        (1.1e-3, None, Verdict::Fail),
        (0.0, None, Verdict::PassAtFloor),
        (f64::NAN, None, Verdict::Fail),
        (f64::INFINITY, None, Verdict::Fail),
        (5e-4, Some(1e-4), Verdict::Pass),
        (1e-4, Some(1e-4), Verdict::PassAtFloor),
        // Tolerance under 10 floors: the test could not have seen it...
        (5e-4, Some(2e-4), Verdict::Unproven),
        (1.5e-3, Some(2e-4), Verdict::Unproven),
        // ... but this is seen, and this is golden's own noise.
        (2.1e-3, Some(2e-4), Verdict::Fail),
        (1e-2, Some(1e-2), Verdict::PassAtFloor),
        (1e-4, Some(f64::NAN), Verdict::Fail),
    ] {
        assert_eq!(t.verdict(error, floor), verdict, "{error} {floor:?}");
    }
    assert_eq!(Verdict::PassAtFloor.name(), "<= floor");
    assert!(Verdict::Pass.is_pass() && Verdict::PassAtFloor.is_pass() && !Verdict::Unproven.is_pass());
}

#[test]
fn metrics_are_judged_by_the_tolerances_own_measure() {
    let f32_claim = Tolerance::provisional(Claims::F32, Tap::Out, None);
    let x = noise(2, 1000);
    let max = x.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
    let mut y = x.clone();
    y[5] = 0.0;
    let mut x0 = x.clone();
    x0[5] = 2e-5 * max;
    assert_eq!(f32_claim.judge(&metrics(&x0, &y), None), Verdict::Fail);
    x0[5] = 0.9e-5 * max;
    assert_eq!(f32_claim.judge(&metrics(&x0, &y), None), Verdict::Pass);
    y[6] = f64::NAN;
    assert_eq!(f32_claim.judge(&metrics(&x0, &y), Some(1.0)), Verdict::Fail);
}

#[test]
fn a_derived_tolerance_tightens_and_never_loosens() {
    let plain = Tolerance::provisional(Claims::Official, Tap::AttnIn, None);
    let many = 1e20;
    let tight = plain.tightened(2e-3, many);
    close(tight.value, 3e-3, 1e-9);
    assert!(!tight.provisional && tight.predicted == 2e-3);
    for looser in [1e-2, f64::INFINITY, f64::NAN] {
        assert_eq!(plain.tightened(looser, many), plain);
    }
    // 100 rows carry the error: arcosh(exp(0.04)) is 0.284_732 (exp(4 * 0.0707) is what four standard deviations would be).
    close(plain.tightened(2e-3, 100.0).value, 3e-3 * 0.284_732_f64.exp(), 1e-7);
    // One row does: chance alone may do more than four roundings.
    assert_eq!(plain.tightened(2e-3, 1.0), plain);
    // f32 arithmetic is not derived.
    assert_eq!(plain.tightened(1e-9, many).value, 1e-5);
    let f32_claim = Tolerance::provisional(Claims::F32, Tap::AttnIn, None);
    assert_eq!(f32_claim.tightened(1e-9, many), f32_claim);
}

/// Against the exact tails of the ratio of two sums of squares with 2, 4 and 1 degrees of freedom: F(2, 2), F(4, 4), F(1, 1). They are
/// within the bound of exp(-8), and not far within: no more than is derived is allowed.
#[test]
fn what_chance_may_do_to_a_few_rows_is_the_tail_of_the_ratio() {
    let of_two = |f: f64| 1.0 / (1.0 + f);
    let of_four = |f: f64| (1.0 + 3.0 * f) / (1.0 + f).powi(3);
    let of_one = |f: f64| 1.0 - std::f64::consts::FRAC_2_PI * f.sqrt().atan();
    let squared = |n: f64| chance(n) * chance(n);
    let rare = (-8.0_f64).exp();
    for tail in [of_two(squared(1.0)), of_four(squared(2.0)), of_one(squared(effective_rows(1.0, 1)))] {
        assert!((rare / 60.0..rare).contains(&tail), "{tail:e} of {rare:e}");
    }
    assert_eq!((effective_rows(6.0, 1), effective_rows(6.0, 2), effective_rows(6.0, 64)), (3.0, 6.0, 6.0));
    // Many rows: four standard deviations.
    let normal = |n: f64| (4.0 / (2.0 * n).sqrt()).exp();
    assert!([100.0, 1e4, 1e8].iter().all(|n| (1.0..1.0025).contains(&(chance(*n) / normal(*n)))));
}

#[test]
fn the_accumulators_formula_agrees_with_sums_in_f32() {
    // 400 dot products of length 512, f32 additions of exact products.
    let (k, n) = (512, 400);
    let (a, b) = (gaussian(7, k * n), gaussian(8, k * n));
    let (mut error, mut size) = (0.0, 0.0);
    for (a, b) in a.chunks(k).zip(b.chunks(k)) {
        let products: Vec<f64> = a.iter().zip(b).map(|(a, b)| f64::from((a * b) as f32)).collect();
        let exact: f64 = products.iter().sum();
        let low = products.iter().fold(0.0f32, |s, p| s + *p as f32);
        error += (f64::from(low) - exact).powi(2);
        size += exact * exact;
    }
    let measured = (error / size).sqrt();
    let predicted = accumulator(k);
    assert!((0.6..1.5).contains(&(measured / predicted)), "{measured:e} against {predicted:e}");
    close(root_sum([3.0, 4.0]), 5.0, 1e-15);
}

#[test]
fn a_sum_that_cancels_is_judged_by_what_is_left_of_it() {
    let four = Tolerance::provisional(Claims::Official, Tap::AttnIndexScore, None);
    // Four roundings are 0.48 or so; the plan costs 0.3 on these rows, and many carry it: 1.5 times that.
    let many = four.raised(0.4, 1e6);
    assert!((many.value / (0.6 * (4.0 * std::f64::consts::FRAC_1_SQRT_2 * 1e-3).exp()) - 1.0).abs() < 1e-6, "{many:?}");
    assert!(!many.provisional && many.predicted == 0.4);
    // One row carries it: four times, not 25 times.
    assert!((four.raised(0.4, 1.0).value - 1.6).abs() < 1e-12);
    // One value alone: of two draws of one normal variable either may be any factor larger.
    assert!(four.raised(0.4, 0.5).value > 1000.0);
    // What the four roundings cover, and what was tightened, stays.
    assert_eq!(four.raised(0.5 * four.predicted, 1.0), four);
    let tight = four.tightened(0.01, 100.0);
    assert_eq!(tight.raised(0.01, 100.0), tight);
    let exact = Tolerance::provisional(Claims::F32, Tap::AttnO, None);
    assert_eq!(exact.raised(0.5, 1.0), exact);
    assert_eq!(four.raised(f64::NAN, 1.0), four);
}
