//! Rounding to the small formats, as values in f32 (spec 2.12 and section 4). All round to nearest, ties to even.
#![expect(clippy::inline_always, reason = "hot loops must be compiled with the features of their caller")]

use rayon::prelude::*;

use super::vectorised;

/// B(x): the nearest bf16 value. Infinities stay, NaN stays NaN, overflow rounds to infinity as the format does.
#[inline(always)]
pub(crate) fn bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000;
    f32::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { bits } else { rounded })
}

vectorised! {
    fn round(values: &mut [f32]) {
        for v in values {
            *v = bf16(*v);
        }
    }
}

/// Rounds a slice to bf16 in place when `on`.
pub(crate) fn round_rows(on: bool, values: &mut [f32]) {
    const TASK: usize = 1 << 14;
    if !on {
        return;
    }
    if values.len() <= 2 * TASK {
        round(values);
    } else {
        values.par_chunks_mut(TASK).for_each(round);
    }
}

/// The nearest TF32 value: 10 mantissa bits, ties away from zero, as the conversion instruction rounds.
#[inline(always)]
pub(crate) fn tf32(x: f32) -> f32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x1000) & 0xffff_e000;
    f32::from_bits(if bits & 0x7fff_ffff >= 0x7f80_0000 { bits } else { rounded })
}

/// The nearest E4M3 value of a number already clamped to +-448: 3 mantissa bits, subnormal step 2^-9. NaN stays NaN.
#[inline(always)]
pub(crate) fn e4m3(x: f32) -> f32 {
    // Below 2^-6 the grid is 2^-9: adding 1.5 * 2^14 leaves exactly that many bits in an f32.
    const MAGIC: f32 = 24576.0;
    let small = ((x + MAGIC) - MAGIC).copysign(x);
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7_ffff + ((bits >> 20) & 1)) & 0xfff0_0000;
    let large = f32::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { bits } else { rounded });
    if x.abs() < 0.015625 { small } else { large }
}

/// The nearest E2M1 value of a number already clamped to +-6: 0, 0.5, 1, 1.5, 2, 3, 4, 6; ties to the even code
/// (0.25 to 0, 0.75 to 1, 1.25 to 1, 1.75 to 2, 2.5 to 2, 3.5 to 4, 5 to 4).
#[inline(always)]
pub(crate) fn e2m1(x: f32) -> f32 {
    let a = x.abs();
    // An even multiple of the local step is an even code, so rounding the multiple to even is the rule.
    let (step, inverse) = if a < 2.0 { (0.5, 2.0) } else { (1.0, 1.0) };
    let (step, inverse) = if a < 4.0 { (step, inverse) } else { (2.0, 0.5) };
    ((a * inverse).round_ties_even() * step).copysign(x)
}
