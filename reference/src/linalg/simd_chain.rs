//! The inner loop of every sum of products: one chain of fma an output, outputs side by side in registers. Operands
//! check their bounds when they are made, the loop doesn't.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use std::ops::Range;

use super::simd_vector::{Square, Vector};
use super::{K_BLOCK, LANES, Packed, Real};

/// Left operand of a tile: one value an output row at every k.
pub(super) trait Left<T, const R: usize>: Copy {
    /// Inputs.
    fn len(&self) -> usize;
    /// The value of row r at k.
    ///
    /// # Safety
    /// `r < R` and `k < len()`.
    unsafe fn at(&self, r: usize, k: usize) -> T;
}

/// R rows of as many values each, anywhere in memory.
#[derive(Clone, Copy)]
pub(super) struct RowsOf<'a, T, const R: usize> {
    rows: [&'a [T]; R],
    n: usize,
}

impl<'a, T, const R: usize> RowsOf<'a, T, R> {
    /// Values `ks` of rows `r0..r0+R`.
    #[inline(always)]
    pub(super) fn new(rows: &[&'a [T]], r0: usize, ks: Range<usize>) -> Self {
        let n = ks.len();
        let mut out: [&[T]; R] = [&[]; R];
        for r in 0..R {
            out[r] = &rows[r0 + r][ks.clone()];
        }
        Self { rows: out, n }
    }
}

impl<T: Real, const R: usize> Left<T, R> for RowsOf<'_, T, R> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.n
    }
    #[inline(always)]
    unsafe fn at(&self, r: usize, k: usize) -> T {
        // SAFETY: every row has n values, and the caller stays below.
        unsafe { *self.rows[r].get_unchecked(k) }
    }
}

/// R rows that begin S values apart: one address tells where they all are.
#[derive(Clone, Copy)]
pub(super) struct Spaced<'a, T, const R: usize, const S: usize> {
    rows: &'a [T],
    n: usize,
}

impl<'a, T, const R: usize, const S: usize> Spaced<'a, T, R, S> {
    /// The first `n` values of each; the first row is at the start of `rows`.
    #[inline(always)]
    pub(super) fn new(rows: &'a [T], n: usize) -> Self {
        assert!(n <= S && rows.len() >= R * S, "R rows are there");
        Self { rows, n }
    }
}

impl<T: Real, const R: usize, const S: usize> Left<T, R> for Spaced<'_, T, R, S> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.n
    }
    #[inline(always)]
    unsafe fn at(&self, r: usize, k: usize) -> T {
        // SAFETY: r < R and k < n <= S, so the index is below R * S.
        unsafe { *self.rows.get_unchecked(r * S + k) }
    }
}

/// R columns of a row-major `[K,m]`.
#[derive(Clone, Copy)]
pub(super) struct ColumnsOf<'a, T, const R: usize> {
    a: &'a [T],
    m: usize,
    first: usize,
    n: usize,
}

impl<'a, T, const R: usize> ColumnsOf<'a, T, R> {
    /// Columns `first..first+R` of `m`.
    #[inline(always)]
    pub(super) fn new(a: &'a [T], m: usize, first: usize) -> Self {
        assert!(first + R <= m, "R columns are there");
        Self { a, m, first, n: a.len() / m }
    }
}

impl<T: Real, const R: usize> Left<T, R> for ColumnsOf<'_, T, R> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.n
    }
    #[inline(always)]
    unsafe fn at(&self, r: usize, k: usize) -> T {
        // SAFETY: k < n and first + r < m, so the index is below n * m.
        unsafe { *self.a.get_unchecked(k * self.m + self.first + r) }
    }
}

/// Right operand of a tile: P vectors at every k, one lane an output column.
pub(super) trait Right<T, const P: usize>: Copy {
    /// Inputs.
    fn len(&self) -> usize;
    /// Values that can be read at every k and p.
    fn width(&self) -> usize;
    /// Vector p at k: `width()` values.
    ///
    /// # Safety
    /// `p < P` and `k < len()`.
    unsafe fn at(&self, p: usize, k: usize) -> *const T;
}

