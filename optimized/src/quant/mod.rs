//! Quantisers of spec 2.12, as codes (raw f32 values of the format) and scales.

mod hadamard;

pub use hadamard::hadamard;

use crate::arith::{e2m1, e4m3};

/// Largest E4M3 value.
const E4M3_MAX: f32 = 448.0;
/// Largest E2M1 value.
const E2M1_MAX: f32 = 6.0;

/// 2^ceil(log2(x)) of a positive x, by its bits: the exponent, plus one when the mantissa is not zero.
fn power_of_two_at_least(x: f32) -> f32 {
    let bits = x.to_bits();
    let exponent = (bits >> 23) + u32::from(bits & 0x7f_ffff != 0);
    f32::from_bits(exponent << 23)
}

fn largest(x: &[f32], floor: f32) -> f32 {
    // A NaN must not hide behind `max`: it makes the scale and with it the whole block NaN.
    x.iter().fold(floor, |a, &v| if v.is_nan() || a.is_nan() { f32::NAN } else { a.max(v.abs()) })
}

/// Q8 codes of one row: E4M3 values with a power-of-two scale for each `block` channels; the block's maximum is floored.
/// `codes` has the row's length, `scales` one value a block.
pub(crate) fn q8_codes(x: &[f32], block: usize, floor: f32, codes: &mut [f32], scales: &mut [f32]) {
    debug_assert!(x.len().is_multiple_of(block));
    for ((x, codes), scale) in x.chunks_exact(block).zip(codes.chunks_exact_mut(block)).zip(scales) {
        let a = largest(x, floor);
        let s = if a.is_nan() { f32::NAN } else { power_of_two_at_least(a * (1.0 / E4M3_MAX)) };
        *scale = s;
        for (c, &v) in codes.iter_mut().zip(x) {
            *c = e4m3((v / s).clamp(-E4M3_MAX, E4M3_MAX));
        }
    }
}

/// Q8(x, block) in place: values code * scale.
pub fn q8(x: &mut [f32], block: usize, floor: f32) {
    in_place(x, block, |x, codes, scales| q8_codes(x, block, floor, codes, scales));
}

/// Q4(x, block) in place: E2M1 values with a power-of-two scale, maximum floored at 6 * 2^-126.
pub fn q4(x: &mut [f32], block: usize) {
    let floor = E2M1_MAX * f32::MIN_POSITIVE;
    in_place(x, block, |x, codes, scales| {
        let a = largest(x, floor);
        let s = if a.is_nan() { f32::NAN } else { power_of_two_at_least(a * (1.0 / E2M1_MAX)) };
        scales[0] = s;
        for (c, &v) in codes.iter_mut().zip(x) {
            *c = e2m1((v / s).clamp(-E2M1_MAX, E2M1_MAX));
        }
    });
}

/// FP8 codes of one row with ONE f32 scale for each `block` channels: s = max/448, not rounded to a power of two.
pub(crate) fn fp8_codes(x: &[f32], block: usize, floor: f32, codes: &mut [f32], scales: &mut [f32]) {
    debug_assert!(x.len().is_multiple_of(block));
    for ((x, codes), scale) in x.chunks_exact(block).zip(codes.chunks_exact_mut(block)).zip(scales) {
        let s = largest(x, floor) / E4M3_MAX;
        *scale = s;
        for (c, &v) in codes.iter_mut().zip(x) {
            *c = e4m3((v / s).clamp(-E4M3_MAX, E4M3_MAX));
        }
    }
}

/// Quantises block by block and writes code * scale back. The product is exact where the scale is a power of two.
fn in_place(x: &mut [f32], block: usize, quantise: impl Fn(&[f32], &mut [f32], &mut [f32])) {
    debug_assert!(x.len().is_multiple_of(block));
    let mut codes = vec![0.0; block];
    for x in x.chunks_exact_mut(block) {
        let mut scale = [0.0];
        quantise(x, &mut codes, &mut scale);
        for (v, c) in x.iter_mut().zip(&codes) {
            *v = c * scale[0];
        }
    }
}

#[cfg(test)]
mod tests;
