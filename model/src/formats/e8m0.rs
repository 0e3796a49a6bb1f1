//! E8M0: a power of two, 2^(byte-127); byte 255 is NaN; byte 0 is 2^-127, an f32 subnormal (spec section 4).

/// The byte of NaN.
pub const NAN: u8 = 255;

/// Value of a byte, exact. Subnormal results are not flushed.
pub fn decode(byte: u8) -> f32 {
    match byte {
        NAN => f32::NAN,
        // 2^-127 is below f32's normal range: half of the smallest normal number.
        0 => f32::from_bits(1 << 22),
        b => f32::from_bits(u32::from(b) << 23),
    }
}

/// The byte of a power of two from 2^-127 to 2^127; `None` for every other value.
pub fn encode(x: f32) -> Option<u8> {
    let bits = x.to_bits();
    match bits {
        0x0040_0000 => Some(0),
        _ if bits >> 31 == 0 && bits.trailing_zeros() >= 23 && (1..=254).contains(&(bits >> 23)) => {
            Some((bits >> 23) as u8)
        }
        _ => None,
    }
}
