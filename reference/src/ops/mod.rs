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

use karat_model::{Config, Result as Done};

use crate::backend::{Backend, Slot};
use crate::linalg::{Factor, Isa, Real, matmul};
use crate::made::Made;

/// What every op needs to know.
#[derive(Clone, Copy)]
pub(crate) struct Ctx<'a> {
    pub(crate) config: &'a Config,
    pub(crate) isa: Isa,
    /// Computes in our place.
    pub(crate) backend: Option<&'a Slot>,
    /// Which of its processors, where it has several.
    pub(crate) rank: usize,
}

impl<'a> Ctx<'a> {
    /// Everything is computed here.
    pub(crate) fn new(config: &'a Config, isa: Isa) -> Self {
        Self { config, isa, backend: None, rank: 0 }
    }

    /// Processors over which the experts are spread.
    pub(crate) fn ranks(self) -> usize {
        self.backend.map_or(1, |slot| slot.backend().ranks().max(1))
    }

    /// The same where expert `e` is computed. An expert is always computed there: a backend may keep its weights.
    pub(crate) fn of_expert(self, e: usize) -> Self {
        Self { rank: e * self.ranks() / self.config.n_routed_experts.max(1), ..self }
    }

    /// What the backend makes of an op of T; `None` where it is computed here.
    pub(crate) fn there<T: Real, R>(self, op: impl FnOnce(&dyn Backend) -> Done<R>) -> Option<R> {
        if T::IS_WIDE { None } else { self.backend?.run(self.rank, op) }
    }

    /// The same where the result is one tensor of values.
    pub(crate) fn values<T: Real>(self, op: impl FnOnce(&dyn Backend) -> Done<Vec<f32>>) -> Option<Made<T>> {
        self.there::<T, _>(op).map(|values| self.made(values))
    }

    /// A result of the backend's last op, as it came.
    pub(crate) fn made<T: Real>(self, values: Vec<f32>) -> Made<T> {
        let there = self.backend.and_then(|slot| slot.lying(&values));
        Made::new(T::of_singles(values), there)
    }
}

/// Rows of a row-major matrix.
pub(crate) fn rows<T>(x: &[T], width: usize) -> Vec<&[T]> {
    if width == 0 { Vec::new() } else { x.chunks_exact(width).collect() }
}

/// A linear without bias: `[S,k] -> [S,n]`, `y = x w^T`.
pub(crate) fn linear<T: Real>(ctx: Ctx<'_>, x: &[T], k: usize, w: &impl Factor<T>) -> Made<T> {
    ctx.values(|there| there.linear(T::single(x), w.matrix())).unwrap_or_else(|| matmul(ctx.isa, &rows(x, k), w).into())
}

/// The same for rows that lie anywhere, into columns `first..first+n` of rows of `stride` values.
pub(crate) fn linear_into<T: Real>(
    ctx: Ctx<'_>,
    x: &[&[T]],
    w: &impl Factor<T>,
    out: &mut [T],
    stride: usize,
    first: usize,
) {
    let Some(y) = ctx.values::<T>(|there| there.linear(T::single(&x.concat()), w.matrix())) else {
        return w.multiply_into(ctx.isa, x, out, stride, first);
    };
    for (row, y) in out.chunks_exact_mut(stride).zip(y.chunks_exact(w.n().max(1))) {
        row[first..first + w.n()].copy_from_slice(y);
    }
}