/// P packed panels.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a, T, const P: usize> {
    panels: [&'a [[T; LANES]]; P],
    n: usize,
}

impl<'a, T: Real, const P: usize> Panels<'a, T, P> {
    /// Inputs `ks` of panels `p0..p0+P`.
    #[inline(always)]
    pub(super) fn new(w: &'a Packed<T>, p0: usize, ks: Range<usize>) -> Self {
        let n = ks.len();
        let mut panels: [&[[T; LANES]]; P] = [&[]; P];
        for p in 0..P {
            panels[p] = &w.panel(p0 + p)[ks.clone()];
        }
        Self { panels, n }
    }
}

impl<T: Real, const P: usize> Right<T, P> for Panels<'_, T, P> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.n
    }
    #[inline(always)]
    fn width(&self) -> usize {
        LANES
    }
    #[inline(always)]
    unsafe fn at(&self, p: usize, k: usize) -> *const T {
        // SAFETY: every panel has n inputs, and the caller stays below.
        unsafe { self.panels[p].get_unchecked(k).as_ptr() }
    }
}

/// Rows that lie anywhere in memory and have `width` values each (key rows, streams).
#[derive(Clone, Copy)]
pub(super) struct Scattered<'a, T> {
    rows: &'a [&'a [T]],
    width: usize,
}

impl<'a, T> Scattered<'a, T> {
    /// Checks the rows.
    pub(super) fn new(rows: &'a [&'a [T]], width: usize) -> Self {
        assert!(rows.iter().all(|row| row.len() == width), "a row does not have {width} values");
        Self { rows, width }
    }

    /// Inputs.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }
}

/// P vectors side by side in scattered rows.
#[derive(Clone, Copy)]
pub(super) struct Within<'a, T, const P: usize> {
    rows: &'a [&'a [T]],
    first: usize,
    lanes: usize,
}

impl<'a, T, const P: usize> Within<'a, T, P> {
    /// P times `lanes` columns from `first` on.
    #[inline(always)]
    pub(super) fn new(rows: &Scattered<'a, T>, first: usize, lanes: usize) -> Self {
        assert!(first + P * lanes <= rows.width, "the columns are there");
        Self { rows: rows.rows, first, lanes }
    }
}

impl<T: Real, const P: usize> Right<T, P> for Within<'_, T, P> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.rows.len()
    }
    #[inline(always)]
    fn width(&self) -> usize {
        self.lanes
    }
    #[inline(always)]
    unsafe fn at(&self, p: usize, k: usize) -> *const T {
        // SAFETY: k is below the rows, and every row has first + P * lanes values.
        unsafe { self.rows.get_unchecked(k).as_ptr().add(self.first + p * self.lanes) }
    }
}

/// `sum over ks of a[k] * b[k]` for R rows of P vectors of outputs: one block of the rule for dot products.
#[inline(always)]
pub(super) fn chain<T: Real, V: Vector<T>, const R: usize, const P: usize>(
    a: impl Left<T, R>,
    b: impl Right<T, P>,
    ks: Range<usize>,
) -> [[V; P]; R] {
    assert!(ks.end <= a.len() && ks.end <= b.len() && V::LEN <= b.width(), "operands are shorter than the sum");
    let mut sum = [[V::splat(T::ZERO); P]; R];
    for k in ks {
        // SAFETY: k is below both lengths and V is no wider than b, as asserted.
        unsafe { step(a, b, k, &mut sum) };
    }
    sum
}

