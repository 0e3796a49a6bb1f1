//! Support for tests: seeded values and plain f64 formulas, written without the pass under test.

use karat_seam::Tensor;

/// Seeded values of mixed sign and size, exact in f32 (splitmix64).
pub(crate) fn noise(seed: u64, n: usize) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut value = || {
        let unit = (next() >> 40) as f64 / f64::from(1 << 24) - 0.5;
        let size = f64::exp2((next() % 8) as f64 - 4.0);
        f64::from((unit * size) as f32)
    };
    (0..n).map(|_| value()).collect()
}

/// Seeded normal values of unit variance (Box-Muller over the mantissas of [`noise`]).
pub(crate) fn gaussian(seed: u64, n: usize) -> Vec<f64> {
    let mut state = seed;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    };
    (0..n).map(|_| f64::from(((-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos()) as f32)).collect()
}

pub(crate) fn f32s(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&v| v as f32).collect()
}

pub(crate) fn tensor(shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::f32(shape.to_vec(), f32s(values))
}

/// Golden and a candidate that is off by a relative 2^-8 or so.
pub(crate) fn pair(seed: u64, n: usize) -> (Vec<f64>, Vec<f64>) {
    let x = noise(seed, n);
    let e = noise(seed ^ 0xabcd, n);
    let y = x.iter().zip(&e).map(|(x, e)| f64::from((x + e / 256.0) as f32)).collect();
    (x, y)
}

pub(crate) fn sum(values: impl Iterator<Item = f64>) -> f64 {
    // Kahan, so that the expected value is better than what it checks.
    let (mut s, mut c) = (0.0f64, 0.0f64);
    for v in values {
        let t = v - c;
        let next = s + t;
        c = (next - s) - t;
        s = next;
    }
    s
}

#[track_caller]
pub(crate) fn close(got: f64, expected: f64, tolerance: f64) {
    let scale = expected.abs().max(f64::MIN_POSITIVE);
    assert!((got - expected).abs() <= tolerance * scale, "{got:e} against {expected:e}");
}
