//! E4M3FN: sign, 4 exponent bits (bias 7), 3 mantissa bits; no infinity; 0x7F and 0xFF are NaN; largest value 448;
//! subnormal step 2^-9 (spec section 4).

/// Largest finite value.
pub const MAX: f32 = 448.0;

/// The code of NaN without sign.
pub const NAN: u8 = 0x7F;

/// Value of every code.
static TABLE: [f32; 256] = table();

const fn table() -> [f32; 256] {
    let mut t = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        t[code] = f32::from_bits(bits(code as u8));
        code += 1;
    }
    t
}

/// The f32 bit pattern of a code's value.
const fn bits(code: u8) -> u32 {
    let sign = (code as u32 >> 7) << 31;
    let exponent = (code >> 3 & 0xF) as u32;
    let mantissa = (code & 7) as u32;
    sign | match (exponent, mantissa) {
        (15, 7) => f32::NAN.to_bits() & 0x7FFF_FFFF,
        (0, 0) => 0,
        (0, m) => {
            // m * 2^-9 with m = 1..7: shifted until bit 2 (worth 2^-7) is the hidden bit, two mantissa bits stay.
            let shift = m.leading_zeros() - 29;
            ((127 - 7 - shift) << 23) | ((m << shift) & 3) << 21
        }
        (e, m) => ((e + 127 - 7) << 23) | m << 20,
    }
}

/// Value of a code, exact.
pub fn decode(code: u8) -> f32 {
    TABLE[code as usize]
}

/// Nearest code, ties to even; beyond 448 it saturates to ±448 (infinities too), NaN stays NaN with its sign.
pub fn encode(x: f32) -> u8 {
    let bits = x.to_bits();
    let sign = (bits >> 31 << 7) as u8;
    let magnitude = bits & 0x7FFF_FFFF;
    if magnitude > 0x7F80_0000 {
        return sign | NAN;
    }
    // Normal range starts at 2^-6; 121 is its f32 exponent field.
    let code = if magnitude < 121 << 23 {
        // Below: a multiple of 2^-9. Adding 2^14 to the magnitude leaves exactly 2^-9 steps in f32, so the addition
        // itself rounds to nearest, ties to even. 8 means 2^-6, which is the first normal code.
        let shifted = f32::from_bits(magnitude) + 16384.0;
        (shifted.to_bits() - 16384f32.to_bits()) as u8
    } else {
        // Keep 3 of 23 mantissa bits: add half a step less one, plus the kept part's last bit (ties to even).
        let rounded = magnitude + 0x7_FFFF + (magnitude >> 20 & 1);
        let code = (rounded >> 20).saturating_sub((127 - 7) << 3);
        // 0x7E is 448; 0x7F would be NaN.
        code.min(0x7E) as u8
    };
    sign | code
}
