//! Operands as the kernels take them: bf16 and E4M3 bits, filled up with zeros, and back.

use half::bf16;
use karat_model::checkpoint::{Dtype, RawTensor};
use karat_model::{Error, Result};

/// Bits of the nearest bf16 of each value: of values that are stored in bf16 exactly these.
pub(super) fn bits(values: &[f32]) -> Vec<u16> {
    values.iter().map(|v| bf16::from_f32(*v).to_bits()).collect()
}

/// Values of bf16 bits.
pub(super) fn values(bits: &[u16]) -> Vec<f32> {
    bits.iter().map(|b| bf16::from_bits(*b).to_f32()).collect()
}

/// `[rows, parts, width]` filled up to `[rows, to_parts, to_width]`.
pub(super) fn fill<T: Copy + Default>(
    from: &[T],
    (parts, width): (usize, usize),
    (to_parts, to_width): (usize, usize),
) -> Vec<T> {
    let mut out = vec![T::default(); from.len() / (parts * width).max(1) * to_parts * to_width];
    for (row, to) in from.chunks_exact(parts * width).zip(out.chunks_exact_mut(to_parts * to_width)) {
        for (part, to) in row.chunks_exact(width).zip(to.chunks_exact_mut(to_width)) {
            to[..width].copy_from_slice(part);
        }
    }
    out
}

/// The other way.
pub(super) fn cut<T: Copy>(from: &[T], (parts, width): (usize, usize), (to_parts, to_width): (usize, usize)) -> Vec<T> {
    let rows = from.chunks_exact(parts * width);
    rows.flat_map(|row| row.chunks_exact(width).take(to_parts).flat_map(|part| part[..to_width].iter().copied()))
        .collect()
}

/// A f32 matrix as bf16 terms, the largest first: `[terms, n]`. Each is what the terms before it leave, rounded.
pub(super) fn terms(values: &[f32], count: usize) -> Vec<u16> {
    let mut rest = values.to_vec();
    let mut out = Vec::with_capacity(values.len() * count);
    for _ in 0..count {
        for v in &mut rest {
            let term = bf16::from_f32(*v);
            out.push(term.to_bits());
            *v -= term.to_f32();
        }
    }
    out
}

/// Codes of values of E4M3.
///
/// # Errors
/// A value that the format doesn't have.
pub(super) fn e4m3(values: &[f32]) -> Result<Vec<u8>> {
    values.iter().map(|v| e4m3_code(*v)).collect()
}

fn e4m3_code(v: f32) -> Result<u8> {
    let none = || Error::input("an index code is no value of E4M3").found(v);
    let (bits, a) = (v.to_bits(), v.abs());
    let sign = (bits >> 24 & 0x80) as u8;
    if v.is_nan() {
        return Ok(sign | 0x7f);
    }
    if a < 0.015625 {
        // Subnormal: a whole number of 2^-9.
        let steps = a * 512.0;
        return if steps.fract() == 0.0 { Ok(sign | steps as u8) } else { Err(none()) };
    }
    let (exponent, mantissa) = ((bits >> 23 & 255) as i32 - 127, bits & 0x7f_ffff);
    if exponent > 8 || mantissa & 0xf_ffff != 0 || a > 448.0 {
        return Err(none());
    }
    Ok(sign | ((exponent + 7) as u8) << 3 | (mantissa >> 20) as u8)
}

/// Bits of bf16 of a weight that is stored as values, rounded where these are wider.
///
/// # Errors
/// It is stored as codes.
pub(super) fn weight_bits(raw: &RawTensor<'_>) -> Result<Vec<u16>> {
    match raw.dtype {
        Dtype::Bf16 => Ok(raw.bytes.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b)).collect()),
        Dtype::F32 => {
            let values: Vec<f32> = raw.bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            Ok(bits(&values))
        }
        other => {
            let error = Error::input("a kernel takes this weight as values").at(&raw.name);
            Err(error.expected("BF16 or F32").found(other.name()))
        }
    }
}

/// E8M0 scales of one matrix as E4M3 ones with a factor that all of them share.
///
/// # Errors
/// They lie too far apart, or one of them is no number.
pub(super) fn scales_in_e4m3(scales: &[u8], name: &str) -> Result<(Vec<u8>, f32)> {
    let (low, high) = scales.iter().fold((255, 0), |(low, high), s| (low.min(*s), high.max(*s)));
    // E4M3 holds the powers of two from 2^-9 to 2^8.
    if low == 0 || high == 255 || high - low > 17 {
        let error = Error::input("the scales of these experts have no exact form in NVFP4").at(name);
        return Err(error.expected("powers of two within 2^17 of each other").found(format!("codes {low} to {high}")));
    }
    let code = |s: &u8| match i32::from(*s) - i32::from(high) + 8 {
        e @ -6..=8 => ((e + 7) as u8) << 3,
        e => 1 << (e + 9),
    };
    // Two blocks of 16 for each block of 32.
    let codes = scales.iter().flat_map(|s| [code(s); 2]).collect();
    Ok((codes, f32::exp2(f32::from(high) - 127.0 - 8.0)))
}

#[cfg(test)]
mod tests;
