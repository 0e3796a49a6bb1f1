//! Sketches of many rows, a column each: as they are written.

use karat_seam::Tensor;
use rayon::prelude::*;

use super::row::{RowSketch, SUMS};

/// Bytes of one row's sketch.
pub(super) const SKETCH_BYTES: usize = 2 * 4 + SUMS * 4 + 2 * 8;

/// Values of a task: some 10 microseconds.
const TASK: usize = 1 << 14;

/// Sketches of rows.
#[derive(Default)]
pub(super) struct Columns {
    norm: Vec<f32>,
    absmax: Vec<f32>,
    projection: Vec<f32>,
    nonfinite: Vec<i64>,
    hash: Vec<i64>,
}

/// Some rows of the columns, to be filled.
struct Part<'a> {
    norm: &'a mut [f32],
    absmax: &'a mut [f32],
    projection: &'a mut [f32],
    nonfinite: &'a mut [i64],
    hash: &'a mut [i64],
}

impl Columns {
    pub(super) fn with_capacity(rows: usize) -> Self {
        Self {
            norm: Vec::with_capacity(rows),
            absmax: Vec::with_capacity(rows),
            projection: Vec::with_capacity(rows * SUMS),
            nonfinite: Vec::with_capacity(rows),
            hash: Vec::with_capacity(rows),
        }
    }

    /// Adds `count` rows of `width` values each; `shown` is what counts of one. By the threads of the pool that the call comes
    /// from, if it does.
    pub(super) fn extend(
        &mut self,
        values: &[f32],
        (count, width): (usize, usize),
        shown: impl Fn(&[f32]) -> &[f32] + Sync,
    ) {
        let (first, last) = (self.hash.len(), self.hash.len() + count);
        self.norm.resize(last, 0.0);
        self.absmax.resize(last, 0.0);
        self.projection.resize(last * SUMS, 0.0);
        self.nonfinite.resize(last, 0);
        self.hash.resize(last, 0);
        let part = Part {
            norm: &mut self.norm[first..],
            absmax: &mut self.absmax[first..],
            projection: &mut self.projection[first * SUMS..],
            nonfinite: &mut self.nonfinite[first..],
            hash: &mut self.hash[first..],
        };
        let rows = (TASK / width.max(1)).max(1);
        if count <= rows || rayon::current_thread_index().is_none() {
            return part.fill(values, width, &shown);
        }
        let Part { norm, absmax, projection, nonfinite, hash } = part;
        let tasks = (
            values.par_chunks(rows * width),
            norm.par_chunks_mut(rows),
            absmax.par_chunks_mut(rows),
            projection.par_chunks_mut(rows * SUMS),
            nonfinite.par_chunks_mut(rows),
            hash.par_chunks_mut(rows),
        );
        tasks.into_par_iter().for_each(|(values, norm, absmax, projection, nonfinite, hash)| {
            Part { norm, absmax, projection, nonfinite, hash }.fill(values, width, &shown);
        });
    }

    /// Adds one row.
    pub(super) fn push(&mut self, row: &RowSketch) {
        self.norm.push(row.norm);
        self.absmax.push(row.absmax);
        self.projection.extend(row.projection);
        self.nonfinite.push(i64::from(row.nonfinite));
        self.hash.push(row.hash);
    }

    /// Name and tensor of each column.
    pub(super) fn tensors(self) -> impl Iterator<Item = (&'static str, Tensor)> {
        let rows = self.hash.len();
        let tensors = [
            ("hash.v2", Tensor::i64([rows], self.hash)),
            ("norm", Tensor::f32([rows], self.norm)),
            ("absmax", Tensor::f32([rows], self.absmax)),
            ("projection.v2", Tensor::f32([rows, SUMS], self.projection)),
            ("nonfinite", Tensor::i64([rows], self.nonfinite)),
        ];
        tensors.into_iter()
    }
}

impl Part<'_> {
    fn fill(self, values: &[f32], width: usize, shown: impl Fn(&[f32]) -> &[f32]) {
        let sums = self.projection.as_chunks_mut::<SUMS>().0;
        for (i, sums) in sums.iter_mut().enumerate() {
            let row = RowSketch::of(shown(&values[i * width..(i + 1) * width]));
            (self.norm[i], self.absmax[i], *sums) = (row.norm, row.absmax, row.projection);
            (self.nonfinite[i], self.hash[i]) = (i64::from(row.nonfinite), row.hash);
        }
    }
}
