//! Sums along a row.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use super::simd::{Job, dispatch};
use super::{Isa, K_BLOCK, Real};

/// Sum of squares of each row of `width` values, in f64.
pub(crate) fn sums_of_squares<T: Real>(isa: Isa, x: &[T], width: usize, out: &mut [f64]) {
    assert_eq!(x.len(), out.len() * width, "one sum a row of {width}");
    dispatch(isa, Squares { x, width, out });
}

/// f64 sum of values one by one, from +0.0.
pub(crate) fn ordered_sum<T: Real>(values: impl IntoIterator<Item = T>) -> f64 {
    values.into_iter().fold(0.0, |sum, v| sum + v.wide())
}

/// Rows run side by side: the chain of one row can't be split.
struct Squares<'a, T> {
    x: &'a [T],
    width: usize,
    out: &'a mut [f64],
}

impl<T: Real> Job for Squares<'_, T> {
    #[inline(always)]
    fn run<const R: usize, const H: usize>(self) {
        let Self { x, width, out } = self;
        let mut r = 0;
        while r + 8 <= out.len() {
            side_by_side::<T, 8>(&x[r * width..], width, &mut out[r..]);
            r += 8;
        }
        while r < out.len() {
            side_by_side::<T, 1>(&x[r * width..], width, &mut out[r..]);
            r += 1;
        }
    }
}

#[inline(always)]
fn side_by_side<T: Real, const R: usize>(x: &[T], width: usize, out: &mut [f64]) {
    let mut total = [0f64; R];
    let mut k0 = 0;
    while k0 < width {
        let k1 = width.min(k0 + K_BLOCK);
        let mut rows: [&[T]; R] = [&[]; R];
        for r in 0..R {
            rows[r] = &x[r * width..][k0..k1];
        }
        let mut sum = [T::ZERO; R];
        for i in 0..k1 - k0 {
            for r in 0..R {
                let v = rows[r][i];
                sum[r] = v.fma(v, sum[r]);
            }
        }
        for r in 0..R {
            total[r] += sum[r].wide();
        }
        k0 = k1;
    }
    out[..R].copy_from_slice(&total);
}
