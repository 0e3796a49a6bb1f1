//! Launcher of K5, the compressor (spec 2.7), and of its naive counterpart.

use cudarc::driver::{CudaFunction, LaunchConfig};
use karat_model::{Error, Result};

use super::{Buffer, Device, Loaded};
use crate::list::Entry;

/// K5 or its naive counterpart, loaded.
#[derive(Debug)]
pub struct Compressor {
    project: (CudaFunction, Entry),
    /// Pool, for windows of few slots and of many; of the naive counterpart pool, norm and finish, one after the other.
    pool: Vec<(CudaFunction, Entry)>,
    naive: bool,
    row_bytes: usize,
    /// Rows and columns of a block's outputs.
    block: (u32, u32),
}

/// Operands. Rows of tokens before `first_token` must have been projected by calls before.
#[derive(Debug, Clone, Copy)]
pub struct CompressCall<'a> {
    /// [tokens, width] bf16.
    pub x: &'a Buffer,
    /// [2 columns, width] bf16: kv, then gate.
    pub w: &'a Buffer,
    /// [ratio, columns] f32.
    pub ape: &'a Buffer,
    /// [dims] f32.
    pub norm: &'a Buffer,
    /// [windows, rope / 2, 2] f32: cosine and sine.
    pub turns: &'a Buffer,
    /// [.., 2 columns] f32 or bf16: tokens from `base` on; this call's are written.
    pub rows: &'a Buffer,
    /// [windows, dims] f32, written by the naive counterpart.
    pub pooled: &'a Buffer,
    /// [windows] f32, written by the naive counterpart.
    pub scale: &'a Buffer,
    /// [windows, dims] bf16 (naive: f32), written.
    pub entries: &'a Buffer,
    /// Rows of x.
    pub tokens: u32,
    /// Columns of x, a multiple of 8.
    pub width: u32,
    /// Channels of an entry: 128 or 512; any even number where no window is pooled.
    pub dims: u32,
    /// Two series, pooled over two windows.
    pub overlap: bool,
    /// Tokens of a window.
    pub ratio: u32,
    /// Last channels that are turned.
    pub rope: u32,
    /// Token of the buffer's first row.
    pub base: u32,
    /// Token of the first row of x.
    pub first_token: u32,
    /// First window to pool.
    pub first_window: u32,
    /// Windows to pool.
    pub windows: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    pointers: [u64; 9],
    tokens: i32,
    width: i32,
    columns: i32,
    dims: i32,
    ratio: i32,
    rope: i32,
    base: i32,
    first_token: i32,
    first_window: i32,
    windows: i32,
    eps: f32,
}

impl Compressor {
    /// Takes the kernels of an image.
    ///
    /// # Errors
    /// It isn't an image of this operation.
    pub fn new(loaded: &Loaded) -> Result<Self> {
        let naive = loaded.naive();
        let pool: &[&str] = if naive {
            &["compress_pool", "compress_norm", "compress_finish"]
        } else {
            &["compress_pool", "compress_pool_wide"]
        };
        Ok(Self {
            project: loaded.kernel("compress_project")?,
            pool: pool.iter().map(|name| loaded.kernel(name)).collect::<Result<_>>()?,
            naive,
            block: if naive { (1, 1) } else { (32 * loaded.number("MT")?, loaded.number("COLUMNS")?) },
            row_bytes: if loaded.number("STORE_BF16").is_ok() { 2 } else { 4 },
        })
    }

    /// Queues the operation.
    ///
    /// # Errors
    /// A size that the kernel cannot take, windows that aren't complete, a buffer that is too short, or the driver's refusal.
    pub fn run(&self, device: &Device, call: &CompressCall<'_>) -> Result<()> {
        let (t, w, d, n) = (call.tokens as usize, call.width as usize, call.dims as usize, call.windows as usize);
        let (ratio, rope) = (call.ratio as usize, call.rope as usize);
        let columns = d * if call.overlap { 2 } else { 1 };
        let before = usize::from(call.overlap && call.first_window > 0);
        let (base, first) = (call.base as usize, call.first_token as usize);
        let oldest = (call.first_window as usize - before) * ratio;
        let newest = (call.first_window as usize + n) * ratio;
        let complete = n == 0 || (oldest >= base && newest <= first + t);
        let sizes = t > 0 && t <= 1 << 20 && w > 0 && w % 8 == 0 && w <= 1 << 16 && (n == 0 || d == 128 || d == 512);
        if !sizes || ratio == 0 || rope > d || rope % 2 != 0 || first < base || !complete {
            let found = format!(
                "{t} tokens from {first}, rows from {base}, {w} wide, {n} windows of {ratio} from {}, {d} dims, rope {rope}",
                call.first_window
            );
            return Err(Error::input("the compressor on the GPU cannot take these sizes").found(found));
        }
        let naive = usize::from(self.naive);
        let args = Args {
            pointers: [
                call.x.need("x", t * w * 2)?,
                call.w.need("w", 2 * columns * w * 2)?,
                call.ape.need("ape", ratio * columns * 4)?,
                call.norm.need("norm", d * 4)?,
                call.turns.need("turns", n * rope * 4)?,
                call.rows.need("rows", (first - base + t) * 2 * columns * self.row_bytes)?,
                call.pooled.need("pooled", naive * n * d * 4)?,
                call.scale.need("scale", naive * n * 4)?,
                call.entries.need("entries", n * d * if self.naive { 4 } else { 2 })?,
            ],
            tokens: call.tokens as i32,
            width: call.width as i32,
            columns: columns as i32,
            dims: call.dims as i32,
            ratio: call.ratio as i32,
            rope: call.rope as i32,
            base: call.base as i32,
            first_token: call.first_token as i32,
            first_window: call.first_window as i32,
            windows: call.windows as i32,
            // rms_norm_eps of the released model.
            eps: 1e-6,
        };
        let (function, entry) = &self.project;
        let outputs = 2 * columns as u32;
        let blocks = if self.naive {
            (t * outputs as usize).div_ceil(entry.threads as usize) as u32
        } else {
            call.tokens.div_ceil(self.block.0) * outputs.div_ceil(self.block.1)
        };
        let config =
            LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (entry.threads, 1, 1), shared_mem_bytes: entry.shared };
        // SAFETY: Args is CompressArgs of both sources, field by field; every buffer was checked for these sizes. The optimized
        // kernels wait before they touch memory.
        unsafe { device.start(function, config, args, !self.naive) }?;
        if n == 0 {
            return Ok(());
        }
        let slots = if call.overlap { 2 * ratio } else { ratio };
        let wide = usize::from(slots > 16);
        for (function, entry) in if self.naive { &self.pool[..] } else { &self.pool[wide..=wide] } {
            let (blocks, threads) = if self.naive {
                let all = if entry.name == "compress_norm" { n } else { n * d };
                (all.div_ceil(entry.threads as usize) as u32, entry.threads)
            } else {
                (call.windows, call.dims)
            };
            let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 };
            // SAFETY: as above; the windows' rows lie within the buffer.
            unsafe { device.start(function, config, args, !self.naive) }?;
        }
        Ok(())
    }
}
