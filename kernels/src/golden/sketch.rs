//! Sketches of results that still lie on the device: which are wanted, and all of them at once before their memory is needed.
//!
//! A tap costs no launch and no copy when it is shown. When somebody asks, or when half a room was written behind a result that is
//! still wanted, three launches sketch the rows of all such results, and nobody waits for them but who writes over these rows. Lines
//! of one launch lie behind those of the one before, and are copied here together, by who asks first, beside golden's own copies.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

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
/// Threads that make a row's line: one a signed sum, and one for everything else.
const TASKS: usize = 17;
/// Most rows whose lines lie together.
const MOST_ROWS: usize = 1 << 17;

/// Where rows lie.
#[derive(Debug)]
pub(super) enum Lies<M> {
    /// In the room, so many bytes before them.
    Room(u64),
    /// In memory of their own.
    Held(Arc<Lent<M>>),
}

/// Rows of a result.
#[derive(Debug)]
struct Wanted<M> {
    lies: Lies<M>,
    /// Bytes before the rows in the result.
    at: u64,
    rows: usize,
    width: usize,
    ragged: bool,
}

/// Sketches that are wanted, and those whose kernels may not have ended.
#[derive(Debug)]
pub(super) struct Waiting<M> {
    wanted: Vec<Wanted<M>>,
    /// Where their lines go, the rows so far, and those whose kernels were launched.
    open: Option<Arc<Batch<M>>>,
    rows: usize,
    launched: usize,
    flying: Option<Flying<M>>,
    /// Signs and keys, and memory for jobs, lengths and parts.
    table: Option<M>,
    pad: Option<(M, usize)>,
    pub(super) spare: Spare<M>,
    /// Rows so far.
    pub(super) done: u64,
    pub(super) spent: Spent,
}

/// What sketches took of the threads that compute, so far: beginning them before memory is written over, and waiting for them there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    /// How often something was begun or waited for.
    pub times: u64,
    /// Seconds of both.
    pub seconds: f64,
}

impl<M> Default for Waiting<M> {
    fn default() -> Self {
        let (wanted, open, flying, table, pad, spare) = (Vec::new(), None, None, None, None, Spare::default());
        Self { wanted, open, rows: 0, launched: 0, flying, table, pad, spare, done: 0, spent: Spent::default() }
    }
}

/// Rows that kernels may still read, with what is held for them.
#[derive(Debug)]
struct Flying<M> {
    /// Start of the oldest of them in the room.
    oldest: Option<u64>,
    _held: Vec<Wanted<M>>,
}

fn oldest<M>(wanted: &[Wanted<M>]) -> Option<u64> {
    let in_room = |it: &Wanted<M>| if let Lies::Room(start) = it.lies { Some(start) } else { None };
    wanted.iter().filter_map(in_room).min()
}

impl<M> Waiting<M> {
    /// Everything that was launched has ended.
    pub(super) fn landed(&mut self) {
        self.flying = None;
    }
}

/// Memory that is lent again: on the device, by its size, and here.
#[derive(Debug)]
pub(super) struct Spare<M>(Arc<Mutex<Left<M>>>);

/// With its bytes, and of here.
type Left<M> = (Vec<(M, usize)>, Vec<Vec<u32>>);

impl<M> Default for Spare<M> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<M> Spare<M> {
    /// At least so many bytes; poison, or what somebody left there.
    pub(super) fn lend<R: Runner<Memory = M>>(&self, runner: &R, bytes: usize) -> Result<Lent<M>> {
        let bytes = bytes.next_power_of_two();
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = left.0.iter().position(|(_, have)| *have == bytes).map(|i| left.0.swap_remove(i).0);
        drop(left);
        let memory = found.map_or_else(|| runner.alloc(bytes), Ok)?;
        Ok(Lent { memory: Some((memory, bytes)), spare: Self(self.0.clone()) })
    }
}

/// Memory that goes back to where it came from. Kernels that still use it come before those of who has it next.
#[derive(Debug)]
pub(super) struct Lent<M> {
    memory: Option<(M, usize)>,
    spare: Spare<M>,
}

impl<M> Lent<M> {
    pub(super) fn memory(&self) -> Result<&M> {
        self.memory.as_ref().map(|(memory, _)| memory).ok_or_else(|| Error::input("the device gave no memory"))
    }
}

