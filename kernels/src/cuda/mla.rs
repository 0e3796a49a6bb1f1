//! Launcher of K1, sparse MLA decode (spec 2.9), and of its naive counterpart.

use cudarc::driver::{CudaFunction, LaunchConfig};
use karat_model::{Error, Result};

use super::{Buffer, Device, Loaded};
use crate::list::Entry;

/// Heads and dims of the released model: the kernels are built for them.
const HEADS: usize = 64;
const DIM: usize = 512;

/// Most splits that the merge takes: one a lane.
const SPLITS: u32 = 32;

/// K1 or its naive counterpart, loaded.
#[derive(Debug)]
pub struct Mla {
    first: (CudaFunction, Entry),
    last: (CudaFunction, Entry),
    naive: bool,
    heads: u32,
    keys: u32,
    partial_bytes: usize,
    /// Factor of every score.
    scale: f32,
}

/// Operands. A row in `chosen` that the cache doesn't have is no key.
#[derive(Debug, Clone, Copy)]
pub struct MlaCall<'a> {
    /// [batch, 64, 512] bf16.
    pub q: &'a Buffer,
    /// [rows, 512] bf16; rows is what it holds.
    pub cache: &'a Buffer,
    /// [batch, keys] i32; negative or past the cache: no key.
    pub chosen: &'a Buffer,
    /// [64] f32.
    pub sink: &'a Buffer,
    /// [batch, splits, 64, 512] f32 or bf16, written.
    pub partial: &'a Buffer,
    /// [batch, splits, 64] f32, written.
    pub lse: &'a Buffer,
    /// [batch, 64, keys] f32, written by the naive counterpart.
    pub scores: &'a Buffer,
    /// [batch, 64, 512] bf16 (naive: f32), written.
    pub out: &'a Buffer,
    /// Sequences.
    pub batch: u32,
    /// Keys a sequence.
    pub keys: u32,
    /// Parts of the keys that run side by side.
    pub splits: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    pointers: [u64; 8],
    batch: i32,
    keys: i32,
    splits: i32,
    rows: i32,
    scale: f32,
}

impl Mla {
    /// Takes the kernels of an image.
    ///
    /// # Errors
    /// It isn't an image of this operation.
    pub fn new(loaded: &Loaded) -> Result<Self> {
        let naive = loaded.naive();
        let names = if naive { ["mla_scores", "mla_output"] } else { ["mla_split", "mla_merge"] };
        let [first, last] = names.map(|name| loaded.kernel(name));
        let (heads, keys) = if naive { (64, 1) } else { (loaded.number("HEADS")?, loaded.number("KEYS")?) };
        let partial_bytes = if loaded.number("PARTIAL_BF16").is_ok() { 2 } else { 4 };
        let scale = (DIM as f32).sqrt().recip();
        Ok(Self { first: first?, last: last?, naive, heads, keys, partial_bytes, scale })
    }

    /// The same for heads of fewer dims, the rest of which are zeros in q and cache: their scale.
    #[must_use]
    pub fn for_dims(self, dims: usize) -> Self {
        Self { scale: (dims as f64).powf(-0.5) as f32, ..self }
    }

    /// Splits that fill the device once, each of at least one tile of keys.
    pub fn splits(&self, device: &Device, batch: u32, keys: u32) -> u32 {
        let (function, entry) = &self.first;
        let at_once =
            function.occupancy_max_active_blocks_per_multiprocessor(entry.threads, entry.shared as usize, None);
        let room = device.processors * at_once.unwrap_or(1);
        (room / (batch * (HEADS as u32 / self.heads))).clamp(1, keys.div_ceil(self.keys).min(SPLITS))
    }

    /// Queues the operation.
    ///
    /// # Errors
    /// A size that the kernel cannot take, a buffer that is too short, or the driver's refusal.
    pub fn run(&self, device: &Device, call: &MlaCall<'_>) -> Result<()> {
        let (b, k, s) = (call.batch as usize, call.keys as usize, call.splits as usize);
        if b == 0 || b > 1 << 14 || k == 0 || k > 1 << 20 || s == 0 || s > SPLITS as usize {
            let found = format!("batch {b}, {k} keys, {s} splits");
            return Err(Error::input("sparse MLA on the GPU cannot take these sizes").found(found));
        }
        let (split, naive) = (usize::from(!self.naive), usize::from(self.naive));
        let args = Args {
            pointers: [
                call.q.need("q", b * HEADS * DIM * 2)?,
                call.cache.need("cache", DIM * 2)?,
                call.chosen.need("chosen", b * k * 4)?,
                call.sink.need("sink", HEADS * 4)?,
                call.partial.need("partial", split * b * s * HEADS * DIM * self.partial_bytes)?,
                call.lse.need("lse", split * b * s * HEADS * 4)?,
                call.scores.need("scores", naive * b * HEADS * k * 4)?,
                call.out.need("out", b * HEADS * DIM * if self.naive { 4 } else { 2 })?,
            ],
            batch: call.batch as i32,
            keys: call.keys as i32,
            splits: call.splits as i32,
            rows: (call.cache.bytes() / (DIM * 2)).min(i32::MAX as usize) as i32,
            scale: self.scale,
        };
        let threads = [self.first.1.threads, self.last.1.threads];
        let grids = if self.naive {
            [((b * HEADS * k) as u32).div_ceil(threads[0]), ((b * HEADS * DIM) as u32).div_ceil(threads[1])]
                .map(|x| (x, 1, 1))
        } else {
            [(call.batch, HEADS as u32 / self.heads, call.splits), (call.batch * HEADS as u32, 1, 1)]
        };
        for ((function, entry), grid_dim) in [&self.first, &self.last].into_iter().zip(grids) {
            let config = LaunchConfig { grid_dim, block_dim: (entry.threads, 1, 1), shared_mem_bytes: entry.shared };
            // SAFETY: Args is MlaArgs of both sources, field by field; every buffer was checked for these sizes. The kernels
            // read no row that the cache doesn't hold. The optimized ones wait before they touch memory.
            unsafe { device.start(function, config, args, !self.naive) }?;
        }
        Ok(())
    }
}
