use proptest::prelude::*;

use super::*;

#[test]
fn the_scale_is_the_smallest_power_of_two_that_holds_the_maximum() {
    for (x, want) in
        [(1.0, 1.0), (1.0000001, 2.0), (0.75, 1.0), (0.5, 0.5), (3.0, 4.0), (2f32.powi(-126), 2f32.powi(-126))]
    {
        assert_eq!(power_of_two_at_least(x), want);
    }
}

#[test]
fn a_nan_spoils_its_block_and_no_other() {
    let mut x = vec![1.0f32; 64];
    x[3] = f32::NAN;
    q8(&mut x, 32, 1e-4);
    assert!(x[..32].iter().all(|v| v.is_nan()));
    assert!(x[32..].iter().all(|v| *v == 1.0));
}

/// H[i][j] = (-1)^popcount(i & j), the Sylvester matrix.
#[test]
fn hadamard_is_the_sylvester_matrix() {
    let x: Vec<f32> = (0..64).map(|i| ((i * 37 % 23) as f32 - 11.0) / 7.0).collect();
    let mut y = x.clone();
    hadamard(&mut y);
    for (i, y) in y.iter().enumerate() {
        let want: f64 = (0..64usize)
            .map(|j| if (i & j).count_ones() % 2 == 0 { f64::from(x[j]) } else { -f64::from(x[j]) })
            .sum::<f64>()
            / 8.0;
        assert!((f64::from(*y) - want).abs() < 1e-5, "{i}: {y} {want}");
    }
}

proptest! {
    #[test]
    fn quantising_twice_changes_nothing(x in proptest::collection::vec(-1000.0f32..1000.0, 128), tiny in -20i32..1) {
        let mut once: Vec<f32> = x.iter().map(|v| v * 2f32.powi(tiny)).collect();
        let exact = once.clone();
        q8(&mut once, 64, 1e-4);
        for (block, exact) in once.chunks(64).zip(exact.chunks(64)) {
            let max = exact.iter().fold(1e-4f32, |a, v| a.max(v.abs()));
            prop_assert!(block.iter().zip(exact).all(|(q, x)| (q - x).abs() <= max / 448.0 * 32.0));
        }
        let mut twice = once.clone();
        q8(&mut twice, 64, 1e-4);
        prop_assert_eq!(&once, &twice);
        let mut four = x.clone();
        q4(&mut four, 32);
        let mut again = four.clone();
        q4(&mut again, 32);
        prop_assert_eq!(four, again);
    }

    #[test]
    fn fp8_with_a_float_scale_hits_the_largest_code(x in proptest::collection::vec(-9.0f32..9.0, 128)) {
        let (codes, scale) = fp8_rows(&x, 128, 1e-4);
        prop_assert_eq!(codes.iter().fold(0f32, |a, c| a.max(c.abs())), 448.0);
        for (c, v) in codes.iter().zip(&x) {
            prop_assert!((c * scale[0] - v).abs() <= v.abs() * 0.0625 + scale[0] * 2f32.powi(-9));
        }
    }

    /// A block of 16 is off by half a step of its largest code (6 of 6, steps of 2) and of its scale (1/16).
    #[test]
    fn nvfp4_is_off_by_half_steps(x in proptest::collection::vec(-9.0f32..9.0, 64)) {
        let (codes, scales) = nvfp4_rows(&x, 64);
        for ((codes, s), x) in codes.chunks(16).zip(&scales).zip(x.chunks(16)) {
            let top = x.iter().fold(0f32, |a, v| a.max(v.abs()));
            prop_assert!((s * 6.0 / top - 1.0).abs() <= 0.0626 || top < 1e-3);
            for (c, v) in codes.iter().zip(x) {
                prop_assert!((c * s - v).abs() <= s * 1.001 + top * 0.0626);
            }
        }
    }
}
