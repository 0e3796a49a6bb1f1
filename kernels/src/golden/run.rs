//! One op on a device: operands in, kernels, results out.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use karat_model::{Error, Result};
use karat_reference::backend::Place;

use super::sketch::{Waiting, give_back, make_way};
use super::split::Split;
use super::weights::Weights;

/// The one parameter of golden's kernels, `Args` of `cuda/reference/golden.cuh`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Args {
    pub(crate) p: [u64; 8],
    pub(crate) n: [i64; 8],
    pub(crate) f: [f64; 2],
}

/// Values on their way to a device.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Values<'a> {
    F32(&'a [f32]),
    U32(&'a [u32]),
    U8(&'a [u8]),
}

/// Values on their way back.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Found {
    F32(Vec<f32>),
    U32(Vec<u32>),
    U8(Vec<u8>),
}

/// What kernels run on.
pub(crate) trait Runner: Debug + Send + Sync + 'static {
    /// Memory of it, freed with this value.
    type Memory: Debug + Send + Sync + 'static;
    /// Name for people.
    fn name(&self) -> String;
    /// Which code it runs.
    fn identity(&self) -> String;
    /// Whether it has the kernels of sketches.
    fn sketches(&self) -> bool;
    /// Least bytes of a room: results of small ops lie in it for a while.
    fn room(&self) -> usize {
        64 << 20
    }
    /// That many bytes, aligned to 256.
    fn alloc(&self, bytes: usize) -> Result<Self::Memory>;
    /// Address of a memory for kernels.
    fn at(&self, memory: &Self::Memory) -> u64;
    /// Copies values in, `offset` bytes from the start; refuses what does not fit.
    fn write(&self, memory: &Self::Memory, offset: usize, values: Values<'_>) -> Result<()>;
    /// Waits for all kernels, and until what was written can be read by them.
    fn settle(&self) -> Result<()>;
    /// Fills `found` from `offset` on, after all kernels; refuses what does not lie in the memory.
    fn read(&self, memory: &Self::Memory, offset: usize, found: &mut Found) -> Result<()>;
    /// The same from the start of the memory, beside the copies of other threads.
    fn read_aside(&self, memory: &Self::Memory, found: &mut Found) -> Result<()> {
        self.read(memory, 0, found)
    }
    /// Queues `threads` threads of a kernel.
    ///
    /// # Safety
    /// Every address in `args` leads to as much memory as the kernel touches for these sizes, alive until `read` returns.
    unsafe fn launch(&self, kernel: &'static str, threads: usize, args: Args) -> Result<()>;
}

/// An operand, or room for a result.
#[derive(Debug, Clone, Copy)]
pub(super) enum Piece<'a> {
    /// Values.
    In(Values<'a>),
    /// An address: what the device keeps of a weight.
    Held(u64),
    /// An optional operand that isn't there: address 0.
    Nothing,
    /// So many f32, given back.
    F32(usize),
    /// So many u32, given back.
    U32(usize),
    /// So many bytes, given back.
    U8(usize),
    /// So many bytes for the kernels alone.
    Room(usize),
}

/// A kernel with the places of its operands in the list of pieces, its sizes and factors.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) kernel: &'static str,
    pub(super) threads: usize,
    pub(super) p: Vec<usize>,
    pub(super) n: Vec<usize>,
    pub(super) f: Vec<f64>,
}

/// Alignment of every piece.
pub(super) const ALIGNED: usize = 256;

/// Results whose places are known.
const KNOWN: usize = 8;

impl Piece<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::In(Values::F32(v)) => size_of_val(*v),
            Self::In(Values::U32(v)) => size_of_val(*v),
            Self::In(Values::U8(v)) => v.len(),
            Self::F32(n) | Self::U32(n) => 4 * n,
            Self::U8(n) | Self::Room(n) => *n,
            Self::Held(_) | Self::Nothing => 0,
        }
    }
}

/// Room for operands and results, which grows to the largest op. An op's pieces lie behind those of the op before it; past the end
/// it goes on from the start, over the oldest.
#[derive(Debug)]
pub(super) struct Room<R: Runner> {
    /// With its bytes.
    pub(super) memory: Option<(R::Memory, usize)>,
    /// How many memories there were.
    number: u64,
    /// Bytes of all pieces so far, with what was left free at the end.
    end: u64,
    /// The last results: where they went here, how many values, and the bytes before each.
    known: [(usize, usize, u64); KNOWN],
    next: usize,
    pub(super) waiting: Waiting<R::Memory>,
}

/// A device with its room.
#[derive(Debug)]
pub(crate) struct Desk<R: Runner> {
    pub(super) runner: Arc<R>,
    pub(super) room: Arc<Mutex<Room<R>>>,
    /// Further devices, ranks 1 and up, over which the experts are spread.
    pub(super) others: Vec<Desk<R>>,
    /// What connects them.
    pub(super) gather: Option<Arc<dyn Gather>>,
    pub(super) weights: Arc<Weights<R>>,
    /// The exact-split tier; none: the tier of bits.
    pub(super) split: Option<Arc<Split<R>>>,
}

/// Brings to one device what several computed.
pub(crate) trait Gather: Debug + Send + Sync {
    /// What connects the devices, with its version.
    fn name(&self) -> String;
    /// Values of each rank as rank 0 holds them then: the same bits.
    fn gather(&self, shares: &[Vec<f32>]) -> Result<Vec<Vec<f32>>>;
}

