//! Exponentials in f32, evaluated in f64 and rounded once, so that no platform's mathematics library is in the result.
#![expect(clippy::inline_always, reason = "hot loops must be compiled with the features of their caller")]

/// exp(x): relative error under 2^-24 + 1e-12. Overflows to infinity, underflows to 0.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    exp_base2(f64::from(x), std::f64::consts::LOG2_E)
}

/// 2^x, as a kernel computes that has folded log2(e) into its scale.
#[inline(always)]
pub(crate) fn exp2(x: f32) -> f32 {
    exp_base2(f64::from(x), 1.0)
}

/// 2^x by a cubic polynomial on the fraction, as kernels do that spare the special-function unit (the coefficients are
/// FlashAttention-4's): relative error up to 9e-5. Under 2^-126 it stays there.
#[inline(always)]
pub(crate) fn exp2_cubic(x: f32) -> f32 {
    let x = if x < -126.0 { -126.0 } else { x };
    let whole = x.floor();
    let f = x - whole;
    let p = 0.077_119_09_f32.mul_add(f, 0.227_564_4).mul_add(f, 0.695_146_2).mul_add(f, 1.0);
    p * f32::from_bits(((whole as i32 + 127) as u32) << 23)
}

/// 2^(x * log2_base) through 2^n * e^r with |r| <= ln(2)/2 and the Taylor series of e^r to the tenth power
/// (remainder 2e-13).
#[inline(always)]
fn exp_base2(x: f64, log2_base: f64) -> f32 {
    let y = x * log2_base;
    // Past these ends the result is infinity or 0 all the same; a NaN passes both.
    let y = if y > 130.0 { 130.0 } else { y };
    let y = if y < -160.0 { -160.0 } else { y };
    // Adding 1.5 * 2^52 rounds to an integer, to nearest even, and leaves it in the low bits.
    const MAGIC: f64 = 6755399441055744.0;
    let shifted = y + MAGIC;
    let n = shifted - MAGIC;
    let r = (y - n) * std::f64::consts::LN_2;
    const C: [f64; 10] = [
        1.0 / 3628800.0,
        1.0 / 362880.0,
        1.0 / 40320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
    ];
    let mut p = C[0];
    for c in &C[1..] {
        p = p * r + c;
    }
    p = p * r + 1.0;
    let scale = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    (p * scale) as f32
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// x * sigmoid(x).
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// ln(1 + e^x), linear above 20 (spec 2.11).
#[inline(always)]
pub(crate) fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { f64::from(x).exp().ln_1p() as f32 }
}

/// ln(x), evaluated in f64 and rounded once.
#[inline(always)]
pub(crate) fn ln(x: f32) -> f32 {
    f64::from(x).ln() as f32
}
