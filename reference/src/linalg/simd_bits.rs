//! Registers as words of 32 bits: how stored codes become f32 values.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256, __m512, _mm256_add_epi32, _mm256_and_ps, _mm256_castps_pd, _mm256_castps_si256, _mm256_castsi256_ps,
    _mm256_loadu_ps, _mm256_min_ps, _mm256_mul_ps, _mm256_or_ps, _mm256_permutevar8x32_ps, _mm256_set1_epi32,
    _mm256_sllv_epi32, _mm256_srlv_epi32, _mm512_add_epi32, _mm512_and_si512, _mm512_castpd_ps, _mm512_castpd256_pd512,
    _mm512_castps_si512, _mm512_castsi512_ps, _mm512_insertf64x4, _mm512_loadu_ps, _mm512_min_ps, _mm512_mul_ps,
    _mm512_or_si512, _mm512_permutexvar_ps, _mm512_set1_epi32, _mm512_sllv_epi32, _mm512_srlv_epi32,
};

use super::LANES;
#[cfg(target_arch = "x86_64")]
use super::simd_vector::Square;
use super::simd_vector::{Pair, Vector};

/// Bytes of a row that are taken at a time.
pub(crate) const BYTES: usize = 32;
/// 32-bit words of them.
pub(crate) const WORDS: usize = BYTES / 4;

/// f32 registers whose bits can be worked with. May be used only inside a `Job` that runs on their instruction set, as all
/// of [`Vector`].
pub(crate) trait Bits: Vector<f32> {
    /// Words q of `LEN` rows, the first of them `rows[0]`, side by side.
    fn words(rows: &[&[u8; BYTES]]) -> [Self; WORDS];
    /// The first `LEN` of these values.
    fn of(values: &[f32]) -> Self;
    /// The same bits everywhere.
    #[inline(always)]
    fn bits(bits: u32) -> Self {
        Self::splat(f32::from_bits(bits))
    }
    /// Bits moved up by n < 32.
    fn up(self, n: u32) -> Self;
    /// Bits moved down by n < 32.
    fn down(self, n: u32) -> Self;
    /// Common bits.
    fn and(self, b: Self) -> Self;
    /// Bits of either.
    fn or(self, b: Self) -> Self;
    /// Sum of the words as integers.
    fn plus(self, b: Self) -> Self;
    /// `self * b`.
    fn mul(self, b: Self) -> Self;
    /// The lower value of two numbers.
    fn lower(self, b: Self) -> Self;
    /// The value of the E2M1 code in the lowest four bits of each word; the other bits say nothing.
    fn e2m1(self) -> Self;
}

/// What the E2M1 codes 0 to 7 are; bit 3 is the sign (OCP Microscaling Formats 1.0, section 5.3.3).
const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

impl<const N: usize> Bits for [f32; N] {
    #[inline(always)]
    fn words(rows: &[&[u8; BYTES]]) -> [Self; WORDS] {
        let mut words = [[0.0; N]; WORDS];
        for (lane, row) in rows[..N].iter().enumerate() {
            for (word, bytes) in words.iter_mut().zip(row.as_chunks::<4>().0) {
                word[lane] = f32::from_bits(u32::from_le_bytes(*bytes));
            }
        }
        words
    }
    #[inline(always)]
    fn of(values: &[f32]) -> Self {
        *values.first_chunk().expect("N values are there")
    }
    #[inline(always)]
    fn up(self, n: u32) -> Self {
        self.map(|v| f32::from_bits(v.to_bits() << n))
    }
    #[inline(always)]
    fn down(self, n: u32) -> Self {
        self.map(|v| f32::from_bits(v.to_bits() >> n))
    }
    #[inline(always)]
    fn and(mut self, b: Self) -> Self {
        for j in 0..N {
            self[j] = f32::from_bits(self[j].to_bits() & b[j].to_bits());
        }
        self
    }
    #[inline(always)]
    fn or(mut self, b: Self) -> Self {
        for j in 0..N {
            self[j] = f32::from_bits(self[j].to_bits() | b[j].to_bits());
        }
        self
    }
    #[inline(always)]
    fn plus(mut self, b: Self) -> Self {
        for j in 0..N {
            self[j] = f32::from_bits(self[j].to_bits().wrapping_add(b[j].to_bits()));
        }
        self
    }
    #[inline(always)]
    fn mul(mut self, b: Self) -> Self {
        for j in 0..N {
            self[j] *= b[j];
        }
        self
    }
    #[inline(always)]
    fn lower(mut self, b: Self) -> Self {
        for j in 0..N {
            self[j] = if self[j] < b[j] { self[j] } else { b[j] };
        }
        self
    }
    #[inline(always)]
    fn e2m1(self) -> Self {
        self.map(|v| {
            let code = v.to_bits();
            f32::from_bits(E2M1[(code & 7) as usize].to_bits() | (code & 8) << 28)
        })
    }
}

