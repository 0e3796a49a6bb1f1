use proptest::prelude::*;

use super::*;
use crate::support::{close, noise, pair, sum, tensor};
use crate::{Grid, Measured, Storage, measure};

fn run(shape: &[usize], x: &[f64], y: &[f64], storage: Storage) -> Measured {
    let (x, y) = (tensor(shape, x), tensor(shape, y));
    measure("t", &x, &y, storage, &Grid::of(&x)).unwrap()
}

fn metrics(x: &[f64], y: &[f64], storage: Storage) -> Metrics {
    Metrics::of(&run(&[1, x.len()], x, y, storage).total)
}

#[test]
fn every_metric_equals_its_formula() {
    let (x, y) = pair(77, 5000);
    let m = metrics(&x, &y, Storage::F32);
    let dot = |a: &[f64], b: &[f64]| sum(a.iter().zip(b).map(|(a, b)| a * b));
    let d: Vec<f64> = x.iter().zip(&y).map(|(x, y)| y - x).collect();
    let (xx, yy, xy, dd) = (dot(&x, &x), dot(&y, &y), dot(&x, &y), dot(&d, &d));
    close(m.rel_l2, (dd / xx).sqrt(), 1e-12);
    close(m.gain, xy / xx, 1e-12);
    let rest: Vec<f64> = x.iter().zip(&y).map(|(x, y)| y - xy / xx * x).collect();
    close(m.residual, (dot(&rest, &rest) / xx).sqrt(), 1e-9);
    close(m.calc_diff, 1.0 - 2.0 * xy / (xx + yy), 1e-9);
    close(m.cosine, xy / (xx * yy).sqrt(), 1e-12);
    close(m.snr_db, 20.0 * (xx.sqrt() / dd.sqrt()).log10(), 1e-12);
    let abs = sum(d.iter().map(|d| d.abs()));
    assert!((m.sign_bias - sum(d.iter().copied()) / abs).abs() < 1e-12);
    let max = d.iter().fold(0.0, |a: f64, d| a.max(d.abs()));
    let max_x = x.iter().fold(0.0, |a: f64, d| a.max(d.abs()));
    assert_eq!((m.max_abs, m.max_over_max), (max, max / max_x));
}

#[test]
fn a_doubled_tensor_has_cosine_one_and_gain_two() {
    let x = noise(1, 999);
    let y: Vec<f64> = x.iter().map(|x| 2.0 * x).collect();
    let m = metrics(&x, &y, Storage::F32);
    close(m.cosine, 1.0, 1e-15);
    close(m.gain, 2.0, 1e-15);
    close(m.rel_l2, 1.0, 1e-15);
    close(m.calc_diff, 0.2, 1e-14);
    assert!(m.residual < 1e-7 && m.outward_bias == 1.0);
}

#[test]
fn truncation_shows_as_inward_bias_and_rounding_does_not() {
    let x = noise(2, 20_000);
    let truncated: Vec<f64> =
        x.iter().map(|x| f64::from(f32::from_bits((*x as f32).to_bits() & 0xffff_0000))).collect();
    let rounded: Vec<f64> = x.iter().map(|x| half::bf16::from_f64(*x).to_f64()).collect();
    let (t, r) = (metrics(&x, &truncated, Storage::Bf16), metrics(&x, &rounded, Storage::Bf16));
    assert!(t.outward_bias < -0.99 && t.sign_bias.abs() < 0.05 && t.gain < 1.0);
    assert!(r.outward_bias.abs() < 0.05);
    // A rounding is at most half an ulp off, a truncation less than one.
    assert!(r.ulp_p99.unwrap() <= 0.51 && t.ulp_p99.unwrap() > 0.9 && t.ulp_p99.unwrap() <= 1.0);
    assert!((1.4e-3..2.0e-3).contains(&r.rel_l2), "the table's bf16 value: {}", r.rel_l2);
}

