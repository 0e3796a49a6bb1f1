//! bfloat16: the upper half of an f32, through the `half` crate.

/// Value of a bit pattern, exact.
pub fn decode(bits: u16) -> f32 {
    half::bf16::from_bits(bits).to_f32()
}

/// Nearest bf16, ties to even; overflow goes to infinity, NaN stays NaN.
pub fn encode(x: f32) -> u16 {
    half::bf16::from_f32(x).to_bits()
}

/// B(.) of the spec: the value of the nearest bf16.
pub fn round(x: f32) -> f32 {
    half::bf16::from_f32(x).to_f32()
}
