//! Launcher of K4, routed experts with FP4 weights (spec 2.11), and of its naive counterpart.

use cudarc::driver::{CudaFunction, LaunchConfig};
use karat_model::{Error, Result};

use super::{Buffer, Device, Loaded};
use crate::list::Entry;

/// Of width and inner: the most K that a block takes at a time.
const SLAB: usize = 256;

/// K4 or its naive counterpart, loaded.
#[derive(Debug)]
pub struct Moe {
    /// Up, down, sum; of the optimized kernel the listing of slots goes before.
    kernels: Vec<(CudaFunction, Entry)>,
    naive: bool,
    nvfp4: bool,
    /// Tokens and rows of weights of a block.
    tokens: u32,
    rows: u32,
}

/// One of gate, up and down of all experts.
#[derive(Debug)]
pub struct Matrix {
    /// [experts, rows, columns / 2], low nibble first.
    pub codes: Buffer,
    /// [experts, rows, columns / 32] E8M0, or [.., columns / 16] E4M3.
    pub scales: Buffer,
    /// [experts] f32: NVFP4's second scale.
    pub global: Buffer,
}

/// Operands. An expert outside 0..experts is none.
#[derive(Debug, Clone, Copy)]
pub struct MoeCall<'a> {
    /// [tokens, width] bf16.
    pub x: &'a Buffer,
    /// [tokens, picks] i32.
    pub expert: &'a Buffer,
    /// [tokens, picks] f32.
    pub weight: &'a Buffer,
    /// Gate, up [experts, inner, width] and down [experts, width, inner].
    pub matrices: &'a [Matrix; 3],
    /// [experts] i32, written.
    pub count: &'a Buffer,
    /// [experts, tokens * picks] i32, written.
    pub list: &'a Buffer,
    /// [tokens * picks, inner] bf16 (naive: f32), written.
    pub act: &'a Buffer,
    /// [tokens * picks, width] bf16 (naive: f32), written.
    pub out: &'a Buffer,
    /// [tokens, width] f32, written: the sum over a token's experts.
    pub sum: &'a Buffer,
    /// Rows of x.
    pub tokens: u32,
    /// Experts of a token.
    pub picks: u32,
    /// Experts.
    pub experts: u32,
    /// Columns of x, a multiple of 256.
    pub width: u32,
    /// Columns between, a multiple of 256.
    pub inner: u32,
    /// Clamp of the SwiGLU.
    pub limit: f32,
}

/// Kernels of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoePart {
    /// All of them.
    Whole,
    /// Gate and up with the activation.
    Up,
    /// Down, and the sum over a token's experts.
    Down,
}

