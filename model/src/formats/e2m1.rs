//! E2M1 (FP4): sign, 2 exponent bits, 1 mantissa bit: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives (spec section 4).

/// Largest value.
pub const MAX: f32 = 6.0;

/// Value of every code. Code 8 is -0.
pub static TABLE: [f32; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Value of the low four bits, exact.
pub fn decode(code: u8) -> f32 {
    TABLE[usize::from(code & 15)]
}

/// Nearest code, ties to the even code (0.25 to 0, 0.75 to 1, 1.25 to 1, 1.75 to 2, 2.5 to 2, 3.5 to 4, 5 to 4); beyond
/// 6 it saturates. The format has no NaN: NaN gives `None`.
pub fn encode(x: f32) -> Option<u8> {
    if x.is_nan() {
        return None;
    }
    let a = x.abs();
    // Each bound is the middle of two neighbours; the middle itself goes to the even one of the two codes.
    let code = if a <= 0.25 {
        0
    } else if a < 0.75 {
        1
    } else if a <= 1.25 {
        2
    } else if a < 1.75 {
        3
    } else if a <= 2.5 {
        4
    } else if a < 3.5 {
        5
    } else if a <= 5.0 {
        6
    } else {
        7
    };
    Some(code | if x.is_sign_negative() { 8 } else { 0 })
}

/// The two codes of a packed byte: the LOW nibble is the even column.
pub fn unpack(byte: u8) -> [u8; 2] {
    [byte & 15, byte >> 4]
}

/// Packs the codes of an even and the next odd column.
pub fn pack(even: u8, odd: u8) -> u8 {
    (even & 15) | odd << 4
}
