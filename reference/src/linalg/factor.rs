//! What rows can be multiplied by.

use super::{Isa, Packed, Real};
use crate::backend::Matrix;
use crate::linalg::gemm::matmul_into;

/// A weight `[n,k]` of a product.
pub(crate) trait Factor<T: Real> {
    /// Outputs.
    fn n(&self) -> usize;
    /// As a backend takes it (f32 mode).
    fn matrix(&self) -> Matrix<'_>;
    /// `x w^T` for rows that lie anywhere, into columns `first..first+n` of rows of `stride` values, by all threads.
    fn multiply_into(&self, isa: Isa, x: &[&[T]], out: &mut [T], stride: usize, first: usize);
}

/// `x w^T` for rows that lie anywhere: `[rows, n]`.
pub(crate) fn matmul<T: Real>(isa: Isa, x: &[&[T]], w: &impl Factor<T>) -> Vec<T> {
    let mut out = vec![T::ZERO; x.len() * w.n()];
    w.multiply_into(isa, x, &mut out, w.n(), 0);
    out
}

impl<T: Real> Factor<T> for Packed<T> {
    fn n(&self) -> usize {
        self.n()
    }

    fn matrix(&self) -> Matrix<'_> {
        self.matrix()
    }

    fn multiply_into(&self, isa: Isa, x: &[&[T]], out: &mut [T], stride: usize, first: usize) {
        matmul_into(isa, x, self, out, stride, first);
    }
}
