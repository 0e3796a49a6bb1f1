use half::bf16 as half_bf16;
use proptest::prelude::*;

use super::dot::{dot_portable, weighted_sums_portable};
use super::panels::{WIDTH, tile_portable};
use super::*;

#[test]
fn bf16_rounds_as_half_does() {
    for high in 0..=u16::MAX {
        for low in [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
            let x = f32::from_bits((u32::from(high) << 16) | low);
            let expected = half_bf16::from_f32(x).to_f32();
            let got = bf16(x);
            assert!(got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan()), "{x:e}");
        }
    }
}

/// All non-negative E4M3 values from the format's definition: 1-4-3, bias 7, no infinity, 0x7f is NaN.
fn e4m3_grid() -> Vec<f64> {
    (0..0x7fu32)
        .map(|c| {
            let (e, m) = ((c >> 3) as i32, f64::from(c & 7));
            if e == 0 { m * 2f64.powi(-9) } else { (8.0 + m) * 2f64.powi(e - 10) }
        })
        .collect()
}

/// The nearest grid value; of two equally near ones that with the even code.
fn nearest(grid: &[f64], x: f64) -> f64 {
    let mut best = 0;
    for (code, g) in grid.iter().enumerate() {
        let (d, b) = ((g - x.abs()).abs(), (grid[best] - x.abs()).abs());
        if d < b || (d == b && code % 2 == 0) {
            best = code;
        }
    }
    grid[best].copysign(x)
}

#[test]
fn small_formats_round_to_the_nearest_even_code() {
    let e4 = e4m3_grid();
    let e2 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    assert_eq!(*e4.last().unwrap(), 448.0);
    for grid_pair in e4.windows(2) {
        let mid = f64::midpoint(grid_pair[0], grid_pair[1]);
        for x in [mid, mid * (1.0 + 1e-7), mid * (1.0 - 1e-7), grid_pair[1]] {
            for x in [x as f32, -x as f32] {
                assert_eq!(f64::from(e4m3(x)), nearest(&e4, f64::from(x)), "{x}");
            }
        }
    }
    for i in 0..=6000 {
        let x = i as f32 / 1000.0;
        assert_eq!(f64::from(e2m1(x)), nearest(&e2, f64::from(x)), "{x}");
        assert_eq!(e2m1(-x), -e2m1(x));
    }
}

#[test]
fn exponentials_are_within_one_place_of_f64() {
    for i in -110_000..=90_000 {
        let x = i as f32 / 1000.0;
        let close = |got: f32, want: f64| (f64::from(got) - want).abs() <= want.abs() * 6.1e-8 + 1e-45;
        assert!(close(exp(x), f64::from(x).exp()) || f64::from(x).exp() > f64::from(f32::MAX), "exp {x}");
        assert!(close(exp2(x), f64::from(x).exp2()), "exp2 {x}");
        assert!((f64::from(sigmoid(x)) - 1.0 / (1.0 + (-f64::from(x)).exp())).abs() < 1.2e-7);
    }
    assert_eq!(exp(f32::NEG_INFINITY), 0.0);
    assert_eq!(exp(f32::INFINITY), f32::INFINITY);
    assert!(exp(f32::NAN).is_nan());
    assert_eq!(exp(0.0), 1.0);
}

/// TF32 keeps 10 mantissa bits: half a step of 2^-10 at most, and 11-bit integers are exact.
#[test]
fn tf32_keeps_ten_bits() {
    for i in 1..=4096 {
        let x = i as f32 * 0.7310586;
        assert!((f64::from(tf32(x)) / f64::from(x) - 1.0).abs() <= 2f64.powi(-11));
        assert_eq!(tf32(x).to_bits() & 0x1fff, 0);
    }
    assert_eq!(tf32(2047.0), 2047.0);
    assert_eq!(tf32(1.0 + 2f32.powi(-11)), 1.0 + 2f32.powi(-10));
    assert!(tf32(f32::NAN).is_nan() && tf32(f32::INFINITY) == f32::INFINITY);
}

#[test]
fn the_cubic_exponential_is_off_by_its_polynomial() {
    let mut worst = 0f64;
    for i in -120_000..=20_000 {
        let x = i as f32 / 1000.0;
        worst = worst.max((f64::from(exp2_cubic(x)) / f64::from(x).exp2() - 1.0).abs());
    }
    assert!((5e-5..1.5e-4).contains(&worst), "{worst:e}");
}

fn values(n: usize) -> impl Strategy<Value = Vec<f32>> {
    proptest::collection::vec(-4.0f32..4.0, n)
}

