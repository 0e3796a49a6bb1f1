//! Arithmetic of the candidate path: rounding, exponentials, dot products in one fixed order.
//!
//! Everything here gives the same bits for every batch size, chunking, thread count and instruction set, so that a
//! difference between two runs is a difference of numerics and never of scheduling.

mod dot;
mod exp;
mod gemm;
mod panels;
mod round;
mod simd_call;
#[cfg(target_arch = "x86_64")]
mod simd_dot;
#[cfg(target_arch = "x86_64")]
mod simd_panels;
mod split;

pub(crate) use dot::{dot, has_simd, sum, weighted_sums};
pub(crate) use exp::{exp, exp2, exp2_cubic, ln, sigmoid, silu, softplus};
pub(crate) use gemm::gemm;
pub(crate) use panels::{Panels, Scaled, product, product_here, product_scaled};
pub(crate) use round::{bf16, e2m1, e4m3, round_rows, tf32};
pub(crate) use simd_call::vectorised;

/// Bits of every lane count, tree and constant of this module: part of a run's identity. Raise it when results change.
pub(crate) const NUMERICS_VERSION: u32 = 2;

#[cfg(test)]
mod tests;
