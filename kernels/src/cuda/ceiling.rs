//! Launchers of the two ceilings: copy bandwidth, and the rate of mma.sync.

use cudarc::driver::{CudaFunction, LaunchConfig};
use karat_model::Result;

use super::{Buffer, Device, Loaded};
use crate::list::Entry;

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    from: u64,
    to: u64,
    sink: u64,
    count: i64,
    rounds: i32,
}

/// The copy kernel.
#[derive(Debug)]
pub struct CopyRate(CudaFunction, Entry);

/// The mma.sync loop.
#[derive(Debug)]
pub struct MmaRate(CudaFunction, Entry);

impl CopyRate {
    /// Takes the kernel of the image `ceiling`.
    ///
    /// # Errors
    /// It is another image.
    pub fn new(loaded: &Loaded) -> Result<Self> {
        loaded.kernel("copy_rate").map(|(function, entry)| Self(function, entry))
    }

    /// Queues a copy of all of `from` that `to` has room for, a multiple of 16 bytes.
    ///
    /// # Errors
    /// `to` is shorter, or the driver refuses.
    pub fn run(&self, device: &Device, from: &Buffer, to: &Buffer) -> Result<()> {
        let count = (from.bytes() / 16) as i64;
        let args = Args { from: from.at(), to: to.need("to", from.bytes())?, sink: 0, count, rounds: 0 };
        let blocks = device.processors * 4;
        let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (self.1.threads, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: Args is CeilingArgs; both buffers hold `count` words of 16 bytes.
        unsafe { device.launch(&self.0, config, args) }
    }
}

impl MmaRate {
    /// Blocks a multiprocessor and operations (a multiply and an add each) of one block and round.
    const BLOCKS: u32 = 2;
    /// 8 warps, 8 instructions, 16 x 8 x 16 products.
    const OPERATIONS: u64 = 8 * 8 * 2 * 16 * 8 * 16;

    /// Takes the kernel of the image `ceiling`.
    ///
    /// # Errors
    /// It is another image.
    pub fn new(loaded: &Loaded) -> Result<Self> {
        loaded.kernel("mma_rate").map(|(function, entry)| Self(function, entry))
    }

    /// Queues `rounds` rounds in every block and returns the operations that they do. `sink` holds an f32 a thread.
    ///
    /// # Errors
    /// `sink` is too short, or the driver refuses.
    pub fn run(&self, device: &Device, sink: &Buffer, rounds: u32) -> Result<u64> {
        let blocks = device.processors * Self::BLOCKS;
        let sink = sink.need("sink", (blocks * self.1.threads) as usize * 4)?;
        let args = Args { from: 0, to: 0, sink, count: 0, rounds: rounds as i32 };
        let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (self.1.threads, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: Args is CeilingArgs; the kernel writes one f32 a thread and reads nothing.
        unsafe { device.launch(&self.0, config, args) }?;
        Ok(u64::from(blocks) * u64::from(rounds) * Self::OPERATIONS)
    }
}