impl<V: Bits> Bits for Pair<V> {
    #[inline(always)]
    fn words(rows: &[&[u8; BYTES]]) -> [Self; WORDS] {
        let (first, second) = (V::words(rows), V::words(&rows[V::LEN..]));
        let mut words = [Self::splat(0.0); WORDS];
        for q in 0..WORDS {
            words[q] = Self(first[q], second[q]);
        }
        words
    }
    #[inline(always)]
    fn of(values: &[f32]) -> Self {
        Self(V::of(values), V::of(&values[V::LEN..]))
    }
    #[inline(always)]
    fn up(self, n: u32) -> Self {
        Self(self.0.up(n), self.1.up(n))
    }
    #[inline(always)]
    fn down(self, n: u32) -> Self {
        Self(self.0.down(n), self.1.down(n))
    }
    #[inline(always)]
    fn and(self, b: Self) -> Self {
        Self(self.0.and(b.0), self.1.and(b.1))
    }
    #[inline(always)]
    fn or(self, b: Self) -> Self {
        Self(self.0.or(b.0), self.1.or(b.1))
    }
    #[inline(always)]
    fn plus(self, b: Self) -> Self {
        Self(self.0.plus(b.0), self.1.plus(b.1))
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        Self(self.0.mul(b.0), self.1.mul(b.1))
    }
    #[inline(always)]
    fn lower(self, b: Self) -> Self {
        Self(self.0.lower(b.0), self.1.lower(b.1))
    }
    #[inline(always)]
    fn e2m1(self) -> Self {
        Self(self.0.e2m1(), self.1.e2m1())
    }
}

#[cfg(target_arch = "x86_64")]
impl Bits for __m256 {
    #[inline(always)]
    fn words(rows: &[&[u8; BYTES]]) -> [Self; WORDS] {
        let mut block = [Self::splat(0.0); 8];
        for (to, row) in block.iter_mut().zip(&rows[..8]) {
            // SAFETY: inside a job that runs on AVX2; a row has BYTES bytes, and the load asks for no alignment.
            *to = unsafe { _mm256_loadu_ps(row.as_ptr().cast()) };
        }
        Self::transpose(block)
    }
    #[inline(always)]
    fn of(values: &[f32]) -> Self {
        assert!(values.len() >= 8, "values for a vector");
        // SAFETY: inside a job that runs on AVX2; the values were just counted.
        unsafe { _mm256_loadu_ps(values.as_ptr()) }
    }
    #[inline(always)]
    fn up(self, n: u32) -> Self {
        // SAFETY: inside a job that runs on AVX2.
        unsafe { _mm256_castsi256_ps(_mm256_sllv_epi32(_mm256_castps_si256(self), _mm256_set1_epi32(n as i32))) }
    }
    #[inline(always)]
    fn down(self, n: u32) -> Self {
        // SAFETY: inside a job that runs on AVX2.
        unsafe { _mm256_castsi256_ps(_mm256_srlv_epi32(_mm256_castps_si256(self), _mm256_set1_epi32(n as i32))) }
    }
    #[inline(always)]
    fn and(self, b: Self) -> Self {
        // SAFETY: inside a job that runs on AVX2.
        unsafe { _mm256_and_ps(self, b) }
    }
    #[inline(always)]
    fn or(self, b: Self) -> Self {
        // SAFETY: inside a job that runs on AVX2.
        unsafe { _mm256_or_ps(self, b) }
    }
    #[inline(always)]
    fn plus(self, b: Self) -> Self {
        // SAFETY: inside a job that runs on AVX2.
        unsafe { _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(self), _mm256_castps_si256(b))) }
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        // SAFETY: inside a job that runs on AVX2.
        unsafe { _mm256_mul_ps(self, b) }
    }
    #[inline(always)]
    fn lower(self, b: Self) -> Self {
        // SAFETY: inside a job that runs on AVX2.
        unsafe { _mm256_min_ps(self, b) }
    }
    #[inline(always)]
    fn e2m1(self) -> Self {
        // SAFETY: inside a job that runs on AVX2; the table is as long as a vector, of which three bits of a word choose one.
        let size = unsafe { _mm256_permutevar8x32_ps(_mm256_loadu_ps(E2M1.as_ptr()), _mm256_castps_si256(self)) };
        size.or(self.up(28).and(Self::bits(1 << 31)))
    }
}