#[test]
fn edges_have_values() {
    let zero = metrics(&[0.0; 9], &[0.0; 9], Storage::F32);
    let same = metrics(&[1.0, -2.0], &[1.0, -2.0], Storage::F32);
    for m in [zero, same] {
        assert_eq!((m.rel_l2, m.residual, m.calc_diff, m.max_abs, m.max_over_max), (0.0, 0.0, 0.0, 0.0, 0.0));
        assert_eq!((m.gain, m.cosine, m.snr_db, m.sign_bias, m.outward_bias), (1.0, 1.0, f64::INFINITY, 0.0, 0.0));
        assert_eq!((m.ulp_p99, m.max_abs_at), (Some(0.0), None));
    }
    let from_nothing = metrics(&[0.0, 0.0], &[1.0, 0.0], Storage::F32);
    assert_eq!(
        (from_nothing.rel_l2, from_nothing.max_over_max, from_nothing.residual),
        (f64::INFINITY, f64::INFINITY, f64::INFINITY)
    );
    assert!(from_nothing.gain.is_nan() || from_nothing.gain.is_infinite());
    assert_eq!((from_nothing.cosine, from_nothing.snr_db), (0.0, f64::NEG_INFINITY));
    let lost = metrics(&[3.0, 4.0], &[0.0, 0.0], Storage::F32);
    assert_eq!((lost.rel_l2, lost.gain, lost.residual, lost.cosine, lost.calc_diff), (1.0, 0.0, 0.0, 0.0, 1.0));
}

#[test]
fn one_nan_takes_every_number_but_the_counts() {
    let (x, mut y) = pair(5, 400);
    y[333] = f64::NAN;
    let moments = run(&[4, 100], &x, &y, Storage::Bf16);
    let m = Metrics::of(&moments.total);
    for number in
        [m.rel_l2, m.gain, m.residual, m.calc_diff, m.cosine, m.max_abs, m.max_over_max, m.snr_db, m.sign_bias]
    {
        assert!(number.is_nan());
    }
    assert!(m.ulp_p99.unwrap().is_nan() && m.outward_bias.is_nan());
    assert_eq!((m.nonfinite, m.n), (1, 400));
    assert!(Metrics::of_finite(&moments.total).rel_l2.is_finite());
    let rows = RowMetrics::of(&moments.rows);
    assert_eq!((rows.finite, rows.nonfinite, rows.first_nonfinite), (3, 1, Some(3)));
    assert!(rows.rel_l2_max.is_finite());
}

#[test]
fn masked_scores_are_no_fault() {
    let inf = f64::NEG_INFINITY;
    let m = metrics(&[1.0, inf, 2.0], &[1.0, inf, 2.0], Storage::F32);
    assert_eq!((m.nonfinite, m.rel_l2), (0, 0.0));
    assert_eq!(metrics(&[1.0, inf], &[1.0, 0.0], Storage::F32).nonfinite, 1);
}

#[test]
fn one_bad_row_hides_in_the_mean_and_shows_in_the_rows() {
    let (x, mut y) = pair(6, 1000 * 8);
    y[8 * 700..8 * 701].iter_mut().for_each(|v| *v = -*v);
    let m = run(&[1000, 8], &x, &y, Storage::F32);
    let rows = RowMetrics::of(&m.rows);
    assert_eq!(rows.worst, Some(700));
    assert!((rows.rel_l2_max - 2.0).abs() < 0.2 && rows.rel_l2_p99 < 0.2);
    let expected = |r: usize| {
        let row = r * 8..(r + 1) * 8;
        let dd = sum(row.clone().map(|i| (y[i] - x[i]) * (y[i] - x[i])));
        (dd / sum(row.map(|i| x[i] * x[i]))).sqrt()
    };
    let mut all: Vec<f64> = (0..1000).map(expected).collect();
    all.sort_by(f64::total_cmp);
    close(rows.rel_l2_p50, f64::midpoint(all[499], all[500]), 1e-10);
    close(rows.rel_l2_p99, all[989] + 0.01 * (all[990] - all[989]), 1e-10);
    let peak = (0..1000).map(|r| {
        let rms = (sum((r * 8..(r + 1) * 8).map(|i| x[i] * x[i])) / 8.0).sqrt();
        (r * 8..(r + 1) * 8).map(|i| (y[i] - x[i]).abs()).fold(0.0, f64::max) / rms
    });
    close(rows.max_abs_over_rms, peak.fold(0.0, f64::max), 1e-10);
}

