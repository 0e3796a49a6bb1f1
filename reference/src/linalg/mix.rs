//! Weighted sums of rows: values under attention weights, streams under their coefficients.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use super::simd::{Job, dispatch};
use super::simd_chain::{ColumnsOf, Scattered, Within, chain, short};
use super::simd_vector::{Machine, Vector};
use super::{Isa, K_BLOCK, LANES, Real};

/// Rows of the output in a tall tile.
const TALL: usize = 8;

/// `out[i,d] = sum over j of a[j,i] * rows[j][d]`, divided by `den[i]` in f64 where there is one, rounded once.
/// Shapes: a `[k,m]`, rows `[k][width]`, den `[m]`, out `[m,width]`.
pub(crate) fn mix_rows<T: Real>(isa: Isa, a: &[T], m: usize, rows: &[&[T]], den: Option<&[f64]>, out: &mut [T]) {
    let width = out.len() / m.max(1);
    assert_eq!(a.len(), m * rows.len(), "one coefficient a row and output row");
    assert!(den.is_none_or(|den| den.len() == m), "one denominator an output row");
    dispatch(isa, Mix { a, m, rows: Scattered::new(rows, width), den, out });
}

struct Mix<'a, T> {
    a: &'a [T],
    m: usize,
    rows: Scattered<'a, T>,
    den: Option<&'a [f64]>,
    out: &'a mut [T],
}

impl<T: Real> Job for Mix<'_, T> {
    #[inline(always)]
    fn run<M: Machine, const R: usize, const H: usize, const P: usize>(mut self) {
        let width = self.out.len() / self.m.max(1);
        // Where a tile of two panels fits: three rows of two vectors are too few sums to keep such registers busy.
        let tall = P > 1 && !T::IS_WIDE;
        let mut d = 0;
        if self.m == 1 {
            while d + 4 * LANES <= width {
                self.tile::<M::Panel<T>, 1, 4>(0, d, width);
                d += 4 * LANES;
            }
        }
        while d + 2 * LANES <= width {
            let first = if tall { self.tall::<M::Panel<T>>(d, width) } else { 0 };
            self.columns::<M::Panel<T>, 2>(first, d, width);
            d += 2 * LANES;
        }
        while d + LANES <= width {
            self.columns::<M::Panel<T>, 1>(0, d, width);
            d += LANES;
        }
        while d < width {
            self.columns::<[T; 1], 1>(0, d, width);
            d += 1;
        }
    }
}

impl<T: Real> Mix<'_, T> {
    /// The columns of two vectors, eight rows of the output at a time, and how many rows that were.
    #[inline(always)]
    fn tall<V: Vector<T>>(&mut self, d: usize, width: usize) -> usize {
        let rows = self.m / TALL * TALL;
        for i in (0..rows).step_by(TALL) {
            self.tile::<V, TALL, 2>(i, d, width);
        }
        rows
    }

    /// The columns of P vectors, the rows of the output from `i` on: three at a time, the last four two at a time.
    #[inline(always)]
    fn columns<V: Vector<T>, const P: usize>(&mut self, mut i: usize, d: usize, width: usize) {
        while i < self.m {
            match self.m - i {
                1 => {
                    self.tile::<V, 1, P>(i, d, width);
                    i += 1;
                }
                2 | 4 => {
                    self.tile::<V, 2, P>(i, d, width);
                    i += 2;
                }
                _ => {
                    self.tile::<V, 3, P>(i, d, width);
                    i += 3;
                }
            }
        }
    }

    #[inline(always)]
    fn tile<V: Vector<T>, const R: usize, const P: usize>(&mut self, i: usize, d: usize, width: usize) {
        let a = ColumnsOf::<T, R>::new(self.a, self.m, i);
        let b = Within::<T, P>::new(&self.rows, d, V::LEN);
        let k = self.rows.len();
        if k <= 2 * K_BLOCK && self.den.is_none() {
            let sums = short::<T, V, R, P>(a, b, k);
            for r in 0..R {
                for p in 0..P {
                    sums[r][p].store(&mut self.out[(i + r) * width + d + p * V::LEN..]);
                }
            }
            return;
        }
        let mut total = [[[0f64; LANES]; P]; R];
        let mut k0 = 0;
        while k0 < k {
            let k1 = k.min(k0 + K_BLOCK);
            let sums = chain::<T, V, R, P>(a, b, k0..k1);
            for r in 0..R {
                for p in 0..P {
                    let mut lanes = [T::ZERO; LANES];
                    sums[r][p].store(&mut lanes);
                    for j in 0..V::LEN {
                        total[r][p][j] += lanes[j].wide();
                    }
                }
            }
            k0 = k1;
        }
        for r in 0..R {
            let den = self.den.map_or(1.0, |den| den[i + r]);
            for p in 0..P {
                let out = &mut self.out[(i + r) * width + d + p * V::LEN..][..V::LEN];
                for j in 0..V::LEN {
                    out[j] = T::of(total[r][p][j] / den);
                }
            }
        }
    }
}
