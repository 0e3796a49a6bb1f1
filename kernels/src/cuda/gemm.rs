//! Launcher of the exact-split GEMM and of its naive counterpart.

use cudarc::driver::{CudaFunction, LaunchConfig};
use karat_model::{Error, Result};

use super::{Buffer, Device, Loaded};
use crate::list::Entry;

/// Columns of a block's outputs.
const COLUMNS: u32 = 128;

/// The GEMM or its naive counterpart, loaded.
#[derive(Debug)]
pub struct Gemm {
    product: (CudaFunction, Entry),
    split: Option<(CudaFunction, Entry)>,
    terms: usize,
    /// Rows of a block's outputs.
    rows: u32,
}

/// Operands: c[m,n] = sum over k of a[m,k] w[n,k].
#[derive(Debug, Clone, Copy)]
pub struct GemmCall<'a> {
    /// [m, k] f32.
    pub a: &'a Buffer,
    /// [terms, m, k] bf16, written.
    pub terms: &'a Buffer,
    /// [n, k] bf16.
    pub w: &'a Buffer,
    /// [m, n] f32, written.
    pub c: &'a Buffer,
    /// Rows of a.
    pub m: u32,
    /// Rows of w.
    pub n: u32,
    /// Columns of both, a multiple of 8.
    pub k: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    pointers: [u64; 4],
    m: i32,
    n: i32,
    k: i32,
}

impl Gemm {
    /// Takes the kernels of an image.
    ///
    /// # Errors
    /// It isn't an image of this operation.
    pub fn new(loaded: &Loaded) -> Result<Self> {
        let product = loaded.kernel("split_gemm")?;
        if loaded.naive() {
            return Ok(Self { product, split: None, terms: 0, rows: 1 });
        }
        let (terms, rows) = (loaded.number("TERMS")? as usize, loaded.number("ROWS")?);
        Ok(Self { product, split: Some(loaded.kernel("split_terms")?), terms, rows })
    }

    /// Queues the operation, the split into terms included.
    ///
    /// # Errors
    /// A size that the kernel cannot take, a buffer that is too short, or the driver's refusal.
    pub fn run(&self, device: &Device, call: &GemmCall<'_>) -> Result<()> {
        let (m, n, k) = (call.m as usize, call.n as usize, call.k as usize);
        if [m, n, k].iter().any(|x| *x == 0 || *x > 1 << 20) || k % 8 != 0 || m * n > 1 << 32 {
            return Err(Error::input("the split GEMM cannot take these sizes").found(format!("{m} x {n} x {k}")));
        }
        let args = Args {
            pointers: [
                call.a.need("a", m * k * 4)?,
                call.terms.need("terms", self.terms * m * k * 2)?,
                call.w.need("w", n * k * 2)?,
                call.c.need("c", m * n * 4)?,
            ],
            m: call.m as i32,
            n: call.n as i32,
            k: call.k as i32,
        };
        let launch = |(function, entry): &(CudaFunction, Entry), blocks: u32, over: bool| {
            let config = LaunchConfig {
                grid_dim: (blocks, 1, 1),
                block_dim: (entry.threads, 1, 1),
                shared_mem_bytes: entry.shared,
            };
            // SAFETY: Args is GemmArgs of both sources, field by field; every buffer was checked for these sizes. The optimized
            // kernels wait before they touch memory.
            unsafe { device.start(function, config, args, over) }
        };
        match &self.split {
            None => launch(&self.product, ((m * n) as u64).div_ceil(u64::from(self.product.1.threads)) as u32, false),
            Some(split) => {
                launch(split, ((m * k / 4) as u32).div_ceil(split.1.threads), true)?;
                launch(&self.product, call.m.div_ceil(self.rows) * call.n.div_ceil(COLUMNS), true)
            }
        }
    }
}