/// As [`chain`], over `0..n`; every fourth step fetches a line, from `ahead` on.
#[inline(always)]
pub(super) fn chain_ahead<T: Real, V: Vector<T>, const R: usize, const P: usize>(
    a: impl Left<T, R>,
    b: impl Right<T, P>,
    n: usize,
    ahead: *const [T; LANES],
) -> [[V; P]; R] {
    assert!(n <= a.len() && n <= b.len() && V::LEN <= b.width(), "operands are shorter than the sum");
    let mut sum = [[V::splat(T::ZERO); P]; R];
    let fours = n / 4;
    for i in 0..fours {
        V::fetch(ahead.wrapping_add(i).cast());
        for k in 0..4 {
            // SAFETY: 4 * i + k is below n and so below both lengths; V is no wider than b, as asserted.
            unsafe { step(a, b, 4 * i + k, &mut sum) };
        }
    }
    for k in 4 * fours..n {
        // SAFETY: as above.
        unsafe { step(a, b, k, &mut sum) };
    }
    sum
}

/// One input.
///
/// # Safety
/// `k` is below both lengths and V is no wider than b.
#[inline(always)]
unsafe fn step<T: Real, V: Vector<T>, const R: usize, const P: usize>(
    a: impl Left<T, R>,
    b: impl Right<T, P>,
    k: usize,
    sum: &mut [[V; P]; R],
) {
    let mut lanes = [V::splat(T::ZERO); P];
    for p in 0..P {
        // SAFETY: p < P; the rest is the caller's promise.
        lanes[p] = unsafe { V::load(b.at(p, k)) };
    }
    for r in 0..R {
        // SAFETY: r < R; the rest is the caller's promise.
        let x = V::splat(unsafe { a.at(r, k) });
        for p in 0..P {
            sum[r][p] = x.fma(lanes[p], sum[r][p]);
        }
    }
}

/// The whole sum over `0..n`, n at most two blocks, rounded once. No f64 is needed: the sum of two f32 is the same
/// whether it is rounded at once or by way of f64 (53 >= 2 * 24 + 2 bits), and adding +0.0 turns a -0.0 into +0.0 as
/// the f64 accumulator does.
#[inline(always)]
pub(super) fn short<T: Real, V: Vector<T>, const R: usize, const P: usize>(
    a: impl Left<T, R>,
    b: impl Right<T, P>,
    n: usize,
) -> [[V; P]; R] {
    debug_assert!(n <= 2 * K_BLOCK, "f32 is enough for two blocks only");
    let mut sums = chain::<T, V, R, P>(a, b, 0..n.min(K_BLOCK));
    let zero = V::splat(T::ZERO);
    for r in 0..R {
        for p in 0..P {
            sums[r][p] = sums[r][p].add(zero);
        }
    }
    if n > K_BLOCK {
        let second = chain::<T, V, R, P>(a, b, K_BLOCK..n);
        for r in 0..R {
            for p in 0..P {
                sums[r][p] = sums[r][p].add(second[r][p]);
            }
        }
    }
    sums
}

/// `sum over ks of x[k]^2` of each of G times 8 rows, rows side by side: eight inputs of eight rows at a time become
/// eight vectors across rows, which join the chains in ascending order.
#[inline(always)]
pub(super) fn squares<T: Real, V: Square<T>, const G: usize>(x: [RowsOf<'_, T, 8>; G], ks: Range<usize>) -> [V; G] {
    for rows in &x {
        assert!(ks.end <= rows.n && V::LEN == 8, "rows are shorter than the sum");
    }
    let mut sum = [V::splat(T::ZERO); G];
    let mut k = ks.start;
    while k + 8 <= ks.end {
        for g in 0..G {
            let mut block = [V::splat(T::ZERO); 8];
            for r in 0..8 {
                // SAFETY: k + 8 is at most the row's length, as asserted.
                block[r] = unsafe { V::load(x[g].rows[r].as_ptr().add(k)) };
            }
            let columns = V::transpose(block);
            for i in 0..8 {
                sum[g] = columns[i].fma(columns[i], sum[g]);
            }
        }
        k += 8;
    }
    for k in k..ks.end {
        for g in 0..G {
            let mut column = [T::ZERO; 8];
            for r in 0..8 {
                column[r] = x[g].rows[r][k];
            }
            // SAFETY: V has 8 values.
            let column = unsafe { V::load(column.as_ptr()) };
            sum[g] = column.fma(column, sum[g]);
        }
    }
    sum
}
