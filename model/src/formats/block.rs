//! Block formats of packed FP4 weights: MXFP4 and NVFP4, one row at a time (spec section 4).

use super::{e2m1, e4m3, e8m0};

/// Columns that share an MXFP4 scale.
pub const MXFP4_GROUP: usize = 32;
/// Columns that share an NVFP4 scale.
pub const NVFP4_GROUP: usize = 16;

/// Decodes MXFP4: `codes` has one byte for two columns (low nibble first), `scales` one E8M0 byte for 32 columns; `out`
/// gets `2 * codes.len()` values `code * 2^(scale-127)`, exact unless they overflow (scale byte 253 and up).
///
/// # Panics
/// If the lengths don't fit together.
pub fn mxfp4_row(codes: &[u8], scales: &[u8], out: &mut [f32]) {
    assert_eq!(out.len(), 2 * codes.len(), "one byte holds two codes");
    assert_eq!(out.len(), MXFP4_GROUP * scales.len(), "one scale for 32 columns");
    for ((out, codes), &scale) in out.chunks_exact_mut(MXFP4_GROUP).zip(codes.chunks_exact(MXFP4_GROUP / 2)).zip(scales)
    {
        group(codes, e8m0::decode(scale), 1.0, out);
    }
}

/// Decodes NVFP4: `scales` holds one E4M3 code for 16 columns, `global` multiplies them all. The value is
/// `(code * scale) * global`: the first product is exact, so the value is rounded once.
///
/// # Panics
/// If the lengths don't fit together.
pub fn nvfp4_row(codes: &[u8], scales: &[u8], global: f32, out: &mut [f32]) {
    assert_eq!(out.len(), 2 * codes.len(), "one byte holds two codes");
    assert_eq!(out.len(), NVFP4_GROUP * scales.len(), "one scale for 16 columns");
    for ((out, codes), &scale) in out.chunks_exact_mut(NVFP4_GROUP).zip(codes.chunks_exact(NVFP4_GROUP / 2)).zip(scales)
    {
        group(codes, e4m3::decode(scale), global, out);
    }
}

fn group(codes: &[u8], scale: f32, global: f32, out: &mut [f32]) {
    for (pair, &byte) in out.chunks_exact_mut(2).zip(codes) {
        let [even, odd] = e2m1::unpack(byte);
        pair[0] = e2m1::decode(even) * scale * global;
        pair[1] = e2m1::decode(odd) * scale * global;
    }
}
