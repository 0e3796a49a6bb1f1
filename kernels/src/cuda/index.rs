//! Launchers of K2, index scores and their exact selection (spec 2.8), and of their naive counterparts.

use cudarc::driver::{CudaFunction, LaunchConfig};
use karat_model::{Error, Result};

use super::{Buffer, Device, Loaded};
use crate::list::Entry;

/// Index heads and their dims in the released model: the kernels are built for them.
const HEADS: usize = 64;
const DIMS: usize = 128;

/// Keys that a block of `index_logits` takes at a time.
const KEYS: usize = 128;

/// Scores of a chunk of `select_chunk`, candidates that `select_merge` takes.
const CHUNK: usize = 8192;
const CANDIDATES: usize = 16_384;

/// Index scores, loaded.
#[derive(Debug)]
pub struct IndexLogits {
    kernel: (CudaFunction, Entry),
    naive: bool,
    /// Queries of a block: as prefill they share keys.
    queries: u32,
}

/// Operands of the scores. A page that the cache doesn't have holds keys of score 0.
#[derive(Debug, Clone, Copy)]
pub struct IndexCall<'a> {
    /// [batch, 64, 128] E4M3.
    pub q: &'a Buffer,
    /// [batch, 64] f32.
    pub q_scale: &'a Buffer,
    /// [batch, 64] f32.
    pub weight: &'a Buffer,
    /// [pages, page, 128] E4M3; the number of pages is what it holds.
    pub keys: &'a Buffer,
    /// [pages, page] f32.
    pub key_scale: &'a Buffer,
    /// [batch, table_pages] i32: a sequence's pages in order.
    pub table: &'a Buffer,
    /// [batch] i32: keys that a sequence's query sees.
    pub visible: &'a Buffer,
    /// [batch, table_pages * page] f32, written up to `visible` (to the end where all pages are walked).
    pub logits: &'a Buffer,
    /// Sequences, one query each.
    pub batch: u32,
    /// Keys of a page.
    pub page: u32,
    /// Pages that a table has room for.
    pub table_pages: u32,
}

/// Exact selection, loaded.
#[derive(Debug)]
pub struct Select {
    first: (CudaFunction, Entry),
    last: (CudaFunction, Entry),
    naive: bool,
}

