//! Number formats written from their definitions, in f64, and what one rounding to them costs. No path computes with
//! this code: it is the judge's own.

/// How values are rounded: one by one, or in blocks of a row that share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// bfloat16: 7 mantissa bits.
    Bf16,
    /// TF32: 10 mantissa bits, f32's exponents.
    Tf32,
    /// E4M3 without a scale (largest value 448).
    E4m3,
    /// E4M3 with a power-of-two scale for each block of this many values.
    E4m3Pow2(usize),
    /// E4M3 with scale max/448 for each block of this many values.
    E4m3Scaled(usize),
    /// E2M1 with a power-of-two scale for each block of this many values.
    Mxfp4(usize),
    /// E2M1 with an E4M3 scale for 16 values under one scale a row.
    Nvfp4,
}

/// Smallest block maximum: a block of zeros has a scale all the same.
const TINY: f64 = 1e-30;

/// `floor(log2(|x|))` of a normal f64.
fn exponent(x: f64) -> i32 {
    (x.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

/// 2^e, of a normal f64.
fn power(e: i32) -> f64 {
    debug_assert!((-1022..=1023).contains(&e));
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// The nearest value with `bits` mantissa bits and no exponent under `least`, ties to even.
fn nearest(x: f64, bits: i32, least: i32) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let step = power(exponent(x).max(least) - bits);
    (x / step).round_ties_even() * step
}

fn e4m3(x: f64) -> f64 {
    nearest(x.clamp(-448.0, 448.0), 3, -6)
}

fn e2m1(x: f64) -> f64 {
    nearest(x.clamp(-6.0, 6.0), 1, 0)
}

/// The smallest power of two that is not under `x`.
fn power_over(x: f64) -> f64 {
    let p = power(exponent(x));
    if p < x { 2.0 * p } else { p }
}

fn top(block: &[f64]) -> f64 {
    block.iter().fold(TINY, |a, v| a.max(v.abs()))
}

impl Format {
    /// Name in derivations: `bf16`, `e4m3 x 2^k / 128`.
    pub fn name(self) -> String {
        match self {
            Self::Bf16 => "bf16".into(),
            Self::Tf32 => "tf32".into(),
            Self::E4m3 => "e4m3".into(),
            Self::E4m3Pow2(n) => format!("e4m3 x 2^k / {n}"),
            Self::E4m3Scaled(n) => format!("e4m3 x f32 / {n}"),
            Self::Mxfp4(n) => format!("e2m1 x 2^k / {n}"),
            Self::Nvfp4 => "e2m1 x e4m3 / 16".into(),
        }
    }

    /// Rounds one row in place. The last block may be short.
    pub fn round(self, row: &mut [f64]) {
        let scaled = |block: &mut [f64], scale: f64, code: fn(f64) -> f64| {
            block.iter_mut().for_each(|v| *v = code(*v / scale) * scale);
        };
        match self {
            Self::Bf16 => row.iter_mut().for_each(|v| *v = nearest(*v, 7, -126)),
            Self::Tf32 => row.iter_mut().for_each(|v| *v = nearest(*v, 10, -126)),
            Self::E4m3 => row.iter_mut().for_each(|v| *v = e4m3(*v)),
            Self::E4m3Pow2(n) => {
                row.chunks_mut(n.max(1)).for_each(|b| scaled(b, power_over(top(b) / 448.0), e4m3));
            }
            Self::E4m3Scaled(n) => row.chunks_mut(n.max(1)).for_each(|b| scaled(b, top(b) / 448.0, e4m3)),
            Self::Mxfp4(n) => row.chunks_mut(n.max(1)).for_each(|b| scaled(b, power_over(top(b) / 6.0), e2m1)),
            Self::Nvfp4 => {
                let global = top(row) / (448.0 * 6.0);
                row.chunks_mut(16).for_each(|b| {
                    let scale = (e4m3(top(b) / 6.0 / global) * global).max(TINY);
                    scaled(b, scale, e2m1);
                });
            }
        }
    }
}

/// ‖Q(x) - x‖/‖x‖ over rows of `width` values that `round` rounds in place. Values that are not finite are left out;
/// `None` when nothing is left, or all of it is zero.
pub fn cost(values: &[f32], width: usize, round: impl Fn(&mut [f64])) -> Option<f64> {
    let (mut error, mut size) = (0.0, 0.0);
    let mut row = Vec::new();
    for values in values.chunks(width.max(1)) {
        row.clear();
        row.extend(values.iter().map(|v| if v.is_finite() { f64::from(*v) } else { 0.0 }));
        round(&mut row);
        for (x, y) in values.iter().zip(&row).filter(|(x, _)| x.is_finite()) {
            let x = f64::from(*x);
            error += (y - x) * (y - x);
            size += x * x;
        }
    }
    (size > 0.0).then(|| (error / size).sqrt())
}

#[cfg(test)]
mod tests;
