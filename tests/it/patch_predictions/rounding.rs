//! Number formats written from their definitions, in f64, and what one rounding costs.

/// The nearest value with `bits` mantissa bits and no exponent under `least`, ties to even.
fn nearest(x: f64, bits: i32, least: i32) -> f64 {
    if x == 0.0 {
        return 0.0;
    }
    let step = 2f64.powi((x.abs().log2().floor() as i32).max(least) - bits);
    (x / step).round_ties_even() * step
}

pub(super) fn bf16(x: f64) -> f64 {
    nearest(x, 7, -126)
}

pub(super) fn tf32(x: f64) -> f64 {
    nearest(x, 10, -126)
}

pub(super) fn e4m3(x: f64) -> f64 {
    nearest(x.clamp(-448.0, 448.0), 3, -6)
}

fn e2m1(x: f64) -> f64 {
    nearest(x.clamp(-6.0, 6.0), 1, 0)
}

/// How an operand is rounded: value by value, or in blocks of a row.
#[derive(Clone, Copy)]
pub(super) enum Rounding {
    Each(fn(f64) -> f64),
    /// E4M3 with a power-of-two scale a block.
    Q8(usize),
    /// E2M1 with a power-of-two scale a block.
    Q4(usize),
    /// E4M3 with scale max/448 a block.
    Fp8(usize),
    /// E2M1 with an E4M3 scale for 16 under a scale a row.
    Nvfp4,
}

/// To bf16, value by value.
pub(super) const B: Rounding = Rounding::Each(bf16);

/// Rows of `width` rounded.
pub(super) fn rounded(x: &[f32], width: usize, how: Rounding) -> Vec<f64> {
    let x = exact(x);
    let top = |b: &[f64]| b.iter().fold(1e-30f64, |a, v| a.max(v.abs()));
    let blocks = |size: usize, f: &dyn Fn(&[f64]) -> Vec<f64>| -> Vec<f64> {
        x.chunks(width).flat_map(|row| row.chunks(size).flat_map(f).collect::<Vec<f64>>()).collect()
    };
    let scaled = |b: &[f64], s: f64, code: fn(f64) -> f64| b.iter().map(|v| code(v / s) * s).collect::<Vec<f64>>();
    let power = |v: f64| 2f64.powi(v.log2().ceil() as i32);
    match how {
        Rounding::Each(f) => x.iter().map(|v| f(*v)).collect(),
        Rounding::Q8(size) => blocks(size, &|b| scaled(b, power(top(b) / 448.0), e4m3)),
        Rounding::Q4(size) => blocks(size, &|b| scaled(b, power(top(b) / 6.0), e2m1)),
        Rounding::Fp8(size) => blocks(size, &|b| scaled(b, top(b) / 448.0, e4m3)),
        Rounding::Nvfp4 => blocks(width, &|row| {
            let global = top(row) / (448.0 * 6.0);
            let block = |b: &[f64]| scaled(b, e4m3(top(b) / 6.0 / global) * global, e2m1);
            row.chunks(16).flat_map(block).collect()
        }),
    }
}

/// The same values in f64.
pub(super) fn exact(x: &[f32]) -> Vec<f64> {
    x.iter().map(|v| f64::from(*v)).collect()
}

/// ||b - a|| / ||a|| over what is finite in both.
pub(super) fn rel_l2(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let (mut d, mut size) = (0.0, 0.0);
    for (a, b) in a.iter().zip(b).filter(|(a, b)| a.is_finite() && b.is_finite()) {
        d += (a - b).powi(2);
        size += a * a;
    }
    (d / size).sqrt()
}

/// Relative size of one rounding of an operand.
pub(super) fn cost(x: &[f32], width: usize, how: Rounding) -> f64 {
    rel_l2(&exact(x), &rounded(x, width, how))
}

/// Independent errors add up in squares.
pub(super) fn root(squares: &[f64]) -> f64 {
    squares.iter().map(|c| c * c).sum::<f64>().sqrt()
}
