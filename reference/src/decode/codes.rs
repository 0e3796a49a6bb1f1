//! One code, one value.

/// E4M3 without infinity: sign, 4 exponent bits (bias 7), 3 mantissa bits. 0x7F and 0xFF are NaN, the largest value is
/// 448, subnormals step by 2^-9. Source: spec section 4.
pub fn e4m3(code: u8) -> f32 {
    let exponent = i32::from(code >> 3 & 0xF);
    let mantissa = f32::from(code & 7);
    let magnitude = match (exponent, code & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * power_of_two(-9),
        _ => (8.0 + mantissa) * power_of_two(exponent - 10),
    };
    if code & 0x80 == 0 { magnitude } else { -magnitude }
}

/// E8M0: the power of two 2^(code - 127). Code 0 is the f32 subnormal 2^-127, code 255 is NaN. Source: spec section 4.
pub fn e8m0(code: u8) -> f32 {
    if code == 255 { f32::NAN } else { power_of_two(i32::from(code) - 127) }
}

/// E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 for the low three bits, bit 3 is the sign (code 8 is -0). The upper four bits of the
/// argument are ignored. Source: spec section 4.
pub fn e2m1(code: u8) -> f32 {
    const MAGNITUDE: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let magnitude = MAGNITUDE[usize::from(code & 7)];
    if code & 8 == 0 { magnitude } else { -magnitude }
}

/// bfloat16: the upper half of an f32.
pub fn bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// 2^n for -149 <= n <= 127, exact.
fn power_of_two(n: i32) -> f32 {
    if n >= -126 { f32::from_bits(((n + 127) as u32) << 23) } else { f32::from_bits(1 << (n + 149)) }
}
