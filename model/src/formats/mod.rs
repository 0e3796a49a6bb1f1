//! Number formats: E4M3, E8M0, E2M1, MXFP4, NVFP4, bf16. Decode and encode, for the candidate path and the tools.
//! `reference` has decoders of its own and never imports these; a test proves every code equal.
//!
//! Decoding is exact in f32 (spec section 4). Encoding rounds to nearest, ties to the even code. Which scale a block
//! gets is not decided here: that is a quantiser's business.

pub mod bf16;
pub mod block;
pub mod e2m1;
pub mod e4m3;
pub mod e8m0;
#[cfg(test)]
mod tests;
mod weight;

pub use weight::{decode_rows, scale_at};
