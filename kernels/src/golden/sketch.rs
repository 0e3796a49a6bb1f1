//! Sketches of results that still lie on the device: which are wanted, and all of them at once before their memory is needed.
//!
//! A tap costs no launch and no copy when it is shown. When somebody waits, or when an operand is about to be written over a result
//! that is still wanted, the rows of all such results are sketched by three launches, and only their lines are copied back.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use karat_model::{Error, Result};
use karat_seam::{Later, SketchLine};

use super::run::{ALIGNED, Args, Found, Room, Runner, Values};

/// Words of a line.
const WORDS: usize = size_of::<SketchLine>() / 4;
/// Values of a row whose sums are taken together, in `trace/src/sketch/row.rs` and in the kernel.
const BLOCK: usize = 1024;
/// Bytes of a block's sums in the kernel.
const PART: usize = 224;
/// Threads of a block of a row.
const PAIRS: usize = 8;
/// Rows after which they are sketched, whoever waits: no more than so many lines are held.
const MOST_ROWS: usize = 1 << 17;

/// Rows of a result.
#[derive(Debug)]
struct Wanted {
    /// Bytes before the result in the room, and before the rows in the result.
    start: u64,
    at: u64,
    rows: usize,
    width: usize,
    ragged: bool,
}

/// Sketches that are wanted and were not computed yet.
#[derive(Debug)]
pub(super) struct Waiting<M> {
    wanted: Vec<Wanted>,
    rows: usize,
    /// What they become.
    batch: Arc<Batch<M>>,
    /// Signs and keys, and memory for jobs, lengths and parts.
    table: Option<M>,
    pad: Option<(M, usize)>,
    /// Memory for lines that nobody reads any more.
    spare: Arc<Mutex<Vec<(M, usize)>>>,
    /// Rows so far.
    pub(super) done: u64,
}

impl<M> Default for Waiting<M> {
    fn default() -> Self {
        let spare = Arc::default();
        let batch = Arc::new(Batch::new(&spare));
        Self { wanted: Vec::new(), rows: 0, batch, table: None, pad: None, spare, done: 0 }
    }
}

impl<M> Waiting<M> {
    /// Start of the oldest result that is wanted.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.wanted.iter().map(|it| it.start).min()
    }
}

/// Lines that were computed together. They are copied here when somebody asks, by who asks: golden goes on meanwhile.
#[derive(Debug)]
struct Batch<M> {
    /// Where they lie, the bytes of that memory, and how many rows they are.
    there: OnceLock<(M, usize, usize)>,
    here: Mutex<Option<Vec<u32>>>,
    spare: Arc<Mutex<Vec<(M, usize)>>>,
}

impl<M> Batch<M> {
    fn new(spare: &Arc<Mutex<Vec<(M, usize)>>>) -> Self {
        Self { there: OnceLock::new(), here: Mutex::default(), spare: spare.clone() }
    }
}

impl<M> Drop for Batch<M> {
    fn drop(&mut self) {
        if let Some((memory, bytes, _)) = self.there.take() {
            self.spare.lock().unwrap_or_else(PoisonError::into_inner).push((memory, bytes));
        }
    }
}

/// Lines of some rows of a device.
struct Ticket<R: Runner> {
    runner: Arc<R>,
    room: Arc<Mutex<Room<R>>>,
    batch: Arc<Batch<R::Memory>>,
    rows: Range<usize>,
}

impl<R: Runner> Later for Ticket<R> {
    fn lines(self: Box<Self>) -> karat_seam::Result<Vec<SketchLine>> {
        let failed = karat_seam::Error::source;
        {
            let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
            if self.batch.there.get().is_none() && Arc::ptr_eq(&self.batch, &room.waiting.batch) {
                perform(&*self.runner, &mut room).map_err(failed)?;
            }
        }
        let lost = || failed(Error::input("sketches on the device were lost: it failed before"));
        let (memory, _, rows) = self.batch.there.get().ok_or_else(lost)?;
        let mut here = self.batch.here.lock().unwrap_or_else(PoisonError::into_inner);
        if here.is_none() {
            let mut found = Found::U32(vec![0; WORDS * rows]);
            self.runner.read(memory, 0, &mut found).map_err(failed)?;
            if let Found::U32(words) = found {
                *here = Some(words);
            }
        }
        let lines = here.as_deref().ok_or_else(lost)?;
        Ok(lines[self.rows.start * WORDS..self.rows.end * WORDS].as_chunks::<WORDS>().0.to_vec())
    }
}