proptest! {
    #[test]
    fn a_dot_has_the_same_bits_in_every_form((a, b) in (0usize..70).prop_flat_map(|n| (values(n), values(n)))) {
        let expected = dot_portable(&a, &b);
        prop_assert_eq!(dot(&a, &b).to_bits(), expected.to_bits());
        let exact: f64 = a.iter().zip(&b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
        let scale: f64 = a.iter().zip(&b).map(|(x, y)| (f64::from(*x) * f64::from(*y)).abs()).sum();
        prop_assert!((f64::from(expected) - exact).abs() <= scale * 1e-6);
    }

    #[test]
    fn weighted_sums_have_the_same_bits_in_every_form(m in 1usize..10, n in 1usize..9, width in 1usize..40, seed in values(64)) {
        let p: Vec<f32> = (0..m * n).map(|i| seed[i % 64]).collect();
        let rows: Vec<f32> = (0..n * width).map(|i| seed[(i * 5) % 63] + i as f32 * 1e-3).collect();
        let (mut a, mut b) = (vec![0.5; m * width], vec![0.5; m * width]);
        weighted_sums(&p, &rows, width, &mut a);
        weighted_sums_portable(&p, &rows, width, &mut b);
        prop_assert_eq!(&a, &b);
        let mut alone = vec![0.5; width];
        weighted_sums(&p[(m - 1) * n..], &rows, width, &mut alone);
        prop_assert_eq!(&a[(m - 1) * width..], &alone[..]);
    }

    #[test]
    fn a_product_does_not_depend_on_the_rows_beside(m in 1usize..70, n in 1usize..40, k in 1usize..50, seed in values(64)) {
        let a: Vec<f32> = (0..m * k).map(|i| seed[i % 64] + i as f32 * 1e-3).collect();
        let b: Vec<f32> = (0..n * k).map(|i| seed[(i * 7) % 61] - i as f32 * 1e-3).collect();
        let mut whole = vec![0.0; m * n];
        gemm(&a, &b, k, &mut whole);
        for row in 0..m {
            for col in 0..n {
                let one = dot_portable(&a[row * k..(row + 1) * k], &b[col * k..(col + 1) * k]);
                prop_assert_eq!(whole[row * n + col].to_bits(), one.to_bits());
            }
        }
    }

    #[test]
    fn a_packed_product_does_not_depend_on_the_rows_beside(m in 1usize..130, n in 1usize..40, k in 1usize..600, seed in values(64)) {
        let a: Vec<f32> = (0..m * k).map(|i| seed[i % 64] + i as f32 * 1e-5).collect();
        let b: Vec<f32> = (0..n * k).map(|i| seed[(i * 7) % 61] - i as f32 * 1e-5).collect();
        let w = Panels::pack(&b, k);
        let mut whole = vec![0.0; m * n];
        product(&a, &w, 0..n, &mut whole);
        let part = n / 3..n;
        let mut some = vec![0.0; part.len()];
        product_here(&a[(m - 1) * k..], &w, part.clone(), &mut some);
        prop_assert_eq!(&whole[(m - 1) * n + part.start..], &some[..]);
        for col in 0..n {
            let (row, weight) = (&a[..k], &b[col * k..(col + 1) * k]);
            let mut panel = vec![0.0; k * WIDTH];
            panel.iter_mut().step_by(WIDTH).zip(weight).for_each(|(p, w)| *p = *w);
            let one = tile_portable([row], &panel, 256, |_, _| None)[0][0];
            prop_assert_eq!(whole[col].to_bits(), one.to_bits());
            let exact: f64 = row.iter().zip(weight).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
            let size: f64 = row.iter().zip(weight).map(|(x, y)| (f64::from(*x) * f64::from(*y)).abs()).sum();
            prop_assert!((f64::from(one) - exact).abs() <= size * 3e-6);
        }
    }

    #[test]
    fn a_scaled_product_is_that_of_the_scaled_codes(m in 1usize..9, n in 1usize..40, blocks in 1usize..4, pick in 0usize..4, seed in values(64)) {
        let (a_block, b_block) = [(128, 32), (128, 128), (16, 128), (32, 32)][pick];
        let k = blocks * 128;
        let a: Vec<f32> = (0..m * k).map(|i| e4m3(seed[i % 64] * 50.0)).collect();
        let b: Vec<f32> = (0..n * k).map(|i| e2m1(seed[(i * 11) % 61])).collect();
        let sa: Vec<f32> = (0..m * k / a_block).map(|i| 2f32.powi(i as i32 % 5 - 3) * 1.25).collect();
        let sb: Vec<f32> = (0..n * k / b_block).map(|i| 2f32.powi(i as i32 % 7 - 4)).collect();
        let w = Panels::pack_scaled(Scaled { codes: &b, scales: &sb, block: b_block }, k);
        let mut whole = vec![0.0; m * n];
        product_scaled(Scaled { codes: &a, scales: &sa, block: a_block }, &w, 0..n, &mut whole);
        let step = a_block.min(b_block);
        for row in 0..m {
            let (ra, xa) = (&a[row * k..(row + 1) * k], &sa[row * k / a_block..(row + 1) * k / a_block]);
            for col in 0..n {
                let (rb, xb) = (&b[col * k..(col + 1) * k], &sb[col * k / b_block..(col + 1) * k / b_block]);
                let mut panel = vec![0.0; k * WIDTH];
                panel.iter_mut().step_by(WIDTH).zip(rb).for_each(|(p, w)| *p = *w);
                let scale = |_, i: usize| Some([xa[i * step / a_block] * xb[i * step / b_block]; WIDTH]);
                let one = tile_portable([ra], &panel, step, scale)[0][0];
                prop_assert_eq!(whole[row * n + col].to_bits(), one.to_bits());
                let term = |i: usize| f64::from(ra[i]) * f64::from(rb[i]) * f64::from(xa[i / a_block]) * f64::from(xb[i / b_block]);
                let (exact, size) = ((0..k).map(term).sum::<f64>(), (0..k).map(|i| term(i).abs()).sum::<f64>());
                prop_assert!((f64::from(one) - exact).abs() <= size * 1e-6);
            }
        }
    }
}
