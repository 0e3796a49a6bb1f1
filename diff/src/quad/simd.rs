//! Four f64 values in one AVX2 register.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller")]

use std::arch::x86_64::{
    __m256d, _CMP_EQ_OQ, _MM_HINT_T0, _mm_add_epi32, _mm_cvtsi128_si32, _mm_loadu_ps, _mm_packs_epi32,
    _mm_packus_epi16, _mm_prefetch, _mm_set1_epi32, _mm256_add_epi32, _mm256_add_pd, _mm256_and_pd, _mm256_andnot_pd,
    _mm256_castpd_si256, _mm256_castsi256_si128, _mm256_cmp_pd, _mm256_cvtps_pd, _mm256_fmadd_pd, _mm256_loadu_pd,
    _mm256_max_pd, _mm256_movemask_pd, _mm256_mul_pd, _mm256_permutevar8x32_epi32, _mm256_set1_pd, _mm256_setr_epi32,
    _mm256_srai_epi32, _mm256_storeu_pd, _mm256_sub_epi32, _mm256_sub_epi64, _mm256_sub_pd, _mm256_xor_pd,
};

use super::{KEY_ZERO, LANES, Quad};

/// Used only in functions that are compiled for AVX2 and FMA and called where the processor has them; that is what makes
/// every intrinsic below sound.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256d);

impl Quad for Avx2 {
    const HALVES: usize = 2;

    #[inline(always)]
    fn splat(value: f64) -> Self {
        // SAFETY: see `Avx2`.
        Self(unsafe { _mm256_set1_pd(value) })
    }

    #[inline(always)]
    fn load(values: &[f64; LANES], half: usize) -> Self {
        let values = &values.as_chunks::<4>().0[half];
        // SAFETY: see `Avx2`; the pointer is to four values, and no alignment is asked for.
        Self(unsafe { _mm256_loadu_pd(values.as_ptr()) })
    }

    #[inline(always)]
    fn widen(values: &[f32; LANES], half: usize) -> Self {
        let values = &values.as_chunks::<4>().0[half];
        // SAFETY: see `Avx2`; the pointer is to four values, and no alignment is asked for.
        Self(unsafe { _mm256_cvtps_pd(_mm_loadu_ps(values.as_ptr())) })
    }

    #[inline(always)]
    fn store(self, to: &mut [f64; LANES], half: usize) {
        let to = &mut to.as_chunks_mut::<4>().0[half];
        // SAFETY: see `Avx2`; `to` has room for four values.
        unsafe { _mm256_storeu_pd(to.as_mut_ptr(), self.0) };
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: see `Avx2`.
        Self(unsafe { _mm256_add_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        // SAFETY: see `Avx2`.
        Self(unsafe { _mm256_sub_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: see `Avx2`.
        Self(unsafe { _mm256_mul_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn plus_exact(self, a: Self, b: Self) -> Self {
        // SAFETY: see `Avx2`.
        Self(unsafe { _mm256_fmadd_pd(a.0, b.0, self.0) })
    }

    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: see `Avx2`.
        Self(unsafe { _mm256_andnot_pd(_mm256_set1_pd(-0.0), self.0) })
    }

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        // SAFETY: see `Avx2`.
        Self(unsafe { _mm256_max_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn signed_by(self, other: Self) -> Self {
        // SAFETY: see `Avx2`.
        Self(unsafe { _mm256_xor_pd(self.0, _mm256_and_pd(other.0, _mm256_set1_pd(-0.0))) })
    }

    #[inline(always)]
    fn holds(self, value: f64) -> bool {
        // SAFETY: see `Avx2`.
        unsafe { _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_EQ_OQ>(self.0, _mm256_set1_pd(value))) != 0 }
    }

    #[inline(always)]
    fn fetch<T>(values: &[T]) {
        let step = (64 / size_of::<T>().max(1)).max(1);
        for line in values.iter().step_by(step) {
            // SAFETY: a hint; the pointer is to a value.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast()) };
        }
    }

    #[inline(always)]
    fn keys(self, other: Self, to: &mut [u8; LANES], half: usize) {
        // SAFETY: see `Avx2`.
        let four = unsafe {
            let (d, x) = (_mm256_castpd_si256(self.abs().0), _mm256_castpd_si256(other.abs().0));
            // The upper halves of the four 64-bit lanes hold the exponents; see `Plain::keys`.
            let r = _mm256_srai_epi32::<20>(_mm256_sub_epi64(d, x));
            let e = _mm256_sub_epi32(_mm256_srai_epi32::<20>(d), _mm256_srai_epi32::<20>(x));
            let upper = _mm256_setr_epi32(1, 3, 5, 7, 1, 3, 5, 7);
            let keys = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(_mm256_add_epi32(e, r), upper));
            // Narrowing holds them to 0..=255.
            let keys = _mm_packs_epi32(_mm_add_epi32(keys, _mm_set1_epi32(KEY_ZERO)), keys);
            _mm_cvtsi128_si32(_mm_packus_epi16(keys, keys))
        };
        to.as_chunks_mut::<4>().0[half] = four.to_le_bytes();
    }
}
