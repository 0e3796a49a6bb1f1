//! Golden arithmetic: the only place of this crate that sums. This page is its normative text.
//!
//! The numbers below are fixed. A faster implementation must give the same bits; whatever changes a bit changes
//! [`NUMERICS_VERSION`], which enters a path's identity and with it every cache key and every committed hash.
//! "Round" is round to nearest, ties to even. No operation is contracted that this page does not contract.
//!
//! # Values
//! Weights are decoded to f32 exactly as stored (code times scale, the product rounded once where a scale is no power
//! of two). Every tensor that a tap can show is f32. In the f64 mode every such value and every accumulator is f64
//! (weights are the same f32 values), only the angles of rope stay f32; decisions are then forced from an f32 run.
//!
//! # Sums
//! *Dot product* of length K (every linear, mHC mixes, QK with K = head size, stream collapse and combine, index
//! scores over heads, sum of squares): K is cut into blocks of [`K_BLOCK`] = 128 from k = 0. Inside a block ONE f32
//! accumulator per output starts at +0.0 and takes `acc = fma(a[k], b[k], acc)` in ascending k. Block sums are widened
//! to f64 and added in block order to an f64 accumulator that starts at +0.0; the result is rounded once to f32.
//! Vector units run over outputs, never over K, so the result does not depend on batch, chunk, row split, thread count
//! or instruction set.
//! - Stream collapse: K = hc streams, j ascending. Stream combine: K = hc + 1, the streams in ascending order with
//!   `comb[j,k]`, then the branch output with `post[k]`.
//! - Sum of squares (norms): the f64 sum goes into the norm without the rounding to f32.
//! - Softmax-weighted sums (PV over keys, compressor pooling over slots): weights p = exp(s - m); the numerator is a
//!   dot product over keys in the query's key order (window by position, then entries by index; blocks of 128 from the
//!   first key), respectively over slots in slot order; numerator and denominator stay f64, `out = round(num / den)`.
//! - Denominators are f64 sums of the f32 weights, one by one in the same order. A sink is added last. A slot that is
//!   absent takes no part.
//! - Sinkhorn's row and column sums: a dot product with ones (hc <= 128 terms: plain f32 additions in ascending order).
//! - Routed experts: f64 accumulator per output, expert outputs (f32) added in ascending expert id (the same expert
//!   twice: in slot order), rounded once. Routing weights: `round(f64(s) / sum * scale)`, the sum f64 in slot order.
//!
//! # Functions
//! exp, sin, cos, sigmoid's and silu's exp take an f32 argument, are evaluated by the pure-Rust `libm` in f64 and
//! rounded to f32. softplus(v) = `round(log1p(exp(f64(v))))`, and v itself above 20; sqrt, division, +, -, * are IEEE f32.
//! sigmoid(v) = 1 / (1 + exp(-v)) and silu(v) = v / (1 + exp(-v)) with f32 steps.
//! RMS: `r = round(1 / sqrt(ss / n + eps))` with ss, n, eps and the steps in f64; then `(x * r) * w` in f32.
//! rope: angle = f32(pos) * inv_freq in f32 (spec 2.6 for inv_freq); rotation `e*cos - o*sin`, `e*sin + o*cos` with
//! each product rounded before the addition.
//! Scale factors (`hd^-0.5` and the like) are computed in f64, rounded once to f32 and multiplied after the dot
//! product is rounded. mHC pre-activations: `m * r`, `* scale`, `+ base`, each rounded.
//!
//! # Decisions
//! Larger score first, then LOWER index; NaN after every number; -0.0 equals +0.0.

mod ceiling;
mod elementary;
mod factor;
mod gemm;
mod gemm_tiles;
mod lines;
mod map;
mod mix;
mod packed;
mod pool;
mod real;
mod reduce;
mod score;
mod simd;
mod simd_bits;
mod simd_chain;
mod simd_vector;
mod softmax;
mod stored;
#[cfg(test)]
mod tests;
mod weight;
mod wide;

pub use ceiling::ceiling;
pub(crate) use factor::{Factor, matmul};
pub(crate) use gemm::matmul_here;
pub(crate) use map::{Function, Function2, map, zip_map};
pub(crate) use mix::mix_rows;
pub(crate) use packed::Packed;
pub(crate) use pool::Pool;
pub use real::Real;
pub(crate) use reduce::{ordered_sum, sums_of_squares};
pub(crate) use score::{ScoreBuffers, relu_scores};
pub use simd::{Isa, K_BLOCK, LANES};
pub(crate) use simd::{Job, dispatch};
pub(crate) use simd_bits::{BYTES, Bits, WORDS};
pub(crate) use simd_vector::{Machine, Vector};
pub(crate) use softmax::{PoolBuffers, SinkSoftmax, pool_slots};
pub(crate) use stored::{Stored, Times, multiply_stored};
pub use weight::Weight;
pub(crate) use wide::multiply_wide;

/// Version of the arithmetic on this page. It enters [`karat_seam::Path::identity`].
pub const NUMERICS_VERSION: u32 = 1;
