//! Launcher of K3, mHC coefficients (spec 2.3), and of its naive counterpart.

use cudarc::driver::{CudaFunction, LaunchConfig};
use karat_model::{Error, Result};

use super::{Buffer, Device, Loaded};
use crate::choice;
use crate::list::Entry;

/// K3 or its naive counterpart, loaded.
#[derive(Debug)]
pub struct Mhc {
    product: (CudaFunction, Entry),
    finish: (CudaFunction, Entry),
    /// Terms of fn; 0: the naive counterpart, which reads fn itself.
    pub terms: u32,
    /// Tokens a block.
    tile: u32,
}

/// Operands. Sizes in elements; the launcher checks them.
#[derive(Debug, Clone, Copy)]
pub struct MhcCall<'a> {
    /// [tokens, width] bf16.
    pub x: &'a Buffer,
    /// [terms, 24, width] bf16.
    pub fn_terms: &'a Buffer,
    /// [24, width] f32.
    pub fn_f32: &'a Buffer,
    /// [24] f32.
    pub base: &'a Buffer,
    /// [3] f32.
    pub scale: &'a Buffer,
    /// [splits, tokens, 32] f32, written.
    pub partial: &'a Buffer,
    /// [tokens, 24] f32, written.
    pub mixes: &'a Buffer,
    /// [tokens] f32, written.
    pub sumsq: &'a Buffer,
    /// [tokens, 24] f32, written unless iterations = 0.
    pub coefficients: &'a Buffer,
    /// Rows of x.
    pub tokens: u32,
    /// Columns of x, a multiple of 64.
    pub width: u32,
    /// Parts of the width that run side by side.
    pub splits: u32,
    /// Sinkhorn iterations; 0: products and sums of squares only.
    pub iterations: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    pointers: [u64; 9],
    tokens: i32,
    width: i32,
    splits: i32,
    iterations: i32,
    rms_eps: f32,
    hc_eps: f32,
}

/// rms_norm_eps and hc_eps of the released model.
const EPS: f32 = 1e-6;

impl Mhc {
    /// Takes the kernels of an image.
    ///
    /// # Errors
    /// It isn't an image of this operation.
    pub fn new(loaded: &Loaded) -> Result<Self> {
        let (terms, tile) = if loaded.naive() {
            (0, 1)
        } else {
            (loaded.number("TERMS")?, loaded.number("WARPS")? * loaded.number("ROWS")? * 16)
        };
        Ok(Self { product: loaded.kernel("mhc_product")?, finish: loaded.kernel("mhc_finish")?, terms, tile })
    }

    /// Splits that are quickest on this device.
    pub fn splits(&self, device: &Device, tokens: u32, width: u32) -> u32 {
        let (function, entry) = &self.product;
        let at_once =
            function.occupancy_max_active_blocks_per_multiprocessor(entry.threads, entry.shared as usize, None);
        let room = device.processors * at_once.unwrap_or(1);
        choice::mhc_splits(room, tokens.div_ceil(self.tile), width / 64)
    }

    /// Queues the operation.
    ///
    /// # Errors
    /// A size that the kernel cannot take, a buffer that is too short, or the driver's refusal.
    pub fn run(&self, device: &Device, call: &MhcCall<'_>) -> Result<()> {
        let (t, w, s) = (call.tokens as usize, call.width as usize, call.splits as usize);
        if t == 0
            || t > 1 << 22
            || w == 0
            || w % 64 != 0
            || w > 1 << 20
            || s == 0
            || s > w / 64
            || call.iterations > 1000
        {
            let found = format!("{t} tokens, width {w}, {s} splits, {} iterations", call.iterations);
            return Err(Error::input("mHC on the GPU cannot take these sizes").found(found));
        }
        let args = Args {
            pointers: [
                call.x.need("x", t * w * 2)?,
                call.fn_terms.need("fn_terms", self.terms as usize * 24 * w * 2)?,
                call.fn_f32.need("fn", if self.terms == 0 { 24 * w * 4 } else { 0 })?,
                call.base.need("base", 96)?,
                call.scale.need("scale", 12)?,
                call.partial.need("partial", if self.terms == 0 { 0 } else { s * t * 128 })?,
                call.mixes.need("mixes", t * 96)?,
                call.sumsq.need("sumsq", t * 4)?,
                call.coefficients.need("coefficients", if call.iterations == 0 { 0 } else { t * 96 })?,
            ],
            tokens: call.tokens as i32,
            width: call.width as i32,
            splits: call.splits as i32,
            iterations: call.iterations as i32,
            rms_eps: EPS,
            hc_eps: EPS,
        };
        let (first, last) = (&self.product, &self.finish);
        let grids = if self.terms == 0 {
            [((25 * call.tokens).div_ceil(first.1.threads), 1, 1), (call.tokens.div_ceil(last.1.threads), 1, 1)]
        } else {
            [(call.tokens.div_ceil(self.tile), call.splits, 1), (call.tokens.div_ceil(4), 1, 1)]
        };
        for ((function, entry), grid_dim) in [first, last].into_iter().zip(grids) {
            if self.terms == 0 && call.iterations == 0 && entry.name == "mhc_finish" {
                continue;
            }
            let config = LaunchConfig { grid_dim, block_dim: (entry.threads, 1, 1), shared_mem_bytes: entry.shared };
            // SAFETY: Args is MhcArgs of both sources, field by field; every buffer was checked for these sizes. The optimized
            // kernels wait before they touch memory.
            unsafe { device.start(function, config, args, self.terms > 0) }?;
        }
        Ok(())
    }
}