impl MoePart {
    fn has(self, kernel: &str) -> bool {
        match self {
            Self::Whole => true,
            Self::Up => matches!(kernel, "moe_group" | "moe_up"),
            Self::Down => kernel != "moe_up",
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    pointers: [u64; 17],
    tokens: i32,
    picks: i32,
    experts: i32,
    width: i32,
    inner: i32,
    limit: f32,
}

impl Moe {
    /// Takes the kernels of an image.
    ///
    /// # Errors
    /// It isn't an image of this operation.
    pub fn new(loaded: &Loaded) -> Result<Self> {
        let naive = loaded.naive();
        let names = if naive {
            &["moe_up", "moe_down", "moe_sum"][..]
        } else {
            &["moe_group", "moe_up", "moe_down", "moe_sum"]
        };
        let kernels = names.iter().map(|name| loaded.kernel(name)).collect::<Result<_>>()?;
        let number = |name: &str| if naive { Ok(1) } else { loaded.number(name) };
        let rows = 16 * number("MT")? * number("WARPS")? / number("WT")?;
        Ok(Self { kernels, naive, nvfp4: loaded.number("NVFP4").is_ok(), tokens: number("TOKENS")?, rows })
    }

    /// Columns that share a scale.
    pub fn block(&self) -> usize {
        if self.nvfp4 { 16 } else { 32 }
    }

    /// Queues the operation.
    ///
    /// # Errors
    /// A size that the kernel cannot take, a buffer that is too short, or the driver's refusal.
    pub fn run(&self, device: &Device, call: &MoeCall<'_>) -> Result<()> {
        self.run_part(device, call, MoePart::Whole)
    }

    /// Queues a part of the operation: up gives activations, down takes them as they lie in `act`.
    ///
    /// # Errors
    /// As for `run`.
    pub fn run_part(&self, device: &Device, call: &MoeCall<'_>, part: MoePart) -> Result<()> {
        let (t, k, e) = (call.tokens as usize, call.picks as usize, call.experts as usize);
        let (w, i) = (call.width as usize, call.inner as usize);
        let fits = |n: usize| n > 0 && n.is_multiple_of(SLAB) && n <= 1 << 16;
        if t == 0 || t > 1 << 16 || k == 0 || k > 64 || e == 0 || e > 4096 || !fits(w) || !fits(i) {
            let found = format!("{t} tokens, {k} of {e} experts, {w} by {i}");
            return Err(Error::input("routed experts on the GPU cannot take these sizes").found(found));
        }
        let slots = t * k;
        let bytes = if self.naive { 4 } else { 2 };
        let listed = usize::from(!self.naive);
        let mut pointers = vec![
            call.x.need("x", t * w * 2)?,
            call.expert.need("expert", slots * 4)?,
            call.weight.need("weight", slots * 4)?,
        ];
        let all = e * w * i;
        for matrix in call.matrices {
            pointers.push(matrix.codes.need("codes", all / 2)?);
        }
        for matrix in call.matrices {
            pointers.push(matrix.scales.need("scales", all / self.block())?);
        }
        for matrix in call.matrices {
            pointers.push(matrix.global.need("global", if self.nvfp4 { e * 4 } else { 0 })?);
        }
        pointers.extend([
            call.count.need("count", listed * e * 4)?,
            call.list.need("list", listed * e * slots * 4)?,
            call.act.need("act", slots * i * bytes)?,
            call.out.need("out", slots * w * bytes)?,
            call.sum.need("sum", t * w * 4)?,
        ]);
        let pointers = pointers.try_into().map_err(|_| Error::input("the routed experts' arguments are not whole"))?;
        let args = Args {
            pointers,
            tokens: call.tokens as i32,
            picks: call.picks as i32,
            experts: call.experts as i32,
            width: call.width as i32,
            inner: call.inner as i32,
            limit: call.limit,
        };
        // No more tiles of tokens than this, whatever was chosen.
        let n = self.tokens as usize;
        let tiles = ((slots + slots.min(e) * (n - 1)) / n) as u32;
        let threads = |at: usize, all: usize| all.div_ceil(self.kernels[at].1.threads as usize) as u32;
        let grids = if self.naive {
            vec![(threads(0, slots * i), 1), (threads(1, slots * w), 1), (threads(2, t * w), 1)]
        } else {
            let (up, down) = (call.inner.div_ceil(self.rows / 2), call.width.div_ceil(self.rows));
            vec![(call.experts, 1), (tiles, up), (tiles, down), (call.tokens, call.width.div_ceil(1024))]
        };
        for ((function, entry), (x, y)) in
            self.kernels.iter().zip(grids).filter(|((_, entry), _)| part.has(&entry.name))
        {
            let config =
                LaunchConfig { grid_dim: (x, y, 1), block_dim: (entry.threads, 1, 1), shared_mem_bytes: entry.shared };
            // SAFETY: Args is MoeArgs of both sources, field by field; every buffer was checked for these sizes. Experts
            // outside the matrices aren't read. The optimized kernels wait before they touch memory.
            unsafe { device.start(function, config, args, !self.naive) }?;
        }
        Ok(())
    }
}