#[cfg(target_arch = "x86_64")]
impl Bits for __m512 {
    #[inline(always)]
    fn words(rows: &[&[u8; BYTES]]) -> [Self; WORDS] {
        let (first, second) = (__m256::words(rows), __m256::words(&rows[8..]));
        let mut words = [Self::splat(0.0); WORDS];
        for q in 0..WORDS {
            // SAFETY: inside a job that runs on AVX-512F.
            words[q] = unsafe {
                let low = _mm512_castpd256_pd512(_mm256_castps_pd(first[q]));
                _mm512_castpd_ps(_mm512_insertf64x4::<1>(low, _mm256_castps_pd(second[q])))
            };
        }
        words
    }
    #[inline(always)]
    fn of(values: &[f32]) -> Self {
        let values: &[f32; LANES] = values.first_chunk().expect("values for a vector");
        // SAFETY: the values are as many as a vector has.
        unsafe { Self::load(values.as_ptr()) }
    }
    #[inline(always)]
    fn up(self, n: u32) -> Self {
        // SAFETY: inside a job that runs on AVX-512F.
        unsafe { _mm512_castsi512_ps(_mm512_sllv_epi32(_mm512_castps_si512(self), _mm512_set1_epi32(n as i32))) }
    }
    #[inline(always)]
    fn down(self, n: u32) -> Self {
        // SAFETY: inside a job that runs on AVX-512F.
        unsafe { _mm512_castsi512_ps(_mm512_srlv_epi32(_mm512_castps_si512(self), _mm512_set1_epi32(n as i32))) }
    }
    #[inline(always)]
    fn and(self, b: Self) -> Self {
        // SAFETY: inside a job that runs on AVX-512F.
        unsafe { _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(self), _mm512_castps_si512(b))) }
    }
    #[inline(always)]
    fn or(self, b: Self) -> Self {
        // SAFETY: inside a job that runs on AVX-512F.
        unsafe { _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(self), _mm512_castps_si512(b))) }
    }
    #[inline(always)]
    fn plus(self, b: Self) -> Self {
        // SAFETY: inside a job that runs on AVX-512F.
        unsafe { _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(self), _mm512_castps_si512(b))) }
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        // SAFETY: inside a job that runs on AVX-512F.
        unsafe { _mm512_mul_ps(self, b) }
    }
    #[inline(always)]
    fn lower(self, b: Self) -> Self {
        // SAFETY: inside a job that runs on AVX-512F.
        unsafe { _mm512_min_ps(self, b) }
    }
    #[inline(always)]
    fn e2m1(self) -> Self {
        const ALL: [f32; 16] = {
            let mut all = [0.0; 16];
            let mut code = 0;
            while code < 16 {
                all[code] = if code < 8 { E2M1[code] } else { -E2M1[code - 8] };
                code += 1;
            }
            all
        };
        // SAFETY: inside a job that runs on AVX-512F; the table is as long as a vector, of which four bits of a word choose one.
        unsafe { _mm512_permutexvar_ps(_mm512_castps_si512(self), _mm512_loadu_ps(ALL.as_ptr())) }
    }
}