impl<R: Runner> Desk<R> {
    pub(super) fn new(runner: R) -> Self {
        let room =
            Room { memory: None, number: 0, end: 0, known: [(0, 0, 0); KNOWN], next: 0, waiting: Waiting::default() };
        Self {
            runner: Arc::new(runner),
            room: Arc::new(Mutex::new(room)),
            others: Vec::new(),
            gather: None,
            weights: Arc::default(),
            split: None,
        }
    }

    /// The same device alone.
    pub(super) fn alone(&self) -> Self {
        let (runner, room, weights) = (self.runner.clone(), self.room.clone(), self.weights.clone());
        Self { runner, room, others: Vec::new(), gather: None, weights, split: self.split.clone() }
    }

    /// One desk of several devices, the first of which does everything but the experts of the others.
    pub(super) fn spread(first: R, others: Vec<R>, gather: Arc<dyn Gather>) -> Self {
        Self { others: others.into_iter().map(Self::new).collect(), gather: Some(gather), ..Self::new(first) }
    }

    /// Runs steps one after the other and gives the results among the pieces, in their order; without any, when they are done.
    ///
    /// # Safety
    /// For these sizes every kernel touches only as much of each operand as its piece (or what is held at its address) has.
    pub(super) unsafe fn run(&self, pieces: &[Piece<'_>], steps: &[Step]) -> Result<Vec<Found>> {
        let mut offsets = Vec::with_capacity(pieces.len());
        let mut end = 0usize;
        for piece in pieces {
            offsets.push(end);
            end += piece.bytes().next_multiple_of(ALIGNED);
        }
        // A panic elsewhere leaves the room as it is: whatever lies in it is overwritten.
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let room = &mut *room;
        let first = room.take(&*self.runner, end)?;
        let Some((memory, bytes)) = &room.memory else { return Err(Error::input("the device gave no memory")) };
        offsets.iter_mut().for_each(|offset| *offset += (first % *bytes as u64) as usize);
        for (piece, offset) in pieces.iter().zip(&offsets) {
            if let Piece::In(values) = piece {
                self.runner.write(memory, *offset, *values)?;
            }
        }
        self.runner.settle()?;
        room.waiting.landed();
        let start = self.runner.at(memory);
        let address = |i: usize| match &pieces[i] {
            Piece::Held(at) => *at,
            Piece::Nothing => 0,
            _ => start + offsets[i] as u64,
        };
        for step in steps.iter().filter(|step| step.threads > 0) {
            let mut args = Args::default();
            args.p.iter_mut().zip(&step.p).for_each(|(p, &i)| *p = address(i));
            args.n.iter_mut().zip(&step.n).for_each(|(n, &v)| *n = v as i64);
            args.f.iter_mut().zip(&step.f).for_each(|(f, &v)| *f = v);
            // SAFETY: what the caller promises; all pieces lie in the room, which is ours until the results are read.
            unsafe { self.runner.launch(step.kernel, step.threads, args) }?;
        }
        let mut out = Vec::new();
        for (piece, offset) in pieces.iter().zip(&offsets) {
            let mut found = match piece {
                Piece::F32(n) => Found::F32(vec![0.0; *n]),
                Piece::U32(n) => Found::U32(vec![0; *n]),
                Piece::U8(n) => Found::U8(vec![0; *n]),
                _ => continue,
            };
            self.runner.read(memory, *offset, &mut found)?;
            if let Found::F32(values) = &found {
                let start = first - first % *bytes as u64 + *offset as u64;
                room.known[room.next] = (values.as_ptr() as usize, values.len(), start);
                room.next = (room.next + 1) % KNOWN;
            }
            out.push(found);
        }
        if out.is_empty() {
            // What comes next may write over the operands: whoever reads a result has waited for the kernels.
            self.runner.settle()?;
        }
        Ok(out)
    }
}

impl<R: Runner> Room<R> {
    /// Bytes for an op: how many there were before them. Whatever is wanted of what lies there was sketched before.
    fn take(&mut self, runner: &R, bytes: usize) -> Result<u64> {
        if self.memory.as_ref().is_none_or(|(_, have)| *have < bytes) {
            give_back(runner, self)?;
            self.memory = None;
            let bytes = bytes.next_power_of_two().max(runner.room());
            self.memory = Some((runner.alloc(bytes)?, bytes));
            (self.number, self.end) = (self.number + 1, 0);
        }
        let all = self.memory.as_ref().map_or(0, |(_, bytes)| *bytes as u64);
        let mut first = self.end;
        if first % all + bytes as u64 > all {
            first = first.next_multiple_of(all);
        }
        let end = first + bytes as u64;
        make_way(runner, self, all, end)?;
        self.end = end;
        Ok(first)
    }

    /// Where a result lies that was just given. No two tensors lie at one address here at a time, and the latest counts.
    pub(super) fn place(&self, values: &[f32]) -> Option<Place> {
        let wanted = (values.as_ptr() as usize, values.len());
        let mut last = (1..=KNOWN).map(|i| self.known[(self.next + KNOWN - i) % KNOWN]);
        let start = last.find(|(at, n, _)| (*at, *n) == wanted && *n > 0)?.2;
        Some(Place { memory: self.number, start })
    }

    /// Whether nothing was written over a place yet.
    pub(super) fn holds(&self, place: Place) -> bool {
        let all = self.memory.as_ref().map_or(0, |(_, bytes)| *bytes as u64);
        place.memory == self.number && place.start + all >= self.end
    }
}