impl<M> Drop for Lent<M> {
    fn drop(&mut self) {
        self.spare.0.lock().unwrap_or_else(PoisonError::into_inner).0.extend(self.memory.take());
    }
}

/// Lines that lie together. They are copied here when somebody asks, by who asks: golden goes on meanwhile.
#[derive(Debug)]
struct Batch<M> {
    there: Lent<M>,
    /// How many, once no more come.
    rows: OnceLock<usize>,
    here: Mutex<Vec<u32>>,
}

impl<M> Drop for Batch<M> {
    fn drop(&mut self) {
        let here = std::mem::take(self.here.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.there.spare.0.lock().unwrap_or_else(PoisonError::into_inner).1.push(here);
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
            if room.waiting.open.as_ref().is_some_and(|open| Arc::ptr_eq(open, &self.batch)) {
                close(&*self.runner, &mut room).map_err(failed)?;
            }
        }
        let lost = || failed(Error::input("sketches on the device were lost: it failed before"));
        let rows = *self.batch.rows.get().ok_or_else(lost)?;
        let mut here = self.batch.here.lock().unwrap_or_else(PoisonError::into_inner);
        if here.is_empty() {
            let spare = self.batch.there.spare.0.lock().unwrap_or_else(PoisonError::into_inner).1.pop();
            let mut words = spare.unwrap_or_default();
            words.resize(WORDS * rows, 0);
            let mut found = Found::U32(words);
            self.runner.read_aside(self.batch.there.memory().map_err(failed)?, &mut found).map_err(failed)?;
            if let Found::U32(words) = found {
                *here = words;
            }
        }
        let lines = here.get(self.rows.start * WORDS..self.rows.end * WORDS).ok_or_else(lost)?;
        Ok(lines.as_chunks::<WORDS>().0.to_vec())
    }
}

/// Notes that these rows are wanted: which values of a result.
pub(super) fn want<R: Runner>(
    runner: &Arc<R>,
    shared: &Arc<Mutex<Room<R>>>,
    lies: Lies<R::Memory>,
    values: &Range<usize>,
    (rows, ragged): (usize, bool),
) -> Result<Box<dyn Later>> {
    let mut room = shared.lock().unwrap_or_else(PoisonError::into_inner);
    if room.waiting.rows + rows > MOST_ROWS {
        close(&**runner, &mut room)?;
    }
    let waiting = &mut room.waiting;
    let batch = match &waiting.open {
        Some(batch) => batch.clone(),
        None => {
            let there = waiting.spare.lend(&**runner, 4 * WORDS * rows.max(MOST_ROWS))?;
            let batch = Arc::new(Batch { there, rows: OnceLock::new(), here: Mutex::default() });
            waiting.open.insert(batch).clone()
        }
    };
    let first = waiting.rows;
    let width = values.len().checked_div(rows).unwrap_or(0);
    waiting.wanted.push(Wanted { lies, at: 4 * values.start as u64, rows, width, ragged });
    waiting.rows += rows;
    Ok(Box::new(Ticket { runner: runner.clone(), room: shared.clone(), batch, rows: first..first + rows }))
}

/// Before an op writes the bytes up to `end` of a room that has `all`: sketches begin once half of a room was written behind the oldest
/// rows that are wanted, and have ended, as a rule, when the other half was. Where they have not, this waits.
pub(super) fn make_way<R: Runner>(runner: &R, room: &mut Room<R>, all: u64, end: u64) -> Result<()> {
    if oldest(&room.waiting.wanted).is_some_and(|start| start + all / 2 < end) {
        timed(room, |room| begin(runner, room))?;
    }
    let flying = room.waiting.flying.as_ref();
    let needed = flying.and_then(|it| it.oldest).is_some_and(|start| start + all < end);
    if needed { timed(room, |room| land(runner, room)) } else { Ok(()) }
}

fn timed<R: Runner>(room: &mut Room<R>, run: impl FnOnce(&mut Room<R>) -> Result<()>) -> Result<()> {
    let start = Instant::now();
    run(room)?;
    let spent = &mut room.waiting.spent;
    *spent = Spent { times: spent.times + 1, seconds: spent.seconds + start.elapsed().as_secs_f64() };
    Ok(())
}

