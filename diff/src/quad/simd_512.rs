//! Eight f64 values, all lanes of a sum, in one AVX-512 register.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller")]

use std::arch::x86_64::{
    __m512d, _CMP_EQ_OQ, _mm_cvtsi128_si64, _mm256_loadu_ps, _mm512_abs_pd, _mm512_add_epi64, _mm512_add_pd,
    _mm512_and_si512, _mm512_castpd_si512, _mm512_castsi512_pd, _mm512_cmp_pd_mask, _mm512_cvtps_pd,
    _mm512_cvtusepi64_epi8, _mm512_fmadd_pd, _mm512_loadu_pd, _mm512_max_epi64, _mm512_max_pd, _mm512_mul_pd,
    _mm512_set1_epi64, _mm512_set1_pd, _mm512_setzero_si512, _mm512_srai_epi64, _mm512_srli_epi64, _mm512_storeu_pd,
    _mm512_sub_epi64, _mm512_sub_pd, _mm512_xor_si512,
};

use super::{Avx2, KEY_ZERO, LANES, Quad, SIGN};

/// Used only in functions that are compiled for AVX-512F and called where the processor has it; that is what makes every
/// intrinsic below sound.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512d);

impl Quad for Avx512 {
    const HALVES: usize = 1;

    #[inline(always)]
    fn splat(value: f64) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_set1_pd(value) })
    }

    #[inline(always)]
    fn load(values: &[f64; LANES], _: usize) -> Self {
        // SAFETY: see `Avx512`; the pointer is to eight values, and no alignment is asked for.
        Self(unsafe { _mm512_loadu_pd(values.as_ptr()) })
    }

    #[inline(always)]
    fn widen(values: &[f32; LANES], _: usize) -> Self {
        // SAFETY: see `Avx512`; the pointer is to eight values, and no alignment is asked for.
        Self(unsafe { _mm512_cvtps_pd(_mm256_loadu_ps(values.as_ptr())) })
    }

    #[inline(always)]
    fn store(self, to: &mut [f64; LANES], _: usize) {
        // SAFETY: see `Avx512`; `to` has room for eight values.
        unsafe { _mm512_storeu_pd(to.as_mut_ptr(), self.0) };
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_add_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_sub_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_mul_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn plus_exact(self, a: Self, b: Self) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_fmadd_pd(a.0, b.0, self.0) })
    }

    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_abs_pd(self.0) })
    }

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_max_pd(self.0, other.0) })
    }

    #[inline(always)]
    fn signed_by(self, other: Self) -> Self {
        // SAFETY: see `Avx512`.
        unsafe {
            let sign = _mm512_and_si512(_mm512_castpd_si512(other.0), _mm512_set1_epi64(SIGN as i64));
            Self(_mm512_castsi512_pd(_mm512_xor_si512(_mm512_castpd_si512(self.0), sign)))
        }
    }

    #[inline(always)]
    fn holds(self, value: f64) -> bool {
        // SAFETY: see `Avx512`.
        unsafe { _mm512_cmp_pd_mask::<_CMP_EQ_OQ>(self.0, _mm512_set1_pd(value)) != 0 }
    }

    #[inline(always)]
    fn fetch<T>(values: &[T]) {
        Avx2::fetch(values);
    }

    #[inline(always)]
    fn keys(self, other: Self, to: &mut [u8; LANES], _: usize) {
        // SAFETY: see `Avx512`.
        let eight = unsafe {
            let (d, x) = (_mm512_castpd_si512(self.abs().0), _mm512_castpd_si512(other.abs().0));
            // See `Plain::keys`.
            let r = _mm512_srai_epi64::<52>(_mm512_sub_epi64(d, x));
            let e = _mm512_sub_epi64(_mm512_srli_epi64::<52>(d), _mm512_srli_epi64::<52>(x));
            let keys = _mm512_add_epi64(_mm512_add_epi64(e, r), _mm512_set1_epi64(KEY_ZERO as i64));
            // Narrowing holds them to 255.
            _mm_cvtsi128_si64(_mm512_cvtusepi64_epi8(_mm512_max_epi64(keys, _mm512_setzero_si512())))
        };
        *to = eight.to_le_bytes();
    }
}