/// Operands of the selection.
#[derive(Debug, Clone, Copy)]
pub struct SelectCall<'a> {
    /// [batch, room] f32.
    pub logits: &'a Buffer,
    /// [batch] i32.
    pub visible: &'a Buffer,
    /// [batch, chunks of 8192, topk] u32, written; of the naive counterpart [batch, room], zeros before.
    pub keys: &'a Buffer,
    /// [batch, chunks of 8192, topk] i32, written; not used by the naive counterpart.
    pub places: &'a Buffer,
    /// [batch, topk] i32, written: ascending, then -1.
    pub chosen: &'a Buffer,
    /// Sequences.
    pub batch: u32,
    /// Scores of a row.
    pub room: u32,
    /// Most that are chosen.
    pub topk: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct IndexArgs {
    pointers: [u64; 8],
    batch: i32,
    page: i32,
    table_pages: i32,
    pages: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct SelectArgs {
    pointers: [u64; 5],
    batch: i32,
    room: i32,
    topk: i32,
    chunks: i32,
}

impl IndexLogits {
    /// Takes the kernel of an image.
    ///
    /// # Errors
    /// It isn't an image of this operation.
    pub fn new(loaded: &Loaded) -> Result<Self> {
        let naive = loaded.naive();
        let queries = if naive { 1 } else { loaded.number("QUERIES")? };
        Ok(Self { kernel: loaded.kernel("index_logits")?, naive, queries })
    }

    /// Queues the operation.
    ///
    /// # Errors
    /// A size that the kernel cannot take, a buffer that is too short, or the driver's refusal.
    pub fn run(&self, device: &Device, call: &IndexCall<'_>) -> Result<()> {
        let (b, p, n) = (call.batch as usize, call.page as usize, call.table_pages as usize);
        if b == 0 || b > 1 << 15 || p == 0 || p % 32 != 0 || n == 0 || p * n > 1 << 24 {
            let found = format!("batch {b}, {n} pages of {p} keys");
            return Err(Error::input("index scores on the GPU cannot take these sizes").found(found));
        }
        let pages = call.keys.bytes() / (p * DIMS);
        let args = IndexArgs {
            pointers: [
                call.q.need("q", b * HEADS * DIMS)?,
                call.q_scale.need("q_scale", b * HEADS * 4)?,
                call.weight.need("weight", b * HEADS * 4)?,
                call.keys.need("keys", p * DIMS)?,
                call.key_scale.need("key_scale", pages * p * 4)?,
                call.table.need("table", b * n * 4)?,
                call.visible.need("visible", b * 4)?,
                call.logits.need("logits", b * n * p * 4)?,
            ],
            batch: call.batch as i32,
            page: call.page as i32,
            table_pages: call.table_pages as i32,
            pages: pages.min(i32::MAX as usize) as i32,
        };
        let (function, entry) = &self.kernel;
        let grid_dim = if self.naive {
            ((b * n * p).div_ceil(entry.threads as usize) as u32, 1, 1)
        } else {
            let at_once = function.occupancy_max_active_blocks_per_multiprocessor(entry.threads, 0, None);
            let room = device.processors * at_once.unwrap_or(1);
            let rows = call.batch.div_ceil(self.queries);
            ((room / rows).clamp(1, (n * p).div_ceil(KEYS) as u32), rows, 1)
        };
        let config = LaunchConfig { grid_dim, block_dim: (entry.threads, 1, 1), shared_mem_bytes: entry.shared };
        // SAFETY: IndexArgs is that of both sources, field by field; every buffer was checked for these sizes, and pages
        // that the cache doesn't hold aren't read. The optimized kernel waits before it touches memory.
        unsafe { device.start(function, config, args, !self.naive) }
    }
}

impl Select {
    /// Takes the kernels of an image.
    ///
    /// # Errors
    /// It isn't an image of this operation.
    pub fn new(loaded: &Loaded) -> Result<Self> {
        let naive = loaded.naive();
        let names = if naive { ["select_rank", "select_list"] } else { ["select_chunk", "select_merge"] };
        let [first, last] = names.map(|name| loaded.kernel(name));
        Ok(Self { first: first?, last: last?, naive })
    }

    /// Chunks of a row: the size of `keys` and `places` is batch * chunks * topk.
    pub fn chunks(room: u32) -> u32 {
        room.div_ceil(CHUNK as u32)
    }

    /// Queues the operation.
    ///
    /// # Errors
    /// A size that the kernel cannot take, a buffer that is too short, or the driver's refusal.
    pub fn run(&self, device: &Device, call: &SelectCall<'_>) -> Result<()> {
        let (b, n, k) = (call.batch as usize, call.room as usize, call.topk as usize);
        let chunks = Self::chunks(call.room) as usize;
        if b == 0 || b > 1 << 15 || n == 0 || k == 0 || (chunks > 1 && chunks * k > CANDIDATES) || k > CHUNK {
            let found = format!("batch {b}, the best {k} of {n}");
            return Err(Error::input("the selection on the GPU cannot take these sizes").found(found));
        }
        let args = SelectArgs {
            pointers: [
                call.logits.need("logits", b * n * 4)?,
                call.visible.need("visible", b * 4)?,
                call.keys.need("keys", if self.naive { b * n * 4 } else { b * chunks * k * 4 })?,
                call.places.need("places", if self.naive { 0 } else { b * chunks * k * 4 })?,
                call.chosen.need("chosen", b * k * 4)?,
            ],
            batch: call.batch as i32,
            room: call.room as i32,
            topk: call.topk as i32,
            chunks: chunks as i32,
        };
        let (first, last) = (&self.first, &self.last);
        let grids = if self.naive {
            [(b * n).div_ceil(first.1.threads as usize) as u32, call.batch.div_ceil(last.1.threads)].map(|x| (x, 1, 1))
        } else {
            [(chunks as u32, call.batch, 1), (call.batch, 1, 1)]
        };
        for ((function, entry), grid_dim) in [first, last].into_iter().zip(grids) {
            if chunks == 1 && entry.name == "select_merge" {
                continue;
            }
            let config = LaunchConfig { grid_dim, block_dim: (entry.threads, 1, 1), shared_mem_bytes: entry.shared };
            // SAFETY: SelectArgs is that of both sources, field by field; every buffer was checked for these sizes. The
            // optimized kernels wait before they touch scores or candidates.
            unsafe { device.start(function, config, args, !self.naive) }?;
        }
        Ok(())
    }
}
