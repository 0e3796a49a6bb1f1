//! The reductions that are no linear: weighted sums of rows, sums of squares, pooling over slots.

use std::marker::PhantomData;

use super::gemm::accumulate;
use super::simd::{Columns, RowDots, Slots, dispatch};
use super::{Isa, LANES, Real};

/// Buffers of a task, reused between its rows.
#[derive(Debug, Default)]
pub(crate) struct Scratch<T> {
    acc: Vec<[f64; LANES]>,
    tail: Vec<[T; LANES]>,
}

/// `out[i,d] = sum over j of a[i][j] * rows[j][d]` for `d < width`, in f64: i rows of coefficients over the same rows.
/// Shapes: a `[m][k]`, rows `[k][width]`, out `[m,width]`.
pub(crate) fn mix_rows<T: Real>(
    isa: Isa,
    a: &[&[T]],
    rows: &[&[T]],
    width: usize,
    out: &mut [f64],
    scratch: &mut Scratch<T>,
) {
    let (m, k) = (a.len(), rows.len());
    assert_eq!(out.len(), m * width, "one sum a coefficient row and column");
    assert!(rows.iter().all(|row| row.len() >= width), "a row is shorter than {width}");
    for first in (0..width).step_by(LANES) {
        scratch.acc.clear();
        scratch.acc.resize(m, [0.0; LANES]);
        let lanes = LANES.min(width - first);
        if lanes == LANES {
            accumulate(isa, a, Columns { rows, first }, k, &mut scratch.acc);
        } else {
            scratch.tail.clear();
            scratch.tail.extend(rows.iter().map(|row| {
                let mut padded = [T::ZERO; LANES];
                padded[..lanes].copy_from_slice(&row[first..first + lanes]);
                padded
            }));
            accumulate(isa, a, scratch.tail.as_slice(), k, &mut scratch.acc);
        }
        for (sums, row) in scratch.acc.iter().zip(out.chunks_exact_mut(width)) {
            row[first..first + lanes].copy_from_slice(&sums[..lanes]);
        }
    }
}

/// Sum of squares of each row of `width` values, in f64.
pub(crate) fn sums_of_squares<T: Real>(isa: Isa, x: &[T], width: usize, out: &mut [f64]) {
    assert_eq!(x.len(), out.len() * width, "one sum a row of {width}");
    let row = |r: usize| {
        let row = &x[r * width..(r + 1) * width];
        (row, row)
    };
    dispatch(isa, RowDots { k: width, row, out, _type: PhantomData });
}

/// `out[r] = x[r,:] . w` for every row of x, rounded once.
pub(crate) fn dot_lanes<T: Real>(isa: Isa, x: &[T], w: &[T], out: &mut [T], sums: &mut Vec<f64>) {
    let width = w.len();
    assert_eq!(x.len(), out.len() * width, "one dot product a row of {width}");
    sums.clear();
    sums.resize(out.len(), 0.0);
    let row = |r: usize| (&x[r * width..(r + 1) * width], w);
    dispatch(isa, RowDots { k: width, row, out: sums.as_mut_slice(), _type: PhantomData });
    for (value, &sum) in out.iter_mut().zip(sums.iter()) {
        *value = T::of(sum);
    }
}

/// `out[d] = sum over slots of p[slot][d] * v[slot][d]`, in f64.
pub(crate) fn pool_slots<T: Real>(isa: Isa, p: &[&[T]], v: &[&[T]], out: &mut [f64], block: &mut [T]) {
    assert_eq!(p.len(), v.len(), "one row of weights a slot");
    dispatch(isa, Slots { p, v, out, block });
}

/// f64 sum of values one by one, from +0.0.
pub(crate) fn ordered_sum<T: Real>(values: impl IntoIterator<Item = T>) -> f64 {
    values.into_iter().fold(0.0, |sum, v| sum + v.wide())
}
