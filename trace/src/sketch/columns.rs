//! Sketches of many rows: columns, a piece for each visit, as they are written.

use std::sync::{Arc, Mutex, PoisonError};

use karat_seam::SketchLine;
use rayon::prelude::*;

use super::row::{RowSketch, SUMS};
use super::simd_row;
use crate::writer::Entry;

/// Bytes of one row's sketch.
pub(super) const SKETCH_BYTES: usize = 2 * 4 + SUMS * 4 + 2 * 8;

/// Values of a task: some 3 microseconds, less than it takes to wake a thread that sleeps; but a thread that is still looking for work
/// stays awake for the run's next product.
const TASK: usize = 1 << 14;

/// Values that take as long as what each row takes besides its values.
const ROW: usize = 48;

/// Rows whose ends `simd_row` takes side by side.
const SIDE: usize = 8;

/// Rows of a chunk: 720 kB.
const CHUNK: usize = 1 << 13;

/// Numbers of one row that are f32: its sums, norm and largest size.
const FLOATS: usize = SUMS + 2;

/// Numbers of one row that are i64: its hash, and how many values are not finite.
const LONGS: usize = 2;

/// Memory of rows that follow each other; a piece of them has its columns one after the other.
struct Chunk {
    floats: Vec<f32>,
    longs: Vec<i64>,
}

impl Chunk {
    fn of(rows: usize) -> Self {
        Self { floats: vec![0.0; rows * FLOATS], longs: vec![0; rows * LONGS] }
    }

    fn rows(&self) -> usize {
        self.longs.len() / LONGS
    }
}

/// Where a block's sketches lie. Its memory is used again by the block after the next one: the system hands memory out page by
/// page and cleared, which costs more than a row.
#[derive(Default)]
pub(super) struct Room {
    chunks: Vec<Chunk>,
    /// Rows of the last chunk that are taken.
    used: usize,
    spare: Arc<Mutex<Vec<Chunk>>>,
}

/// So many rows that belong together, of a chunk, from a number on.
pub(super) struct Part {
    chunk: usize,
    first: usize,
    count: usize,
}

/// Sketches of the rows of one tap.
pub(super) type Parts = Vec<Part>;

/// Columns of some rows.
pub(super) struct Rows<'a> {
    pub(super) projection: &'a mut [[f32; SUMS]],
    pub(super) norm: &'a mut [f32],
    pub(super) absmax: &'a mut [f32],
    pub(super) hash: &'a mut [i64],
    pub(super) nonfinite: &'a mut [i64],
}

impl Rows<'_> {
    /// The first `n` and the rest.
    fn split_at(self, n: usize) -> (Self, Self) {
        let (projection, norm) = (self.projection.split_at_mut(n), self.norm.split_at_mut(n));
        let (absmax, hash) = (self.absmax.split_at_mut(n), self.hash.split_at_mut(n));
        let nonfinite = self.nonfinite.split_at_mut(n);
        let part = |projection, norm, absmax, hash, nonfinite| Self { projection, norm, absmax, hash, nonfinite };
        (
            part(projection.0, norm.0, absmax.0, hash.0, nonfinite.0),
            part(projection.1, norm.1, absmax.1, hash.1, nonfinite.1),
        )
    }

    /// Row `i`.
    #[inline]
    pub(super) fn put(&mut self, i: usize, of: &RowSketch) {
        (self.norm[i], self.absmax[i]) = (of.norm, of.absmax);
        self.projection[i] = of.projection;
        (self.hash[i], self.nonfinite[i]) = (of.hash, i64::from(of.nonfinite));
    }

    /// What a device said of them.
    pub(super) fn take(&mut self, lines: &[SketchLine]) {
        for (i, line) in lines.iter().enumerate() {
            self.put(i, &RowSketch::from_line(line));
        }
    }
}

impl Room {
    /// Place for so many rows.
    pub(super) fn next(&mut self, count: usize) -> (Part, Rows<'_>) {
        if self.chunks.last().is_none_or(|last| last.rows() - self.used < count) {
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = spare.iter().position(|chunk| chunk.rows() >= count).map(|at| spare.swap_remove(at));
            drop(spare);
            self.chunks.push(fits.unwrap_or_else(|| Chunk::of(count.max(CHUNK))));
            self.used = 0;
        }
        let (chunk, first) = (self.chunks.len() - 1, self.used);
        self.used += count;
        let Chunk { floats, longs } = &mut self.chunks[chunk];
        let floats = &mut floats[first * FLOATS..(first + count) * FLOATS];
        let (projection, sizes) = floats.split_at_mut(count * SUMS);
        let (norm, absmax) = sizes.split_at_mut(count);
        let (hash, nonfinite) = longs[first * LONGS..(first + count) * LONGS].split_at_mut(count);
        let projection = projection.as_chunks_mut().0;
        (Part { chunk, first, count }, Rows { projection, norm, absmax, hash, nonfinite })
    }

    /// What was taken, and an empty room that gets the memory when that is dropped.
    pub(super) fn replace(&mut self) -> Self {
        let empty = Self { chunks: Vec::new(), used: 0, spare: self.spare.clone() };
        std::mem::replace(self, empty)
    }

    /// Name and contents of each column.
    pub(super) fn columns<'a>(&'a self, parts: &[Part]) -> [(&'static str, Entry<'a>); 5] {
        let rows = parts.iter().map(|part| part.count).sum();
        let floats = |from: usize, to: usize| {
            let of = move |part: &Part| {
                let all = &self.chunks[part.chunk].floats[part.first * FLOATS..(part.first + part.count) * FLOATS];
                &all[from * part.count..to * part.count]
            };
            parts.iter().map(of).collect()
        };
        let longs = |from: usize| {
            let of = move |part: &Part| {
                let all = &self.chunks[part.chunk].longs[part.first * LONGS..(part.first + part.count) * LONGS];
                &all[from * part.count..(from + 1) * part.count]
            };
            parts.iter().map(of).collect()
        };
        [
            ("hash.v2", Entry::i64([rows], longs(0))),
            ("norm", Entry::f32([rows], floats(SUMS, SUMS + 1))),
            ("absmax", Entry::f32([rows], floats(SUMS + 1, FLOATS))),
            ("projection.v2", Entry::f32([rows, SUMS], floats(0, SUMS))),
            ("nonfinite", Entry::i64([rows], longs(1))),
        ]
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.chunks);
    }
}

/// Sketches of rows of `width` values each; `shown` is what counts of one. By the threads of the pool that the call comes from, if
/// it does and there is enough for two.
pub(super) fn fill(to: Rows<'_>, values: &[f32], width: usize, shown: impl Fn(&[f32]) -> &[f32] + Copy + Sync) {
    let rows = to.norm.len();
    let threads = rayon::current_thread_index().map_or(1, |_| rayon::current_num_threads());
    // As many for each thread, or one for some of them.
    let tasks = rows * (width + ROW) / TASK;
    let tasks = if tasks > threads { tasks - tasks % threads } else { tasks };
    if width == 0 || threads < 2 || tasks < 2 {
        return simd_row::fill(to, values, width, shown);
    }
    let rows = rows.div_ceil(tasks).next_multiple_of(SIDE);
    let (mut tasks, mut rest) = (Vec::with_capacity(values.len() / (rows * width) + 1), to);
    for values in values.chunks(rows * width) {
        let (to, after) = rest.split_at(values.len() / width);
        tasks.push((to, values));
        rest = after;
    }
    tasks.into_par_iter().for_each(|(to, values)| simd_row::fill(to, values, width, shown));
}
