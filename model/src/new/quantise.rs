//! Values to the stored codes of spec section 4, for weights only: nearest code under a power-of-two block scale.

/// E8M0 byte of the smallest power of two `s` with `amax / s <= limit`.
fn scale_byte(amax: f32, limit: f32) -> u8 {
    let mut byte = 127_u8;
    while byte > 1 && amax <= limit * power(byte - 1) {
        byte -= 1;
    }
    while byte < 254 && amax > limit * power(byte) {
        byte += 1;
    }
    byte
}

/// 2^(byte-127) for a byte in 1..=254.
fn power(byte: u8) -> f32 {
    f32::from_bits(u32::from(byte) << 23)
}

/// Nearest E4M3 code of a value within +-448, ties to even.
fn e4m3(x: f32) -> u8 {
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    let a = x.abs().min(448.0);
    // Normal numbers start at 2^-6; below, the step stays 2^-9. The step is exact, and so is the quotient.
    let exponent = ((a.to_bits() >> 23) as i32 - 127).max(-6);
    let step = f32::from_bits(((exponent - 3 + 127) as u32) << 23);
    let units = (a / step).round_ties_even() as u32;
    // Units 8..16 are mantissa 0..8 of this exponent; 16 carries into the next one by itself.
    sign | (((exponent + 6) as u32 * 8) + units) as u8
}

/// Nearest E2M1 code, ties to the even code.
fn e2m1(x: f32) -> u8 {
    // Midpoints between neighbours 0, .5, 1, 1.5, 2, 3, 4, 6; a tie goes to the even code.
    const MIDPOINTS: [f32; 7] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
    let a = x.abs();
    let code =
        MIDPOINTS.iter().enumerate().filter(|&(low, &m)| if low % 2 == 0 { a > m } else { a >= m }).count() as u8;
    // There is no negative zero among made weights.
    if x < 0.0 && code > 0 { code | 8 } else { code }
}

/// `[rows, cols]` values to E4M3 codes and E8M0 scales of 128x128 blocks (partial edge blocks allowed).
pub(super) fn fp8_blocks(values: &[f32], rows: usize, cols: usize) -> (Vec<u8>, Vec<u8>) {
    const BLOCK: usize = 128;
    let across = cols.div_ceil(BLOCK);
    let mut amax = vec![0_f32; rows.div_ceil(BLOCK) * across];
    for (i, v) in values.iter().enumerate() {
        let block = &mut amax[(i / cols / BLOCK) * across + i % cols / BLOCK];
        *block = block.max(v.abs());
    }
    let scales: Vec<u8> = amax.iter().map(|&a| scale_byte(a, 448.0)).collect();
    let codes = values
        .iter()
        .enumerate()
        .map(|(i, v)| e4m3(v / power(scales[(i / cols / BLOCK) * across + i % cols / BLOCK])))
        .collect();
    (codes, scales)
}

/// `[rows, cols]` values to packed E2M1 codes (low nibble first) and E8M0 scales per row and 32 columns.
pub(super) fn mxfp4(values: &[f32]) -> (Vec<u8>, Vec<u8>) {
    let mut codes = Vec::with_capacity(values.len() / 2);
    let mut scales = Vec::with_capacity(values.len() / 32);
    for group in values.chunks_exact(32) {
        let byte = scale_byte(group.iter().fold(0.0, |a, v| f32::max(a, v.abs())), 6.0);
        let code = |v: f32| e2m1(v / power(byte));
        codes.extend(group.chunks_exact(2).map(|pair| code(pair[0]) | (code(pair[1]) << 4)));
        scales.push(byte);
    }
    (codes, scales)
}

/// The scale of a matrix under which its largest value is the largest code under the largest scale: 6 times 448.
pub(super) fn nvfp4_global<'a>(values: impl Iterator<Item = &'a f32>) -> f32 {
    values.fold(0.0, |a, v| f32::max(a, v.abs())) / (6.0 * 448.0)
}

/// `[rows, cols]` values to packed E2M1 codes (low nibble first) and E4M3 scales per row and 16 columns, all under one
/// global scale: value = code * scale * global.
pub(super) fn nvfp4(values: &[f32], global: f32) -> (Vec<u8>, Vec<u8>) {
    let mut codes = Vec::with_capacity(values.len() / 2);
    let mut scales = Vec::with_capacity(values.len() / 16);
    for group in values.chunks_exact(16) {
        let amax = group.iter().fold(0.0, |a, v| f32::max(a, v.abs()));
        let scale = e4m3(amax / 6.0 / global);
        // A scale of zero has codes of zero.
        let unit = e4m3_value(scale) * global;
        let code = |v: f32| if unit > 0.0 { e2m1(v / unit) } else { 0 };
        codes.extend(group.chunks_exact(2).map(|pair| code(pair[0]) | (code(pair[1]) << 4)));
        scales.push(scale);
    }
    (codes, scales)
}

