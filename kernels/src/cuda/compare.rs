//! Launchers of the comparison of two tensors that lie on the device, of its naive counterpart, and of the rate at which the device
//! reads both.

use cudarc::driver::{CudaFunction, LaunchConfig};
use karat_diff::CoreSums;
use karat_diff::moments::At;
use karat_model::{Error, Result};

use super::{Buffer, Device, Loaded};
use crate::list::Entry;

/// What an element of a tensor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// IEEE binary32.
    F32,
    /// bfloat16.
    Bf16,
}

impl Element {
    /// Both.
    pub const ALL: [Self; 2] = [Self::F32, Self::Bf16];

    /// Bytes of one.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// As entries and evidence name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }
}

/// One of two tensors.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// Where it lies.
    pub buffer: &'a Buffer,
    /// What it holds.
    pub element: Element,
    /// Elements before its first.
    pub first: usize,
}

/// Operands.
#[derive(Debug, Clone, Copy)]
pub struct CompareCall<'a> {
    /// Golden's tensor.
    pub x: Side<'a>,
    /// The candidate's.
    pub y: Side<'a>,
    /// Pairs.
    pub n: usize,
    /// [`Compare::partial`] bytes, written.
    pub partial: &'a Buffer,
    /// [`RECORD`] bytes, written: all that leaves the device.
    pub record: &'a Buffer,
    /// Blocks of the pass; 0: one a tile. The result does not depend on them.
    pub blocks: u32,
}

/// Words of 8 bytes in a record.
const WORDS: usize = 20;
/// Bytes of a record.
pub const RECORD: usize = 8 * WORDS;
/// Pairs of the smallest tile, and most tiles: larger tensors have larger tiles.
const LEAST_TILE: usize = 1 << 14;
const MOST_TILES: usize = 1 << 13;
/// Pairs of a run of the naive counterpart.
const RUN: usize = 1 << 13;
/// A place that is none.
const NONE: u64 = u64::MAX;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Args {
    x: u64,
    y: u64,
    partial: u64,
    record: u64,
    n: i64,
    tile: i64,
    tiles: i64,
    /// Whether loads of four elements are aligned, and nothing; the naive counterpart: whether x and y are bf16.
    flags: [i32; 2],
}

impl Args {
    /// For tensors at these addresses, cut by their number of pairs alone.
    fn new(x: (u64, Element), y: (u64, Element), n: usize, tile: usize, partial: u64, record: u64) -> Self {
        let aligned = |(at, element): (u64, Element)| at.is_multiple_of(4 * element.size() as u64);
        let flags = [i32::from(aligned(x) && aligned(y)), 0];
        let (tiles, n) = (n.div_ceil(tile) as i64, n as i64);
        Self { x: x.0, y: y.0, partial, record, n, tile: tile as i64, tiles, flags }
    }

    /// The same for the naive counterpart.
    fn naive(self, x: Element, y: Element) -> Self {
        Self { flags: [x, y].map(|it| i32::from(it == Element::Bf16)), ..self }
    }
}

/// Pairs of a tile.
fn tile(n: usize) -> usize {
    n.div_ceil(MOST_TILES).next_power_of_two().max(LEAST_TILE)
}

/// The sums in a record's words; rows of `width` elements.
fn sums(words: &[u64], width: usize) -> Result<CoreSums> {
    let [
        x,
        y,
        xx,
        yy,
        xy,
        abs_d,
        d,
        dd,
        max_abs,
        max_at,
        max_x,
        max_y,
        masked,
        nan_x,
        nan_y,
        inf_x,
        inf_y,
        odd,
        first,
        n,
    ] = *words
    else {
        let error = Error::input("a record of a comparison on the GPU is not whole");
        return Err(error.expected(format!("{WORDS} words")).found(words.len()));
    };
    if masked.checked_add(odd).is_none_or(|out| out > n) {
        return Err(Error::input("a record of a comparison on the GPU counts more than there is")
            .expected(format!("{n} pairs at most"))
            .found(format!("{masked} masked and {odd} not finite")));
    }
    let width = width.max(1) as u64;
    let place = |at: u64| (at != NONE).then(|| At { row: at / width, column: at % width });
    Ok(CoreSums {
        n,
        finite: n - masked - odd,
        masked,
        nan_x,
        nan_y,
        inf_x,
        inf_y,
        first_nonfinite_at: place(first),
        x: f64::from_bits(x),
        y: f64::from_bits(y),
        xx: f64::from_bits(xx),
        yy: f64::from_bits(yy),
        xy: f64::from_bits(xy),
        abs_d: f64::from_bits(abs_d),
        d: f64::from_bits(d),
        dd: f64::from_bits(dd),
        max_abs: f64::from_bits(max_abs),
        max_abs_at: place(max_at),
        max_x: f64::from_bits(max_x),
        max_y: f64::from_bits(max_y),
    })
}

/// What a record on the device says, for rows of `width` elements.
///
/// # Errors
/// A kernel before it failed, or the record was never written.
pub fn compared(device: &Device, record: &Buffer, width: usize) -> Result<CoreSums> {
    let halves = device.download::<u32>(record)?;
    let words = halves.as_chunks::<2>().0.iter().map(|[low, high]| u64::from(*low) | u64::from(*high) << 32);
    sums(&words.collect::<Vec<_>>(), width)
}