/// Sketches everything that is wanted of the room, which is given back then.
pub(super) fn give_back<R: Runner>(runner: &R, room: &mut Room<R>) -> Result<()> {
    timed(room, |room| {
        begin(runner, room)?;
        land(runner, room)
    })
}

fn land<R: Runner>(runner: &R, room: &mut Room<R>) -> Result<()> {
    if room.waiting.flying.is_some() {
        runner.settle()?;
        room.waiting.landed();
    }
    Ok(())
}

/// No more rows come to the lines that lie together.
fn close<R: Runner>(runner: &R, room: &mut Room<R>) -> Result<()> {
    begin(runner, room)?;
    let (open, rows) = (room.waiting.open.take(), std::mem::take(&mut room.waiting.rows));
    room.waiting.launched = 0;
    if let Some(batch) = open {
        let _ = batch.rows.set(rows);
    }
    Ok(())
}

/// Begins to sketch everything that is wanted. What fails is lost, with the lines before it.
fn begin<R: Runner>(runner: &R, room: &mut Room<R>) -> Result<()> {
    let wanted = std::mem::take(&mut room.waiting.wanted);
    if wanted.is_empty() {
        return Ok(());
    }
    let done = launch(runner, room, wanted);
    if done.is_err() {
        (room.waiting.open, room.waiting.rows, room.waiting.launched) = (None, 0, 0);
    }
    done
}

fn step<R: Runner>(runner: &R, kernel: &'static str, threads: usize, p: &[u64], n: &[usize]) -> Result<()> {
    let mut args = Args::default();
    args.p.iter_mut().zip(p).for_each(|(to, &from)| *to = from);
    args.n.iter_mut().zip(n).for_each(|(to, &from)| *to = from as i64);
    // SAFETY: the addresses lead to as much memory as these sizes need (see `launch`), held until the kernels have ended.
    unsafe { runner.launch(kernel, threads, args) }
}

/// Three kernels, for which nobody waits: until they have ended, the rows and what is held for them are `flying`.
fn launch<R: Runner>(runner: &R, room: &mut Room<R>, wanted: Vec<Wanted<R::Memory>>) -> Result<()> {
    // The jobs of those before are written over.
    land(runner, room)?;
    let none = || Error::input("the device gave no memory");
    let (memory, bytes) = room.memory.as_ref().ok_or_else(none)?;
    let base = runner.at(memory);
    // SketchJob of the kernel: address, width, rows and blocks before it, ragged.
    let (mut jobs, mut row, mut blocks) = (Vec::with_capacity(10 * wanted.len()), 0, 0);
    for it in &wanted {
        let at = match &it.lies {
            Lies::Room(start) => base + start % *bytes as u64,
            Lies::Held(lent) => runner.at(lent.memory()?),
        };
        for word in [at + it.at, it.width as u64, row, blocks, u64::from(it.ragged)] {
            jobs.extend([word as u32, (word >> 32) as u32]);
        }
        row += it.rows as u64;
        blocks += (it.rows * it.width.div_ceil(BLOCK).max(1)) as u64;
    }
    let (rows, blocks) = (row as usize, blocks as usize);
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
    let (Some(table), Some((pad, _)), Some(batch)) = (&waiting.table, &waiting.pad, &waiting.open) else {
        return Err(none());
    };
    let out = runner.at(batch.there.memory()?) + (4 * WORDS * waiting.launched) as u64;
    runner.write(pad, offsets[0], Values::U32(&jobs))?;
    runner.settle()?;
    let start = runner.at(pad);
    let [at, lengths, parts] = offsets.map(|offset| start + offset as u64);
    let (table, n) = (runner.at(table), wanted.len());
    waiting.flying = Some(Flying { oldest: oldest(&wanted), _held: wanted });
    step(runner, "golden_sketch_lengths", rows, &[at, lengths], &[n, rows])?;
    step(runner, "golden_sketch_lanes", PAIRS * blocks, &[at, lengths, table, parts], &[n, blocks])?;
    step(runner, "golden_sketch_rows", TASKS * rows, &[at, lengths, table, parts, out], &[n, rows])?;
    waiting.launched += rows;
    waiting.done += rows as u64;
    Ok(())
}
