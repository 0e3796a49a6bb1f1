//! Softmax weights: exponentials of what lies below the maximum, and their f64 sums.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use super::simd::{Job, dispatch};
use super::simd_vector::Machine;
use super::{Isa, K_BLOCK, Real};

/// Columns that are reduced side by side.
const SIDE: usize = 8;

/// Softmax weights down each column of `[n,m]` scores, in place: `s * scale`, then `exp(s - max)`, `max` per column.
/// Where a column is -inf throughout, its `sink` is the maximum. `den` `[m]` is the f64 sum of a column's weights in
/// row order, then of `exp(sink - max)`.
pub(crate) struct SinkSoftmax<'a, T> {
    /// `[n,m]`: scores, then weights.
    pub(crate) scores: &'a mut [T],
    /// Factor of every score.
    pub(crate) scale: T,
    /// `[m]`
    pub(crate) sink: &'a [T],
    /// `[m]`, out.
    pub(crate) max: &'a mut [T],
    /// `[m]`, out.
    pub(crate) den: &'a mut [f64],
}

impl<T: Real> SinkSoftmax<'_, T> {
    /// Runs it on the instruction set.
    pub(crate) fn run_on(self, isa: Isa) {
        let m = self.sink.len();
        assert!(self.max.len() == m && self.den.len() == m && self.scores.len().is_multiple_of(m), "m columns each");
        dispatch(isa, self);
    }

    #[inline(always)]
    fn below_max<const W: usize>(&mut self, h: usize) {
        let m = self.sink.len();
        let mut max = [T::NEG_INFINITY; W];
        for row in self.scores.chunks_exact_mut(m) {
            let row: &mut [T; W] = row[h..].first_chunk_mut().expect("W columns are there");
            for j in 0..W {
                row[j] = row[j] * self.scale;
                if row[j] > max[j] {
                    max[j] = row[j];
                }
            }
        }
        for j in 0..W {
            if max[j] == T::NEG_INFINITY {
                max[j] = self.sink[h + j];
            }
        }
        for row in self.scores.chunks_exact_mut(m) {
            let row: &mut [T; W] = row[h..].first_chunk_mut().expect("W columns are there");
            for j in 0..W {
                row[j] = row[j] - max[j];
            }
        }
        self.max[h..h + W].copy_from_slice(&max);
    }

    #[inline(always)]
    fn sums<const W: usize>(&mut self, h: usize) {
        let mut den = [0f64; W];
        for row in self.scores.chunks_exact(self.sink.len()) {
            let row: &[T; W] = row[h..].first_chunk().expect("W columns are there");
            for j in 0..W {
                den[j] += row[j].wide();
            }
        }
        for j in 0..W {
            self.den[h + j] = den[j] + (self.sink[h + j] - self.max[h + j]).exp().wide();
        }
    }
}

impl<T: Real> Job for SinkSoftmax<'_, T> {
    #[inline(always)]
    fn run<M: Machine, const R: usize, const H: usize, const P: usize>(mut self) {
        let m = self.sink.len();
        let whole = m / SIDE * SIDE;
        for h in (0..whole).step_by(SIDE) {
            self.below_max::<SIDE>(h);
        }
        for h in whole..m {
            self.below_max::<1>(h);
        }
        for v in self.scores.iter_mut() {
            *v = v.exp();
        }
        for h in (0..whole).step_by(SIDE) {
            self.sums::<SIDE>(h);
        }
        for h in whole..m {
            self.sums::<1>(h);
        }
    }
}

/// Buffers of [`pool_slots`], reused between calls.
#[derive(Debug, Default)]
pub(crate) struct PoolBuffers<T> {
    max: Vec<T>,
    p: Vec<T>,
    block: Vec<T>,
    den: Vec<f64>,
    num: Vec<f64>,
}

/// `out[d] = sum_i softmax_i(scores[i][d]) * values[i][d]`: one softmax over the slots for every channel.
/// Shapes: scores and values `[slots][width]`, out `[width]`.
pub(crate) fn pool_slots<T: Real>(
    isa: Isa,
    scores: &[&[T]],
    values: &[&[T]],
    out: &mut [T],
    buffers: &mut PoolBuffers<T>,
) {
    assert_eq!(scores.len(), values.len(), "one row of scores a slot");
    let width = out.len();
    let PoolBuffers { max, p, block, den, num } = buffers;
    for (buffer, start, n) in
        [(&mut *max, T::NEG_INFINITY, width), (&mut *block, T::ZERO, width), (&mut *p, T::ZERO, width * scores.len())]
    {
        buffer.clear();
        buffer.resize(n, start);
    }
    for buffer in [&mut *den, &mut *num] {
        buffer.clear();
        buffer.resize(width, 0.0);
    }
    dispatch(isa, Slots { scores, values, out, max, p, block, den, num });
}

struct Slots<'a, T> {
    scores: &'a [&'a [T]],
    values: &'a [&'a [T]],
    out: &'a mut [T],
    max: &'a mut [T],
    p: &'a mut [T],
    block: &'a mut [T],
    den: &'a mut [f64],
    num: &'a mut [f64],
}

impl<T: Real> Job for Slots<'_, T> {
    #[inline(always)]
    fn run<M: Machine, const R: usize, const H: usize, const P: usize>(self) {
        let Self { scores, values, out, max, p, block, den, num } = self;
        let width = out.len();
        let (max, block) = (&mut max[..width], &mut block[..width]);
        let (den, num) = (&mut den[..width], &mut num[..width]);
        for row in scores {
            let row = &row[..width];
            for d in 0..width {
                max[d] = if row[d] > max[d] { row[d] } else { max[d] };
            }
        }
        for (p, row) in p.chunks_exact_mut(width).zip(scores) {
            let (p, row) = (&mut p[..width], &row[..width]);
            for d in 0..width {
                p[d] = (row[d] - max[d]).exp();
                den[d] += p[d].wide();
            }
        }
        for (p, values) in p.chunks(width * K_BLOCK).zip(values.chunks(K_BLOCK)) {
            block.fill(T::ZERO);
            for (p, row) in p.chunks_exact(width).zip(values) {
                let (p, row) = (&p[..width], &row[..width]);
                for d in 0..width {
                    block[d] = p[d].fma(row[d], block[d]);
                }
            }
            for d in 0..width {
                num[d] += block[d].wide();
            }
        }
        for d in 0..width {
            out[d] = T::of(num[d] / den[d]);
        }
    }
}
