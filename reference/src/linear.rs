//! Weights of linears: decoded and packed when their block is loaded, or decoded as they are multiplied.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use karat_model::{Checkpoint, Result};

use crate::backend::{Kept, Matrix, Source};
use crate::decode::Decoder;
use crate::linalg::{Factor, Isa, LANES, Packed, Real, Stored, multiply_wide};
use crate::ops::experts::Undecoded;
use crate::weights::finite;

#[cfg(test)]
mod tests;

/// Values of a weight from which it is decoded anew for each piece of rows: as f32 it would not stay in a cache anyway, and
/// would be several times as large in memory as it is stored.
pub(crate) const LARGE: usize = 1 << 23;

/// A weight `[n,k]`.
pub(crate) enum Linear<'a, T> {
    /// Decoded and packed.
    Packed(Packed<T>),
    /// As it is stored.
    Stored(StoredLinear<'a>),
}

impl<T: Real> Factor<T> for Linear<'_, T> {
    fn n(&self) -> usize {
        match self {
            Self::Packed(w) => w.n(),
            Self::Stored(w) => w.rows.len(),
        }
    }

    fn matrix(&self) -> Matrix<'_> {
        match self {
            Self::Packed(w) => w.matrix(),
            Self::Stored(w) => Undecoded::<T>::matrix(w),
        }
    }

    fn multiply_into(&self, isa: Isa, x: &[&[T]], out: &mut [T], stride: usize, first: usize) {
        match self {
            Self::Packed(w) => w.multiply_into(isa, x, out, stride, first),
            Self::Stored(w) => multiply_wide(isa, x, &*w.weight, w.rows.clone(), (out, stride, first)),
        }
    }
}

/// Rows of a weight that are decoded as they are multiplied. The weight's pages are given back with the last of them, and what a
/// backend keeps of it.
pub(crate) struct StoredLinear<'a> {
    weight: Arc<Lent<'a>>,
    rows: Range<usize>,
    kept: OnceLock<Kept>,
}

/// A weight and where its pages go back to.
struct Lent<'a> {
    weight: Decoder<'a>,
    checkpoint: &'a Checkpoint,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.weight.stored().for_each(|bytes| self.checkpoint.done_with(bytes));
    }
}

impl<'a> StoredLinear<'a> {
    /// All rows of a weight, in `parts` of as many rows each.
    ///
    /// # Errors
    /// Input: a value is NaN or infinite.
    pub(crate) fn parts(checkpoint: &'a Checkpoint, weight: Decoder<'a>, parts: usize) -> Result<Vec<Self>> {
        finite(&weight, 0..weight.rows()).map_err(|e| e.at(checkpoint.label()))?;
        let rows = weight.rows() / parts;
        let weight = Arc::new(Lent { weight, checkpoint });
        let part = |i| Self { weight: weight.clone(), rows: i * rows..(i + 1) * rows, kept: OnceLock::new() };
        Ok((0..parts).map(part).collect())
    }
}

impl<T: Real> Undecoded<T> for StoredLinear<'_> {
    fn matrix(&self) -> Matrix<'_> {
        let (n, k) = (self.rows.len(), self.weight.weight.cols());
        Matrix { n, k, source: Source::Stored(self.weight.weight.form(self.rows.clone())), kept: &self.kept }
    }
}

impl<T: Real> Stored<T> for Lent<'_> {
    fn inputs(&self) -> usize {
        Stored::<T>::inputs(&self.weight)
    }

    fn panel(&self, isa: Isa, rows: Range<usize>, ks: Range<usize>, out: &mut [[T; LANES]]) {
        self.weight.panel(isa, rows, ks, out);
    }
}

impl<T: Real> Stored<T> for StoredLinear<'_> {
    fn inputs(&self) -> usize {
        Stored::<T>::inputs(&*self.weight)
    }

    fn panel(&self, isa: Isa, rows: Range<usize>, ks: Range<usize>, out: &mut [[T; LANES]]) {
        let first = self.rows.start;
        self.weight.panel(isa, first + rows.start..first + rows.end, ks, out);
    }
}