/// Checked operands: addresses and bytes that hold `n` elements.
fn checked(call: &CompareCall<'_>, tile: usize) -> Result<Args> {
    let side = |what: &str, it: &Side<'_>| -> Result<(u64, Element)> {
        let end = it.first.checked_add(call.n).and_then(|end| end.checked_mul(it.element.size()));
        let end = end.ok_or_else(|| Error::input(format!("the GPU cannot compare so many elements of {what}")))?;
        Ok((it.buffer.need(what, end)? + (it.first * it.element.size()) as u64, it.element))
    };
    let (x, y) = (side("x", &call.x)?, side("y", &call.y)?);
    if call.n > 1 << 42 {
        return Err(Error::input("the GPU cannot compare so many pairs").expected("2^42 at most").found(call.n));
    }
    let partial = call.partial.need("partial", call.n.div_ceil(tile) * RECORD)?;
    Ok(Args::new(x, y, call.n, tile, partial, call.record.need("record", RECORD)?))
}

/// The comparison, loaded.
#[derive(Debug)]
pub struct Compare {
    /// By the types of x and y, as in [`Element::ALL`].
    tiles: [[(CudaFunction, Entry); 2]; 2],
    finish: (CudaFunction, Entry),
}

/// Its naive counterpart, loaded.
#[derive(Debug)]
pub struct NaiveCompare {
    runs: (CudaFunction, Entry),
    record: (CudaFunction, Entry),
}

/// Reading two buffers and nothing else.
#[derive(Debug)]
pub struct ReadRate(CudaFunction, Entry);

fn config(grid: u32, entry: &Entry) -> LaunchConfig {
    LaunchConfig { grid_dim: (grid, 1, 1), block_dim: (entry.threads, 1, 1), shared_mem_bytes: entry.shared }
}

impl Compare {
    /// Takes the kernels of the image `compare`.
    ///
    /// # Errors
    /// It is another image.
    pub fn new(loaded: &Loaded) -> Result<Self> {
        let of = |x: Element, y: Element| loaded.kernel(&format!("compare_{}_{}", x.name(), y.name()));
        let [a, b] = Element::ALL;
        let tiles = [[of(a, a)?, of(a, b)?], [of(b, a)?, of(b, b)?]];
        Ok(Self { tiles, finish: loaded.kernel("compare_finish")? })
    }

    /// Bytes of memory for the parts of `n` pairs.
    pub fn partial(n: usize) -> usize {
        n.div_ceil(tile(n)) * RECORD
    }

    /// Queues the comparison.
    ///
    /// # Errors
    /// A buffer that is too short, more pairs than can be counted, or the driver's refusal.
    pub fn run(&self, device: &Device, call: &CompareCall<'_>) -> Result<()> {
        let args = checked(call, tile(call.n))?;
        let blocks = if call.blocks == 0 { args.tiles.max(1) as u32 } else { call.blocks };
        let row = &self.tiles[usize::from(call.x.element == Element::Bf16)];
        let (function, entry) = &row[usize::from(call.y.element == Element::Bf16)];
        // SAFETY: Args is CompareArgs, field by field; both tensors hold `n` elements, `partial` a record a tile.
        unsafe { device.launch(function, config(blocks, entry), args) }?;
        // SAFETY: the same; `record` holds a record.
        unsafe { device.launch(&self.finish.0, config(WORDS as u32, &self.finish.1), args) }
    }
}

impl NaiveCompare {
    /// Takes the kernels of the image `naive-compare`.
    ///
    /// # Errors
    /// It is another image.
    pub fn new(loaded: &Loaded) -> Result<Self> {
        Ok(Self { runs: loaded.kernel("naive_runs")?, record: loaded.kernel("naive_record")? })
    }

    /// Bytes of memory for the runs of `n` pairs.
    pub fn partial(n: usize) -> usize {
        n.div_ceil(RUN) * RECORD
    }

    /// Queues the comparison.
    ///
    /// # Errors
    /// As for [`Compare::run`].
    pub fn run(&self, device: &Device, call: &CompareCall<'_>) -> Result<()> {
        let args = checked(call, RUN)?.naive(call.x.element, call.y.element);
        let blocks = (args.tiles as u32).div_ceil(self.runs.1.threads).max(1);
        // SAFETY: Args is NaiveArgs, field by field; both tensors hold `n` elements, `partial` a record a run.
        unsafe { device.launch(&self.runs.0, config(blocks, &self.runs.1), args) }?;
        // SAFETY: the same; `record` holds a record.
        unsafe { device.launch(&self.record.0, config(1, &self.record.1), args) }
    }
}

impl ReadRate {
    /// Takes the kernel of the image `compare`.
    ///
    /// # Errors
    /// It is another image.
    pub fn new(loaded: &Loaded) -> Result<Self> {
        loaded.kernel("read_rate").map(|(function, entry)| Self(function, entry))
    }

    /// Queues `blocks` blocks that read all of two buffers of the same length, a multiple of 16 bytes; `sink` has a word for each of
    /// their threads.
    ///
    /// # Errors
    /// A buffer is too short, or the driver refuses.
    pub fn run(&self, device: &Device, [x, y]: [&Buffer; 2], sink: &Buffer, blocks: u32) -> Result<()> {
        let (bytes, threads) = (x.bytes(), (blocks * self.1.threads) as usize);
        let (x, y, partial) = (x.at(), y.need("y", bytes)?, sink.need("sink", 4 * threads)?);
        let n = (bytes / 16) as i64;
        let args = Args { x, y, partial, record: 0, n, tile: 0, tiles: 0, flags: [0; 2] };
        // SAFETY: Args is CompareArgs; both buffers hold `n` words of 16 bytes, `partial` one of 4 a thread.
        unsafe { device.launch(&self.0, config(blocks, &self.1), args) }
    }
}

#[cfg(test)]
mod tests;
