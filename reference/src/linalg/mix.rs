//! Weighted sums of rows: values under attention weights, streams under their coefficients.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use super::chain::{ColumnsOf, Within, chain, short};
use super::simd::{Job, dispatch};
use super::{Isa, K_BLOCK, LANES, Real};

/// `out[i,d] = sum over j of a[j,i] * rows[j][d]`, divided by `den[i]` in f64 where there is one, rounded once.
/// Shapes: a `[k,m]`, rows `[k][width]`, den `[m]`, out `[m,width]`.
pub(crate) fn mix_rows<T: Real>(isa: Isa, a: &[T], m: usize, rows: &[&[T]], den: Option<&[f64]>, out: &mut [T]) {
    let width = out.len() / m.max(1);
    assert_eq!(a.len(), m * rows.len(), "one coefficient a row and output row");
    assert!(rows.iter().all(|row| row.len() == width), "a row does not have {width} values");
    assert!(den.is_none_or(|den| den.len() == m), "one denominator an output row");
    dispatch(isa, Mix { a, m, rows, den, out });
}

struct Mix<'a, T> {
    a: &'a [T],
    m: usize,
    rows: &'a [&'a [T]],
    den: Option<&'a [f64]>,
    out: &'a mut [T],
}

impl<T: Real> Job for Mix<'_, T> {
    #[inline(always)]
    fn run<const R: usize, const H: usize>(mut self) {
        let width = self.out.len() / self.m.max(1);
        let mut d = 0;
        if self.m == 1 {
            while d + 4 * LANES <= width {
                self.tile::<1, { 4 * LANES }>(0, d, width);
                d += 4 * LANES;
            }
        }
        while d + LANES <= width {
            self.panel::<LANES>(d, width);
            d += LANES;
        }
        while d < width {
            self.panel::<1>(d, width);
            d += 1;
        }
    }
}

impl<T: Real> Mix<'_, T> {
    #[inline(always)]
    fn panel<const W: usize>(&mut self, d: usize, width: usize) {
        let mut i = 0;
        while i + 4 <= self.m {
            self.tile::<4, W>(i, d, width);
            i += 4;
        }
        while i < self.m {
            self.tile::<1, W>(i, d, width);
            i += 1;
        }
    }

    #[inline(always)]
    fn tile<const R: usize, const W: usize>(&mut self, i: usize, d: usize, width: usize) {
        let a = ColumnsOf { a: self.a, m: self.m, first: i };
        let b = Within { rows: self.rows, first: d };
        let k = self.rows.len();
        if k <= 2 * K_BLOCK && self.den.is_none() {
            let sums = short::<T, R, 1, W>(a, b, k);
            for r in 0..R {
                *self.place(i + r, d, width) = sums[r][0];
            }
            return;
        }
        let mut total = [[0f64; W]; R];
        let mut k0 = 0;
        while k0 < k {
            let k1 = k.min(k0 + K_BLOCK);
            let sums = chain::<T, R, 1, W>(a, b, k0..k1);
            for r in 0..R {
                for j in 0..W {
                    total[r][j] += sums[r][0][j].wide();
                }
            }
            k0 = k1;
        }
        for r in 0..R {
            let den = self.den.map_or(1.0, |den| den[i + r]);
            let out: &mut [T; W] = self.place(i + r, d, width);
            for j in 0..W {
                out[j] = T::of(total[r][j] / den);
            }
        }
    }

    #[inline(always)]
    fn place<const W: usize>(&mut self, i: usize, d: usize, width: usize) -> &mut [T; W] {
        self.out[i * width + d..].first_chunk_mut().expect("W columns are there")
    }
}
