//! Registers: a panel's LANES values, half as many, or one. The products of sums are written on these, because their
//! accumulators must stay in registers; all other loops are plain Rust that the compiler turns into vector loops.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256, __m512, _MM_HINT_T0, _mm_prefetch, _mm256_add_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_permute2f128_ps,
    _mm256_set1_ps, _mm256_shuffle_ps, _mm256_storeu_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps, _mm512_add_ps,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_storeu_ps,
};

use super::simd_bits::Bits;
use super::{LANES, Real};

/// Some values side by side. Those of an instruction set may be used only inside a `Job` that runs on it: this is why
/// nothing but `Machine` names them.
pub trait Vector<T>: Copy {
    /// How many.
    const LEN: usize;
    /// The same value everywhere.
    fn splat(v: T) -> Self;
    /// `LEN` values from memory.
    ///
    /// # Safety
    /// `from` points to at least `LEN` values.
    unsafe fn load(from: *const T) -> Self;
    /// Writes the first `LEN` places of `to`.
    fn store(self, to: &mut [T]);
    /// `self * b + c`, rounded once.
    fn fma(self, b: Self, c: Self) -> Self;
    /// `self + b`.
    fn add(self, b: Self) -> Self;
    /// Says that the cache line at `from` will be read soon. Any address will do.
    #[inline(always)]
    fn fetch(_from: *const T) {}
}

/// Vectors of which eight are a square.
pub trait Square<T>: Vector<T> {
    /// Rows to columns.
    fn transpose(rows: [Self; 8]) -> [Self; 8];
}

impl<T: Real> Square<T> for [T; 8] {
    #[inline(always)]
    fn transpose(rows: [Self; 8]) -> [Self; 8] {
        let mut columns = rows;
        for r in 0..8 {
            for k in 0..8 {
                columns[k][r] = rows[r][k];
            }
        }
        columns
    }
}

#[cfg(target_arch = "x86_64")]
impl Square<f32> for __m256 {
    #[inline(always)]
    fn transpose(r: [Self; 8]) -> [Self; 8] {
        // SAFETY: inside a job that runs on AVX2.
        unsafe {
            // Pairs of rows, then fours, then halves.
            let t = [
                _mm256_unpacklo_ps(r[0], r[1]),
                _mm256_unpackhi_ps(r[0], r[1]),
                _mm256_unpacklo_ps(r[2], r[3]),
                _mm256_unpackhi_ps(r[2], r[3]),
                _mm256_unpacklo_ps(r[4], r[5]),
                _mm256_unpackhi_ps(r[4], r[5]),
                _mm256_unpacklo_ps(r[6], r[7]),
                _mm256_unpackhi_ps(r[6], r[7]),
            ];
            let u = [
                _mm256_shuffle_ps::<0x44>(t[0], t[2]),
                _mm256_shuffle_ps::<0xEE>(t[0], t[2]),
                _mm256_shuffle_ps::<0x44>(t[1], t[3]),
                _mm256_shuffle_ps::<0xEE>(t[1], t[3]),
                _mm256_shuffle_ps::<0x44>(t[4], t[6]),
                _mm256_shuffle_ps::<0xEE>(t[4], t[6]),
                _mm256_shuffle_ps::<0x44>(t[5], t[7]),
                _mm256_shuffle_ps::<0xEE>(t[5], t[7]),
            ];
            [
                _mm256_permute2f128_ps::<0x20>(u[0], u[4]),
                _mm256_permute2f128_ps::<0x20>(u[1], u[5]),
                _mm256_permute2f128_ps::<0x20>(u[2], u[6]),
                _mm256_permute2f128_ps::<0x20>(u[3], u[7]),
                _mm256_permute2f128_ps::<0x31>(u[0], u[4]),
                _mm256_permute2f128_ps::<0x31>(u[1], u[5]),
                _mm256_permute2f128_ps::<0x31>(u[2], u[6]),
                _mm256_permute2f128_ps::<0x31>(u[3], u[7]),
            ]
        }
    }
}

/// The registers of an instruction set.
pub(crate) trait Machine {
    /// Whether its loops are this processor's own: worth many shapes of tiles.
    const IS_FAST: bool;
    /// LANES values of T.
    type Panel<T: Real>: Vector<T>;
    /// Half of LANES values of T.
    type Half<T: Real>: Square<T>;
    /// LANES f32 values, or as many words.
    type Single: Bits;
}

