//! The inner loop of every sum of products: one chain of fma an output, outputs side by side.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use std::ops::Range;

use super::{K_BLOCK, LANES, Real};

/// Left operand of a tile: R values at every k, one an output row.
pub(super) trait Left<T, const R: usize>: Copy {
    /// The values at k.
    fn at(&self, k: usize) -> [T; R];
}

/// R rows of K values each, anywhere in memory.
#[derive(Clone, Copy)]
pub(super) struct RowsOf<'a, T, const R: usize>(pub(super) [&'a [T]; R]);

impl<T: Real, const R: usize> Left<T, R> for RowsOf<'_, T, R> {
    #[inline(always)]
    fn at(&self, k: usize) -> [T; R] {
        let mut x = [T::ZERO; R];
        for r in 0..R {
            x[r] = self.0[r][k];
        }
        x
    }
}

/// R columns of a row-major `[K,m]`, the first one with index `first`.
#[derive(Clone, Copy)]
pub(super) struct ColumnsOf<'a, T> {
    pub(super) a: &'a [T],
    pub(super) m: usize,
    pub(super) first: usize,
}

impl<T: Real, const R: usize> Left<T, R> for ColumnsOf<'_, T> {
    #[inline(always)]
    fn at(&self, k: usize) -> [T; R] {
        *self.a[k * self.m + self.first..].first_chunk().expect("R columns are there")
    }
}

/// Right operand of a tile: P times W lanes at every k, one an output column.
pub(super) trait Right<T, const P: usize, const W: usize>: Copy {
    /// The lanes at k.
    fn at(&self, k: usize) -> [&[T; W]; P];
}

/// The first W lanes of P packed panels.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a, T, const P: usize>(pub(super) [&'a [[T; LANES]]; P]);

impl<T: Real, const P: usize, const W: usize> Right<T, P, W> for Panels<'_, T, P> {
    #[inline(always)]
    fn at(&self, k: usize) -> [&[T; W]; P] {
        let mut lanes = [self.0[0][k].first_chunk().expect("W is at most LANES"); P];
        for p in 1..P {
            lanes[p] = self.0[p][k].first_chunk().expect("W is at most LANES");
        }
        lanes
    }
}

/// W columns of K rows that lie anywhere in memory (key rows, streams), the first one with index `first`.
#[derive(Clone, Copy)]
pub(super) struct Within<'a, T> {
    pub(super) rows: &'a [&'a [T]],
    pub(super) first: usize,
}

impl<T: Real, const W: usize> Right<T, 1, W> for Within<'_, T> {
    #[inline(always)]
    fn at(&self, k: usize) -> [&[T; W]; 1] {
        [self.rows[k][self.first..].first_chunk().expect("W columns are there")]
    }
}

/// `sum over ks of a[k] * b[k]` for R rows of P times W outputs: one block of the rule for dot products.
#[inline(always)]
pub(super) fn chain<T: Real, const R: usize, const P: usize, const W: usize>(
    a: impl Left<T, R>,
    b: impl Right<T, P, W>,
    ks: Range<usize>,
) -> [[[T; W]; P]; R] {
    let mut sum = [[[T::ZERO; W]; P]; R];
    for k in ks {
        let (x, lanes) = (a.at(k), b.at(k));
        for r in 0..R {
            for p in 0..P {
                for j in 0..W {
                    sum[r][p][j] = x[r].fma(lanes[p][j], sum[r][p][j]);
                }
            }
        }
    }
    sum
}

/// The whole sum over `0..n`, n at most two blocks, rounded once. No f64 is needed: the sum of two f32 is the same
/// whether it is rounded at once or by way of f64 (53 >= 2 * 24 + 2 bits), and adding +0.0 turns a -0.0 into +0.0 as
/// the f64 accumulator does.
#[inline(always)]
pub(super) fn short<T: Real, const R: usize, const P: usize, const W: usize>(
    a: impl Left<T, R>,
    b: impl Right<T, P, W>,
    n: usize,
) -> [[[T; W]; P]; R] {
    debug_assert!(n <= 2 * K_BLOCK, "f32 is enough for two blocks only");
    let mut sums = chain::<T, R, P, W>(a, b, 0..n.min(K_BLOCK));
    for r in 0..R {
        for p in 0..P {
            for j in 0..W {
                sums[r][p][j] = sums[r][p][j] + T::ZERO;
            }
        }
    }
    if n > K_BLOCK {
        let second = chain::<T, R, P, W>(a, b, K_BLOCK..n);
        for r in 0..R {
            for p in 0..P {
                for j in 0..W {
                    sums[r][p][j] = sums[r][p][j] + second[r][p][j];
                }
            }
        }
    }
    sums
}
