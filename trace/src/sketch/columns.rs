//! Sketches of many rows: lines as they come, one a row, and columns of them as they are written.

use std::sync::{Arc, Mutex, PoisonError};

use karat_seam::{SketchLine, Tensor};
use rayon::prelude::*;

use super::row::SUMS;
use super::simd_row;

/// Bytes of one row's sketch.
pub(super) const SKETCH_BYTES: usize = 2 * 4 + SUMS * 4 + 2 * 8;

/// Values of a task: some 7 microseconds, where a thread that sleeps is woken in a few.
const TASK: usize = 1 << 15;

/// Values that take as long as what each row takes besides its values.
const ROW: usize = 96;

/// Lines of a chunk: 700 kB.
const CHUNK: usize = 1 << 13;

/// Lines of a block's rows, in the order in which they came. Their memory is used again by the block after the next one: the
/// system hands memory out page by page and cleared, which costs more than a line.
#[derive(Default)]
pub(super) struct Room {
    chunks: Vec<Vec<SketchLine>>,
    /// Lines of the last chunk that are taken.
    used: usize,
    spare: Arc<Mutex<Vec<Vec<SketchLine>>>>,
}

/// Lines that belong together.
pub(super) enum Part {
    /// So many of a chunk, from a number on.
    Of { chunk: usize, first: usize, count: usize },
    /// With memory of their own.
    Own(Vec<SketchLine>),
}

/// Sketches of the rows of one tap.
pub(super) type Parts = Vec<Part>;

impl Room {
    /// Place for so many lines.
    pub(super) fn next(&mut self, count: usize) -> (Part, &mut [SketchLine]) {
        if self.chunks.last().is_none_or(|last| last.len() - self.used < count) {
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = spare.iter().position(|chunk| chunk.len() >= count).map(|at| spare.swap_remove(at));
            drop(spare);
            self.chunks.push(fits.unwrap_or_else(|| vec![[0; _]; count.max(CHUNK)]));
            self.used = 0;
        }
        let (chunk, first) = (self.chunks.len() - 1, self.used);
        self.used += count;
        (Part::Of { chunk, first, count }, &mut self.chunks[chunk][first..first + count])
    }

    /// What was taken, and an empty room that gets the memory when that is dropped.
    pub(super) fn replace(&mut self) -> Self {
        let empty = Self { chunks: Vec::new(), used: 0, spare: self.spare.clone() };
        std::mem::replace(self, empty)
    }

    fn lines<'a>(&'a self, part: &'a Part) -> &'a [SketchLine] {
        match part {
            Part::Of { chunk, first, count } => &self.chunks[*chunk][*first..first + count],
            Part::Own(lines) => lines,
        }
    }

    /// Name and tensor of each column.
    pub(super) fn columns(&self, parts: &[Part]) -> impl Iterator<Item = (&'static str, Tensor)> {
        let rows = parts.iter().map(|part| self.lines(part).len()).sum();
        let floats = |n| Vec::<f32>::with_capacity(n);
        let (mut norm, mut absmax, mut projection) = (floats(rows), floats(rows), floats(rows * SUMS));
        let (mut nonfinite, mut hash) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        for lines in parts.iter().map(|part| self.lines(part)) {
            norm.extend(lines.iter().map(|line| f32::from_bits(line[0])));
            absmax.extend(lines.iter().map(|line| f32::from_bits(line[1])));
            for line in lines {
                let sums: &[u32; SUMS] = line[2..].first_chunk().unwrap_or(&[0; SUMS]);
                projection.extend_from_slice(&sums.map(f32::from_bits));
            }
            nonfinite.extend(lines.iter().map(|line| i64::from(line[18])));
            hash.extend(lines.iter().map(|line| (u64::from(line[20]) << 32 | u64::from(line[19])) as i64));
        }
        let tensors = [
            ("hash.v2", Tensor::i64([rows], hash)),
            ("norm", Tensor::f32([rows], norm)),
            ("absmax", Tensor::f32([rows], absmax)),
            ("projection.v2", Tensor::f32([rows, SUMS], projection)),
            ("nonfinite", Tensor::i64([rows], nonfinite)),
        ];
        tensors.into_iter()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.chunks);
    }
}

/// Lines of rows of `width` values each; `shown` is what counts of one. By the threads of the pool that the call comes from, if
/// it does and there is enough for two.
pub(super) fn fill(
    to: &mut [SketchLine],
    values: &[f32],
    width: usize,
    shown: impl Fn(&[f32]) -> &[f32] + Copy + Sync,
) {
    let rows = (TASK / (width + ROW)).max(1);
    if width == 0 || to.len() < 2 * rows || rayon::current_thread_index().is_none() {
        return simd_row::fill(to, values, width, shown);
    }
    let tasks = to.par_chunks_mut(rows).zip(values.par_chunks(rows * width));
    tasks.for_each(|(to, values)| simd_row::fill(to, values, width, shown));
}
