//! A weight that is prepared once and multiplied often, for whoever wants only the products.

use karat_model::Result;

use super::gemm::matmul_into;
use super::{Isa, Packed, Pool};

/// A weight `[n,k]` in f32 with the threads that multiply by it.
pub struct Weight {
    packed: Packed<f32>,
    pool: Pool,
}

impl Weight {
    /// Packs row-major values.
    ///
    /// # Errors
    /// Threads that can't be started.
    ///
    /// # Panics
    /// If there are not `n * k` values.
    pub fn new(n: usize, k: usize, values: &[f32], threads: usize) -> Result<Self> {
        assert_eq!(values.len(), n * k, "a weight [{n},{k}]");
        let pool = Pool::new(threads)?;
        let packed = pool.install(|| Packed::from_rows(n, k, |row, out| out.copy_from_slice(&values[row * k..][..k])));
        Ok(Self { packed, pool })
    }

    /// The same on another instruction set, if this machine has it.
    #[must_use]
    pub fn on(mut self, isa: Isa) -> Self {
        self.pool.take(isa);
        self
    }

    /// Rows of x `[m,k]` times the weight, in golden's arithmetic: `out[m,n] = x w^T`.
    ///
    /// # Panics
    /// If `out` is not as long as the rows of `x` ask for.
    pub fn multiply(&self, x: &[f32], out: &mut [f32]) {
        let (n, k) = (self.packed.n(), self.packed.k());
        let rows: Vec<&[f32]> = x.chunks_exact(k).collect();
        assert_eq!(out.len(), rows.len() * n, "[m,{n}]");
        let isa = self.pool.isa();
        self.pool.install(|| matmul_into(isa, &rows, &self.packed, out, n, 0));
    }
}
