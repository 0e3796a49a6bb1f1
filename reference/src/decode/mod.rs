//! Golden's own decoders, from raw bytes (spec section 4, "Dequantisation"). They share nothing with the number formats
//! of the candidate path; a test proves every code equal.

mod codes;
mod form;
mod panel;
#[cfg(test)]
mod tests;
mod weight;

pub use codes::{bf16, e2m1, e4m3, e8m0};
pub use weight::{Decoder, fp8_value, nvfp4_value, plain_f32, plain_index};
