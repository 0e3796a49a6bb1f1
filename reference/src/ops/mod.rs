//! The ops of a block, one file each. An op is a function on row-major slices; it knows nothing of taps or lanes.
//! Notation: S rows, D hidden, H heads, hd head size, R q_lora, T entries, Hi index heads, di index head size, K experts
//! a token, E experts, I inner size, G output groups.

pub(crate) mod attend;
pub(crate) mod compress;
pub(crate) mod embed;
pub(crate) mod experts;
pub(crate) mod hc_coefficients;
pub(crate) mod hc_mix;
pub(crate) mod head;
pub(crate) mod index;
pub(crate) mod key_value;
pub(crate) mod mtp_input;
pub(crate) mod output;
pub(crate) mod query;
pub(crate) mod rms_norm;
pub(crate) mod rope;
pub(crate) mod route;
pub(crate) mod select;
pub(crate) mod swiglu;
#[cfg(test)]
mod tests;

use karat_model::Config;

use crate::linalg::{Isa, Packed, Real, matmul};

/// What every op needs to know.
#[derive(Clone, Copy)]
pub(crate) struct Ctx<'a> {
    pub(crate) config: &'a Config,
    pub(crate) isa: Isa,
}

/// Rows of a row-major matrix.
pub(crate) fn rows<T>(x: &[T], width: usize) -> Vec<&[T]> {
    if width == 0 { Vec::new() } else { x.chunks_exact(width).collect() }
}

/// A linear without bias: `[S,k] -> [S,n]`, `y = x w^T`.
pub(crate) fn linear<T: Real>(ctx: Ctx<'_>, x: &[T], k: usize, w: &Packed<T>) -> Vec<T> {
    matmul(ctx.isa, &rows(x, k), w)
}
