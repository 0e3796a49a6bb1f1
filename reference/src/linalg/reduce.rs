//! Sums along a row.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use super::simd::{Job, dispatch};
use super::simd_chain::{RowsOf, squares};
use super::simd_vector::{Machine, Square};
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
    fn run<M: Machine, const R: usize, const H: usize, const P: usize>(self) {
        let Self { x, width, out } = self;
        let n = out.len();
        let mut r = 0;
        while r + 16 <= n {
            some::<T, M::Half<T>, 2>(&x[r * width..], width, &mut out[r..]);
            r += 16;
        }
        while r + 8 <= n {
            some::<T, M::Half<T>, 1>(&x[r * width..], width, &mut out[r..]);
            r += 8;
        }
        for r in r..n {
            let mut total = 0f64;
            for block in x[r * width..(r + 1) * width].chunks(K_BLOCK) {
                let mut sum = T::ZERO;
                for &v in block {
                    sum = v.fma(v, sum);
                }
                total += sum.wide();
            }
            out[r] = total;
        }
    }
}

#[inline(always)]
fn some<T: Real, V: Square<T>, const G: usize>(x: &[T], width: usize, out: &mut [f64]) {
    let mut rows = [[&x[..0]; 8]; G];
    for (r, row) in rows.as_flattened_mut().iter_mut().enumerate() {
        *row = &x[r * width..(r + 1) * width];
    }
    let mut x = [RowsOf::<T, 8>::new(&rows[0], 0, 0..width); G];
    for g in 1..G {
        x[g] = RowsOf::new(&rows[g], 0, 0..width);
    }
    let mut total = [[0f64; 8]; G];
    let mut k0 = 0;
    while k0 < width {
        let k1 = width.min(k0 + K_BLOCK);
        let sums = squares::<T, V, G>(x, k0..k1);
        for g in 0..G {
            let mut lanes = [T::ZERO; 8];
            sums[g].store(&mut lanes);
            for r in 0..8 {
                total[g][r] += lanes[r].wide();
            }
        }
        k0 = k1;
    }
    out[..8 * G].copy_from_slice(total.as_flattened());
}