/// Plain arrays, for any processor.
pub(crate) struct Plain;

impl Machine for Plain {
    const IS_FAST: bool = !cfg!(target_arch = "x86_64");
    type Panel<T: Real> = [T; LANES];
    type Half<T: Real> = [T; LANES / 2];
    type Single = [f32; LANES];
}

impl<T: Real, const N: usize> Vector<T> for [T; N] {
    const LEN: usize = N;

    #[inline(always)]
    fn splat(v: T) -> Self {
        [v; N]
    }
    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<Self>().read_unaligned() }
    }
    #[inline(always)]
    fn store(self, to: &mut [T]) {
        to[..N].copy_from_slice(&self);
    }
    #[inline(always)]
    fn fma(self, b: Self, mut c: Self) -> Self {
        for j in 0..N {
            c[j] = self[j].fma(b[j], c[j]);
        }
        c
    }
    #[inline(always)]
    fn add(mut self, b: Self) -> Self {
        for j in 0..N {
            self[j] = self[j] + b[j];
        }
        self
    }
}

/// AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Machine for Avx2 {
    const IS_FAST: bool = true;
    type Panel<T: Real> = T::Avx2Panel;
    type Half<T: Real> = T::Avx2Half;
    type Single = Pair<__m256>;
}

/// AVX-512F.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Avx512;

#[cfg(target_arch = "x86_64")]
impl Machine for Avx512 {
    const IS_FAST: bool = true;
    type Panel<T: Real> = T::Avx512Panel;
    type Half<T: Real> = T::Avx2Half;
    type Single = __m512;
}

/// Two vectors side by side.
#[derive(Clone, Copy)]
pub struct Pair<V>(pub(super) V, pub(super) V);

impl<T, V: Vector<T>> Vector<T> for Pair<V> {
    const LEN: usize = 2 * V::LEN;

    #[inline(always)]
    fn splat(v: T) -> Self {
        let v = V::splat(v);
        Self(v, v)
    }
    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller promises twice as many values as one of the two takes.
        unsafe { Self(V::load(from), V::load(from.add(V::LEN))) }
    }
    #[inline(always)]
    fn store(self, to: &mut [T]) {
        let (first, second) = to.split_at_mut(V::LEN);
        self.0.store(first);
        self.1.store(second);
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        Self(self.0.fma(b.0, c.0), self.1.fma(b.1, c.1))
    }
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        Self(self.0.add(b.0), self.1.add(b.1))
    }
    #[inline(always)]
    fn fetch(from: *const T) {
        V::fetch(from);
    }
}

#[cfg(target_arch = "x86_64")]
impl Vector<f32> for __m256 {
    const LEN: usize = 8;

    #[inline(always)]
    fn splat(v: f32) -> Self {
        // SAFETY: inside a job that runs on AVX2.
        unsafe { _mm256_set1_ps(v) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: inside a job that runs on AVX2; the pointer is the caller's promise.
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        assert!(to.len() >= 8, "room for a vector");
        // SAFETY: inside a job that runs on AVX2; the room was just checked.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), self) }
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: inside a job that runs on AVX2 and FMA.
        unsafe { _mm256_fmadd_ps(self, b, c) }
    }
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        // SAFETY: inside a job that runs on AVX2.
        unsafe { _mm256_add_ps(self, b) }
    }
    #[inline(always)]
    fn fetch(from: *const f32) {
        // SAFETY: a hint, which faults nowhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }
}

#[cfg(target_arch = "x86_64")]
impl Vector<f32> for __m512 {
    const LEN: usize = 16;

    #[inline(always)]
    fn splat(v: f32) -> Self {
        // SAFETY: inside a job that runs on AVX-512F.
        unsafe { _mm512_set1_ps(v) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: inside a job that runs on AVX-512F; the pointer is the caller's promise.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        assert!(to.len() >= 16, "room for a vector");
        // SAFETY: inside a job that runs on AVX-512F; the room was just checked.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), self) }
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: inside a job that runs on AVX-512F.
        unsafe { _mm512_fmadd_ps(self, b, c) }
    }
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        // SAFETY: inside a job that runs on AVX-512F.
        unsafe { _mm512_add_ps(self, b) }
    }
    #[inline(always)]
    fn fetch(from: *const f32) {
        // SAFETY: a hint, which faults nowhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }
}
