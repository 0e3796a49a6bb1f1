//! Functions of one value at a time, as vector loops.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use super::simd::{Job, dispatch};
use super::simd_vector::Machine;
use super::{Isa, Real};

/// A function of one value. `of` must be `#[inline(always)]`.
pub(crate) trait Function<T> {
    /// Its value at v.
    fn of(&self, v: T) -> T;
}

/// A function of two values. `of` must be `#[inline(always)]`.
pub(crate) trait Function2<T> {
    /// Its value at (a, b).
    fn of(&self, a: T, b: T) -> T;
}

/// `x = f(x)`, in place.
pub(crate) fn map<T: Real>(isa: Isa, x: &mut [T], f: impl Function<T>) {
    dispatch(isa, Map { x, f });
}

/// `a = f(a, b)`, in place.
pub(crate) fn zip_map<T: Real>(isa: Isa, a: &mut [T], b: &[T], f: impl Function2<T>) {
    assert_eq!(a.len(), b.len(), "pairs of values");
    dispatch(isa, ZipMap { a, b, f });
}

struct Map<'a, T, F> {
    x: &'a mut [T],
    f: F,
}

impl<T: Real, F: Function<T>> Job for Map<'_, T, F> {
    #[inline(always)]
    fn run<M: Machine, const R: usize, const H: usize, const P: usize>(self) {
        for v in self.x {
            *v = self.f.of(*v);
        }
    }
}

struct ZipMap<'a, T, F> {
    a: &'a mut [T],
    b: &'a [T],
    f: F,
}

impl<T: Real, F: Function2<T>> Job for ZipMap<'_, T, F> {
    #[inline(always)]
    fn run<M: Machine, const R: usize, const H: usize, const P: usize>(self) {
        let n = self.a.len();
        let (a, b) = (&mut self.a[..n], &self.b[..n]);
        for i in 0..n {
            a[i] = self.f.of(a[i], b[i]);
        }
    }
}