/// Notes that these rows are wanted. `start`: bytes before the result; `values`: which of its values.
pub(super) fn want<R: Runner>(
    runner: &Arc<R>,
    shared: &Arc<Mutex<Room<R>>>,
    start: u64,
    values: &Range<usize>,
    (rows, ragged): (usize, bool),
) -> Result<Box<dyn Later>> {
    let mut room = shared.lock().unwrap_or_else(PoisonError::into_inner);
    if room.waiting.rows + rows > MOST_ROWS && room.waiting.rows > 0 {
        perform(&**runner, &mut room)?;
    }
    let first = room.waiting.rows;
    let width = values.len().checked_div(rows).unwrap_or(0);
    room.waiting.wanted.push(Wanted { start, at: 4 * values.start as u64, rows, width, ragged });
    room.waiting.rows += rows;
    let batch = room.waiting.batch.clone();
    Ok(Box::new(Ticket { runner: runner.clone(), room: shared.clone(), batch, rows: first..first + rows }))
}

fn step<R: Runner>(runner: &R, kernel: &'static str, threads: usize, p: &[u64], n: &[usize]) -> Result<()> {
    let mut args = Args::default();
    args.p.iter_mut().zip(p).for_each(|(to, &from)| *to = from);
    args.n.iter_mut().zip(n).for_each(|(to, &from)| *to = from as i64);
    // SAFETY: the addresses lead to as much memory as these sizes need (see `perform`), held until they are done.
    unsafe { runner.launch(kernel, threads, args) }
}

/// Sketches everything that is wanted, and waits for the kernels: the rows may be written over then. Whatever becomes of it, nothing
/// is wanted then.
pub(super) fn perform<R: Runner>(runner: &R, room: &mut Room<R>) -> Result<()> {
    let wanted = std::mem::take(&mut room.waiting.wanted);
    let rows = std::mem::take(&mut room.waiting.rows);
    let next = Arc::new(Batch::new(&room.waiting.spare));
    let batch = std::mem::replace(&mut room.waiting.batch, next);
    if rows == 0 {
        return Ok(());
    }
    let Some((memory, bytes)) = &room.memory else { return Err(Error::input("the device gave no memory")) };
    let base = runner.at(memory);
    // SketchJob of the kernel: address, width, rows and blocks before it, ragged.
    let (mut jobs, mut row, mut blocks) = (Vec::with_capacity(10 * wanted.len()), 0, 0);
    for it in &wanted {
        let at = base + it.start % *bytes as u64 + it.at;
        for word in [at, it.width as u64, row, blocks, u64::from(it.ragged)] {
            jobs.extend([word as u32, (word >> 32) as u32]);
        }
        row += it.rows as u64;
        blocks += (it.rows * it.width.div_ceil(BLOCK).max(1)) as u64;
    }
    let blocks = blocks as usize;
    let sizes = [4 * jobs.len(), 4 * rows, PART * blocks];
    let mut end = 0;
    let offsets = sizes.map(|bytes| {
        let offset = end;
        end += bytes.next_multiple_of(ALIGNED);
        offset
    });
    let waiting = &mut room.waiting;
    if waiting.table.is_none() {
        let table = runner.alloc(8 * BLOCK)?;
        step(runner, "golden_sketch_table", BLOCK, &[runner.at(&table)], &[])?;
        waiting.table = Some(table);
    }
    if waiting.pad.as_ref().is_none_or(|(_, bytes)| *bytes < end) {
        waiting.pad = None;
        let bytes = end.next_power_of_two();
        waiting.pad = Some((runner.alloc(bytes)?, bytes));
    }
    let (Some(table), Some((pad, _))) = (&waiting.table, &waiting.pad) else {
        return Err(Error::input("the device gave no memory"));
    };
    let (lines, bytes) = for_lines(runner, waiting, 4 * WORDS * rows)?;
    runner.write(pad, offsets[0], Values::U32(&jobs))?;
    runner.settle()?;
    let start = runner.at(pad);
    let [at, lengths, parts] = offsets.map(|offset| start + offset as u64);
    let (table, n, out) = (runner.at(table), wanted.len(), runner.at(&lines));
    step(runner, "golden_sketch_lengths", rows, &[at, lengths], &[n, rows])?;
    step(runner, "golden_sketch_lanes", PAIRS * blocks, &[at, lengths, table, parts], &[n, blocks])?;
    step(runner, "golden_sketch_rows", rows, &[at, lengths, table, parts, out], &[n, rows])?;
    runner.settle()?;
    room.waiting.done += rows as u64;
    let _ = batch.there.set((lines, bytes, rows));
    Ok(())
}

/// Memory for lines, with its bytes: some that was used before, if it is large enough.
fn for_lines<R: Runner>(runner: &R, waiting: &Waiting<R::Memory>, bytes: usize) -> Result<(R::Memory, usize)> {
    let mut spare = waiting.spare.lock().unwrap_or_else(PoisonError::into_inner);
    while let Some((memory, have)) = spare.pop() {
        if have >= bytes {
            return Ok((memory, have));
        }
    }
    let bytes = bytes.next_power_of_two();
    Ok((runner.alloc(bytes)?, bytes))
}