#[test]
fn quantiles_of_few_and_of_infinite_values() {
    assert!(quantile(&mut [], 0.5).is_nan());
    assert_eq!(quantile(&mut [3.0], 0.99), 3.0);
    assert_eq!(quantile(&mut [2.0, 1.0], 0.25), 1.25);
    assert_eq!(quantile(&mut [f64::INFINITY, f64::INFINITY], 0.5), f64::INFINITY);
    assert_eq!(quantile(&mut [1.0, f64::INFINITY], 0.0), 1.0);
    assert!(RowMetrics::of(&[]).rel_l2_p99.is_nan());
}

#[test]
fn the_worst_rows_and_the_peak_are_named() {
    let x = tensor(&[5, 2], &[3.0, 4.0, 3.0, 4.0, 3.0, 4.0, 30.0, 40.0, 3.0, 4.0]);
    // Errors of 0, 1/5, 2/5 (in column 1), 1/50, 1/5.
    let y = tensor(&[5, 2], &[3.0, 4.0, 4.0, 4.0, 3.0, 2.0, 31.0, 40.0, 4.0, 4.0]);
    let m = measure("t", &x, &y, Storage::F32, &Grid::of(&x)).unwrap();
    assert_eq!(worst_rows(&m.rows, 10), [2, 1, 4, 3]);
    assert_eq!(worst_rows(&m.rows, 2), [2, 1]);
    let rows = RowMetrics::of(&m.rows);
    assert_eq!(rows.max_abs_over_rms_at, Some(At { row: 2, column: 1 }));
    close(rows.max_abs_over_rms, 2.0 / 12.5f64.sqrt(), 1e-15);
    let broken = tensor(&[5, 2], &[3.0, 4.0, 4.0, 4.0, 3.0, 2.0, 31.0, f64::NAN, 4.0, 4.0]);
    let m = measure("t", &x, &broken, Storage::F32, &Grid::of(&x)).unwrap();
    assert_eq!(worst_rows(&m.rows, 2), [3, 2]);
    assert_eq!(m.total.sums.first_nonfinite_at, Some(At { row: 3, column: 1 }));
    assert_eq!(RowMetrics::of(&m.rows).max_abs_over_rms_at, Some(At { row: 2, column: 1 }));
}

proptest! {
    #[test]
    fn relative_metrics_ignore_a_common_scale(seed: u64, n in 1usize..300, power in -20i32..20) {
        let (x, y) = pair(seed, n);
        let scale = |v: &[f64]| v.iter().map(|v| v * f64::exp2(f64::from(power))).collect::<Vec<_>>();
        let (a, b) = (metrics(&x, &y, Storage::F64), metrics(&scale(&x), &scale(&y), Storage::F64));
        // A power of two scales every sum exactly.
        prop_assert_eq!((a.rel_l2, a.gain, a.residual, a.calc_diff), (b.rel_l2, b.gain, b.residual, b.calc_diff));
        prop_assert_eq!((a.max_over_max, a.sign_bias, a.ulp_p99), (b.max_over_max, b.sign_bias, b.ulp_p99));
        prop_assert!((a.cosine - b.cosine).abs() <= 1e-15);
        prop_assert!((a.snr_db - b.snr_db).abs() <= 1e-9 || a.snr_db == b.snr_db);
    }

    #[test]
    fn a_tensor_against_itself_has_no_error(seed: u64, n in 0usize..300) {
        let x = noise(seed, n);
        let m = metrics(&x, &x, Storage::Bf16);
        prop_assert_eq!((m.rel_l2, m.residual, m.calc_diff, m.max_abs, m.sign_bias), (0.0, 0.0, 0.0, 0.0, 0.0));
        prop_assert_eq!((m.gain, m.cosine), (1.0, 1.0));
    }
}