/// Value of a positive E4M3 code.
fn e4m3_value(code: u8) -> f32 {
    let mantissa = f32::from(code & 7);
    match code >> 3 {
        0 => mantissa / 512.0,
        exponent => (1.0 + mantissa / 8.0) * power(exponent + 120),
    }
}

#[cfg(test)]
mod tests {
    use super::{e2m1, e4m3, e4m3_value, nvfp4, nvfp4_global, scale_byte};

    /// Values of all E2M1 codes from the format's definition.
    const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

    #[test]
    fn every_code_of_both_formats_encodes_to_itself() {
        for code in 0..=255_u8 {
            // float8's decode is independent of this file; it is wrong for no code but NaN, which weights never hold.
            let value = float8::F8E4M3::from_bits(code).to_f32();
            if value.is_nan() {
                continue;
            }
            assert_eq!(e4m3(value), code, "{value}");
        }
        for (code, value) in E2M1.into_iter().enumerate() {
            assert_eq!(e2m1(value), code as u8);
            assert_eq!(e2m1(-value), if code == 0 { 0 } else { code as u8 | 8 });
        }
    }

    /// Each value lies within half a step of its code's neighbours under the block's own scale, and the largest value of
    /// all is held exactly to a rounding of f32.
    #[test]
    fn nvfp4_codes_are_the_nearest_under_both_scales() {
        for code in 0..0x7f_u8 {
            assert_eq!(e4m3_value(code), float8::F8E4M3::from_bits(code).to_f32());
        }
        let values: Vec<f32> =
            (0..64).map(|i| ((i * 37 % 64) as f32 - 31.0) * if i < 32 { 0.01 } else { 0.5 }).collect();
        let global = nvfp4_global(values.iter());
        let (codes, scales) = nvfp4(&values, global);
        let value = |i: usize| {
            let nibble = codes[i / 2] >> (4 * (i % 2)) & 15;
            let scale = float8::F8E4M3::from_bits(scales[i / 16]).to_f32();
            E2M1[usize::from(nibble & 7)] * if nibble > 7 { -1.0 } else { 1.0 } * scale * global
        };
        for (i, v) in values.iter().enumerate() {
            let unit = float8::F8E4M3::from_bits(scales[i / 16]).to_f32() * global;
            let nearest = E2M1.iter().map(|c| (c * unit - v.abs()).abs()).fold(f32::MAX, f32::min);
            assert!((value(i) - v).abs() <= nearest + 1e-6 * v.abs(), "{v}: {}", value(i));
        }
        let top = (0..64).max_by(|a, b| values[*a].abs().total_cmp(&values[*b].abs())).unwrap();
        assert!((value(top) / values[top] - 1.0).abs() < 1e-6);
        assert_eq!(nvfp4(&[0.0; 16], global), (vec![0; 8], vec![0]));
    }

    #[test]
    fn ties_go_to_even_codes() {
        // Spec 2.12: 0.25->0, 0.75->1, 1.25->1, 1.75->2, 2.5->2, 3.5->4, 5->4.
        for (x, v) in [(0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0)] {
            assert_eq!(E2M1[e2m1(x) as usize], v, "{x}");
        }
        // Between 1 (0x38) and 1.125 (0x39), between 1.125 and 1.25 (0x3a), under the smallest subnormal.
        assert_eq!(e4m3(1.0625), 0x38);
        assert_eq!(e4m3(1.1875), 0x3a);
        assert_eq!(e4m3(0.5 / 512.0), 0);
        assert_eq!(e4m3(1.5 / 512.0), 2);
        // 15.5 units round up into the next exponent.
        assert_eq!(e4m3(1.9375), 0x40);
    }

    #[test]
    fn scales_are_the_smallest_that_fit() {
        assert_eq!(scale_byte(448.0, 448.0), 127);
        assert_eq!(scale_byte(448.1, 448.0), 128);
        assert_eq!(scale_byte(224.0, 448.0), 126);
        assert_eq!(scale_byte(0.375, 6.0), 123);
        assert_eq!(scale_byte(0.0, 6.0), 1);
    }
}
