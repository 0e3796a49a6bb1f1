//! Quantisers of spec 2.12, as codes (raw f32 values of the format) and scales.
#![expect(clippy::inline_always, reason = "hot loops must be compiled with the features of their caller")]

mod hadamard;

pub use hadamard::hadamard;

use crate::arith::{e2m1, e4m3, vectorised};
use crate::ops::tasks;

/// Largest E4M3 value.
pub(crate) const E4M3_MAX: f32 = 448.0;
/// Largest E2M1 value.
const E2M1_MAX: f32 = 6.0;

/// 2^ceil(log2(x)) of a positive x, by its bits: the exponent, plus one when the mantissa is not zero.
#[inline(always)]
pub(crate) fn power_of_two_at_least(x: f32) -> f32 {
    let bits = x.to_bits();
    let exponent = (bits >> 23) + u32::from(bits & 0x7f_ffff != 0);
    f32::from_bits(exponent << 23)
}

#[inline(always)]
pub(crate) fn largest(x: &[f32], floor: f32) -> f32 {
    // By the bits, where a NaN is larger than anything: it makes the scale and with it the whole block NaN.
    f32::from_bits(x.iter().fold(floor.to_bits(), |a, &v| a.max(v.to_bits() & 0x7fff_ffff)))
}

/// Codes of one block with a power-of-two scale; `limit` is the format's largest value, `round` its grid.
#[inline(always)]
fn block_codes(x: &[f32], floor: f32, limit: f32, round: fn(f32) -> f32, codes: &mut [f32]) -> f32 {
    let a = largest(x, floor);
    let s = if a.is_nan() { f32::NAN } else { power_of_two_at_least(a * (1.0 / limit)) };
    // The inverse of a power of two is exact, and so is the product.
    let inverse = 1.0 / s;
    for (c, &v) in codes.iter_mut().zip(x) {
        *c = round((v * inverse).clamp(-limit, limit));
    }
    s
}

/// Quantises block by block and writes code * scale back: exact, because the scale is a power of two.
#[inline(always)]
fn in_place(x: &mut [f32], block: usize, floor: f32, limit: f32, round: fn(f32) -> f32) {
    debug_assert!(x.len().is_multiple_of(block));
    let mut codes = vec![0.0; block];
    for x in x.chunks_exact_mut(block) {
        let scale = block_codes(x, floor, limit, round, &mut codes);
        for (v, c) in x.iter_mut().zip(&codes) {
            *v = c * scale;
        }
    }
}

vectorised! {
    /// Q8 codes: E4M3 values with a power-of-two scale for each `block` channels; the block's maximum is floored.
    /// `codes` has the length of `x`, `scales` one value a block.
    fn q8_codes(x: &[f32], block: usize, floor: f32, codes: &mut [f32], scales: &mut [f32]) {
        for ((x, codes), scale) in x.chunks_exact(block).zip(codes.chunks_exact_mut(block)).zip(scales) {
            *scale = block_codes(x, floor, E4M3_MAX, e4m3, codes);
        }
    }
}

/// Codes `[rows, k]` and scales `[rows, k / block]` of rows whose length `block` divides.
pub(crate) fn q8_rows(x: &[f32], block: usize, floor: f32) -> (Vec<f32>, Vec<f32>) {
    let (mut codes, mut scales) = (vec![0.0; x.len()], vec![0.0; x.len() / block]);
    tasks(&mut codes, &mut scales, block, |first, codes, scales| {
        q8_codes(&x[first..first + codes.len()], block, floor, codes, scales);
    });
    (codes, scales)
}

vectorised! {
    /// Q8(x, block) in place: values code * scale.
    pub fn q8(x: &mut [f32], block: usize, floor: f32) {
        in_place(x, block, floor, E4M3_MAX, e4m3);
    }
}

vectorised! {
    /// Q4(x, block) in place: E2M1 values with a power-of-two scale, maximum floored at 6 * 2^-126.
    pub fn q4(x: &mut [f32], block: usize) {
        in_place(x, block, E2M1_MAX * f32::MIN_POSITIVE, E2M1_MAX, e2m1);
    }
}

vectorised! {
    /// FP8 codes with ONE f32 scale for each `block` channels: s = max/448, not rounded to a power of two.
    fn fp8_codes(x: &[f32], block: usize, floor: f32, codes: &mut [f32], scales: &mut [f32]) {
        for ((x, codes), scale) in x.chunks_exact(block).zip(codes.chunks_exact_mut(block)).zip(scales) {
            let s = largest(x, floor) / E4M3_MAX;
            *scale = s;
            for (c, &v) in codes.iter_mut().zip(x) {
                *c = e4m3((v / s).clamp(-E4M3_MAX, E4M3_MAX));
            }
        }
    }
}

/// FP8 codes `[rows, k]` and f32 scales `[rows, k / block]`.
pub(crate) fn fp8_rows(x: &[f32], block: usize, floor: f32) -> (Vec<f32>, Vec<f32>) {
    let (mut codes, mut scales) = (vec![0.0; x.len()], vec![0.0; x.len() / block]);
    tasks(&mut codes, &mut scales, block, |first, codes, scales| {
        fp8_codes(&x[first..first + codes.len()], block, floor, codes, scales);
    });
    (codes, scales)
}

vectorised! {
    /// NVFP4 of one row: a global scale max / (448 * 6), an E4M3 scale for 16 channels, E2M1 codes.
    fn nvfp4_codes(x: &[f32], codes: &mut [f32], scales: &mut [f32]) {
        let global = largest(x, f32::MIN_POSITIVE) / (E4M3_MAX * E2M1_MAX);
        for ((x, codes), scale) in x.chunks_exact(NVFP4_BLOCK).zip(codes.chunks_exact_mut(NVFP4_BLOCK)).zip(scales) {
            let s = e4m3((largest(x, 0.0) / E2M1_MAX / global).clamp(-E4M3_MAX, E4M3_MAX)) * global;
            *scale = s;
            for (c, &v) in codes.iter_mut().zip(x) {
                // A block whose scale rounds to zero is zero.
                *c = if s == 0.0 { 0.0 } else { e2m1((v / s).clamp(-E2M1_MAX, E2M1_MAX)) };
            }
        }
    }
}

/// Channels that share a scale in NVFP4.
const NVFP4_BLOCK: usize = 16;

/// NVFP4 codes `[rows, k]` and scales `[rows, k / 16]` with one global scale a row, so that no row depends on another.
pub(crate) fn nvfp4_rows(x: &[f32], k: usize) -> (Vec<f32>, Vec<f32>) {
    let (mut codes, mut scales) = (vec![0.0; x.len()], vec![0.0; x.len() / NVFP4_BLOCK]);
    let rows = codes.chunks_exact_mut(k).zip(scales.chunks_exact_mut(k / NVFP4_BLOCK));
    for (x, (codes, scales)) in x.chunks_exact(k).zip(rows) {
        nvfp4_codes(x, codes, scales);
    }
    (codes, scales)
}

/// E4M3 with scale 1, saturating, in place.
pub(crate) fn unscaled(x: &mut [f32]) {
    for v in x {
        *v = e4m3(v.clamp(-E4M3_MAX, E4M3_MAX));
    }
}

#[cfg(test)]
mod tests;
