//! Sums of a block of a row, 16 values at a time. Nothing is fused and each lane adds in the order of `row::block`, so both
//! give the same bits.

use super::columns::Rows;
use super::row::{self, RowSketch};

/// A way to sketch rows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    /// Anywhere.
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Way {
    /// Every one on this machine, the fastest last.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let ways = [
            Some(Self::Plain),
            #[cfg(target_arch = "x86_64")]
            std::arch::is_x86_feature_detected!("avx2").then_some(Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            (std::arch::is_x86_feature_detected!("avx512f")
                && std::arch::is_x86_feature_detected!("avx512dq")
                && std::arch::is_x86_feature_detected!("avx2"))
            .then_some(Self::Avx512),
        ];
        ways.into_iter().flatten()
    }
}

/// Sketches of rows of `width` values each, of which `shown` is what counts, by the fastest way on this machine that there is code for.
pub(super) fn fill(to: Rows<'_>, values: &[f32], width: usize, shown: impl Fn(&[f32]) -> &[f32]) {
    fill_by(Way::all().last().unwrap_or(Way::Plain), to, values, width, shown);
}

/// The same by one of [`Way::all`].
pub(super) fn fill_by(way: Way, mut to: Rows<'_>, values: &[f32], width: usize, shown: impl Fn(&[f32]) -> &[f32]) {
    let row = |i: usize| shown(&values[i * width..(i + 1) * width]);
    match way {
        Way::Plain => (0..to.norm.len()).for_each(|i| to.put(i, &RowSketch::by(row(i), row::block))),
        // SAFETY: only what the processor says that it has is used.
        #[cfg(target_arch = "x86_64")]
        Way::Avx2 => unsafe { x86::rows(&mut to, width, row) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Way::Avx512 => unsafe { x86::wide_rows(&mut to, width, row) },
    }
}

/// The same for [`row::pairs`].
pub(super) fn best_pairs() -> fn(&[[u32; row::SUMS]]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: only what the processor says that it has is used.
        return |lines| unsafe { x86::pairs(lines) };
    }
    row::pairs
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128, __m256, __m256d, __m256i, __m512, __m512i, _MM_HINT_T0, _mm_add_pd, _mm_cvtsd_f64, _mm_prefetch,
        _mm_unpackhi_pd, _mm256_add_epi32, _mm256_add_epi64, _mm256_add_pd, _mm256_add_ps, _mm256_and_si256,
        _mm256_castpd_si256, _mm256_castpd256_pd128, _mm256_castps_si256, _mm256_castps256_ps128, _mm256_castsi256_pd,
        _mm256_cvtpd_ps, _mm256_cvtps_pd, _mm256_extractf128_pd, _mm256_extractf128_ps, _mm256_max_epu32,
        _mm256_mul_epu32, _mm256_mul_ps, _mm256_permute2x128_si256, _mm256_set1_epi32, _mm256_setzero_ps,
        _mm256_setzero_si256, _mm256_sqrt_pd, _mm256_srli_epi64, _mm256_unpackhi_epi64, _mm256_unpacklo_epi64,
        _mm256_xor_ps, _mm512_add_epi32, _mm512_add_epi64, _mm512_add_pd, _mm512_add_ps, _mm512_and_si512,
        _mm512_castpd_si512, _mm512_castps_si512, _mm512_castsi512_pd, _mm512_cvtepi64_epi32, _mm512_cvtpd_ps,
        _mm512_cvtps_pd, _mm512_fmadd_ps, _mm512_max_epu32, _mm512_mul_epu32, _mm512_mul_ps, _mm512_mullo_epi64,
        _mm512_set1_epi32, _mm512_set1_epi64, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_shuffle_i64x2,
        _mm512_sqrt_pd, _mm512_srli_epi64, _mm512_unpackhi_epi64, _mm512_unpacklo_epi64, _mm512_xor_si512,
    };
    use std::mem::transmute;

    use super::super::row::{self, BLOCK, BlockSums, KEYS, RowSketch, SIGNS, SUMS, TURNS};
    use super::Rows;

    /// Lines of sixteen values between what is asked for and what is summed, over the end of a row into the next one: what another core
    /// wrote, or what left the caches, comes late.
    const AHEAD: usize = 32;

    /// Lanes 0 to 7 or 8 to 15.
    #[derive(Clone, Copy)]
    struct Half {
        squares: __m256,
        sums: __m256,
        largest: __m256i,
        pairs: __m256i,
    }

    impl Half {
        /// Eight values.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn take(&mut self, values: &[f32; 8], signs: &[u32; 8], keys: &[u32; 8]) {
            // SAFETY: 32 bytes each, of which every pattern is a value. Not by the loads that take pointers: in a build with
            // debug assertions each of them checks its pointer, which costs more than the loop.
            let (v, sign, key) = unsafe {
                (
                    transmute::<[f32; 8], __m256>(*values),
                    transmute::<[u32; 8], __m256>(*signs),
                    transmute::<[u32; 8], __m256i>(*keys),
                )
            };
            let bits = _mm256_castps_si256(v);
            self.squares = _mm256_add_ps(self.squares, _mm256_mul_ps(v, v));
            self.sums = _mm256_add_ps(self.sums, _mm256_xor_ps(v, sign));
            let size = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fff_ffff));
            self.largest = _mm256_max_epu32(self.largest, size);
            let keyed = _mm256_add_epi32(bits, key);
            let product = _mm256_mul_epu32(keyed, _mm256_srli_epi64::<32>(keyed));
            self.pairs = _mm256_add_epi64(self.pairs, _mm256_add_epi64(product, keyed));
        }
    }

    /// The lanes of at most [`BLOCK`] values.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn lanes(values: &[f32]) -> (Half, Half) {
        let values = &values[..values.len().min(BLOCK)];
        let none = Half {
            squares: _mm256_setzero_ps(),
            sums: _mm256_setzero_ps(),
            largest: _mm256_setzero_si256(),
            pairs: _mm256_setzero_si256(),
        };
        let (mut low, mut high) = (none, none);
        let (whole, rest) = values.as_chunks::<SUMS>();
        // By number: a chain of iterators over the three costs more than the sums where it isn't optimised away.
        let (signs, keys) = (&SIGNS[..whole.len()], &KEYS[..whole.len()]);
        for i in 0..whole.len() {
            (low, high) = line((low, high), &whole[i], &signs[i], &keys[i]);
        }
        if !rest.is_empty() {
            let mut last = [0.0; SUMS];
            last[..rest.len()].copy_from_slice(rest);
            (low, high) = line((low, high), &last, &SIGNS[whole.len()], &KEYS[whole.len()]);
        }
        (low, high)
    }

    /// `row::block`, at most [`BLOCK`] values.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn block(values: &[f32]) -> BlockSums {
        let (low, high) = lanes(values);
        let (largest, pairs) = (_mm256_max_epu32(low.largest, high.largest), _mm256_add_epi64(low.pairs, high.pairs));
        // SAFETY: as many bytes on both sides, of which every pattern is a value.
        let (sums, largest, pairs) = unsafe {
            (
                transmute::<[__m256; 2], [f32; SUMS]>([low.sums, high.sums]),
                transmute::<__m256i, [u32; 8]>(largest),
                transmute::<__m256i, [u64; 4]>(pairs),
            )
        };
        BlockSums {
            squares: added(low.squares, high.squares),
            sums,
            largest: largest.iter().fold(0, |a, b| a.max(*b)),
            pairs: pairs.iter().fold(0, |a, b| a.wrapping_add(*b)),
        }
    }

    /// Four rows of at most [`BLOCK`] values, from row `i` on: their ends side by side, a row in each lane.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn four<'a>(to: &mut Rows<'_>, i: usize, row: impl Fn(usize) -> &'a [f32]) {
        let none = _mm256_setzero_si256();
        let (mut squares, mut largest, mut pairs, mut lengths) = ([none; 4], [none; 4], [none; 4], [0; 4]);
        let projection = &mut to.projection[i..i + 4];
        for lane in 0..4 {
            let values = row(i + lane);
            let (low, high) = lanes(values);
            // SAFETY: as many bytes on both sides, of which every pattern is a value.
            projection[lane] = unsafe { transmute::<[__m256; 2], [f32; SUMS]>([low.sums, high.sums]) };
            squares[lane] = _mm256_castpd_si256(quarters(low.squares, high.squares));
            largest[lane] = _mm256_max_epu32(low.largest, high.largest);
            (pairs[lane], lengths[lane]) = (_mm256_add_epi64(low.pairs, high.pairs), values.len() as u64);
        }
        let added = |a, b| _mm256_castpd_si256(_mm256_add_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b)));
        let norm = _mm256_cvtpd_ps(_mm256_sqrt_pd(_mm256_castsi256_pd(folded_four(squares, added))));
        let largest = folded_four(largest, |a, b| _mm256_max_epu32(a, b));
        let largest = _mm256_max_epu32(largest, _mm256_srli_epi64::<32>(largest));
        let pairs = folded_four(pairs, |a, b| _mm256_add_epi64(a, b));
        // SAFETY: as many bytes on both sides, of which every pattern is a value.
        let (norm, largest, pairs) = unsafe {
            (
                transmute::<__m128, [f32; 4]>(norm),
                transmute::<__m256i, [u64; 4]>(largest),
                transmute::<__m256i, [u64; 4]>(pairs),
            )
        };
        let hash = std::array::from_fn(|lane| row::mixed(lengths[lane] ^ pairs[lane]) as i64);
        put(to, i, row, (norm, largest.map(|size| size as u32), hash));
    }

    /// The four numbers of each of four rows as one: i and i + 2, then the last two.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn folded_four(rows: [__m256i; 4], both: impl Fn(__m256i, __m256i) -> __m256i) -> __m256i {
        let half = |a, b| both(_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b));
        let (even, odd) = (half(rows[0], rows[2]), half(rows[1], rows[3]));
        both(_mm256_unpacklo_epi64(even, odd), _mm256_unpackhi_epi64(even, odd))
    }

    /// What is known of rows from row `i` on, their sums apart: norm, bits of the largest size, and hash.
    #[inline]
    fn put<'a, const N: usize>(
        to: &mut Rows<'_>,
        i: usize,
        row: impl Fn(usize) -> &'a [f32],
        (norm, sizes, hash): ([f32; N], [u32; N], [i64; N]),
    ) {
        let range = i..i + N;
        to.norm[range.clone()].copy_from_slice(&norm);
        to.absmax[range.clone()].copy_from_slice(&sizes.map(f32::from_bits));
        to.hash[range.clone()].copy_from_slice(&hash);
        to.nonfinite[range].fill(0);
        if !sizes.iter().all(|size| row::is_plain(*size)) {
            for lane in (0..N).filter(|lane| !row::is_plain(sizes[*lane])) {
                to.put(i + lane, &RowSketch { hash: hash[lane], ..row::careful(row(i + lane)) });
            }
        }
    }

    /// All lanes.
    #[derive(Clone, Copy)]
    struct Whole {
        squares: __m512,
        sums: __m512,
        largest: __m512i,
        pairs: __m512i,
    }

    impl Whole {
        /// Sixteen values.
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn take(&mut self, values: &[f32; SUMS], turns: &[f32; SUMS], keys: &[u32; SUMS]) {
            // SAFETY: 64 bytes each, of which every pattern is a value.
            let (v, turn, key) = unsafe {
                (
                    transmute::<[f32; SUMS], __m512>(*values),
                    transmute::<[f32; SUMS], __m512>(*turns),
                    transmute::<[u32; SUMS], __m512i>(*keys),
                )
            };
            let bits = _mm512_castps_si512(v);
            self.squares = _mm512_add_ps(self.squares, _mm512_mul_ps(v, v));
            // A product with 1 or -1 is exact: one rounding, as where a sign is turned.
            self.sums = _mm512_fmadd_ps(v, turn, self.sums);
            let size = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fff_ffff));
            self.largest = _mm512_max_epu32(self.largest, size);
            let keyed = _mm512_add_epi32(bits, key);
            let product = _mm512_mul_epu32(keyed, _mm512_srli_epi64::<32>(keyed));
            self.pairs = _mm512_add_epi64(self.pairs, _mm512_add_epi64(product, keyed));
        }

        /// At most [`BLOCK`] values.
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn of(values: &[f32]) -> Self {
            let values = &values[..values.len().min(BLOCK)];
            let mut all = Self {
                squares: _mm512_setzero_ps(),
                sums: _mm512_setzero_ps(),
                largest: _mm512_setzero_si512(),
                pairs: _mm512_setzero_si512(),
            };
            let (whole, rest) = values.as_chunks::<SUMS>();
            let (turns, keys) = (&TURNS[..whole.len()], &KEYS[..whole.len()]);
            for i in 0..whole.len() {
                _mm_prefetch::<_MM_HINT_T0>(whole.as_ptr().wrapping_add(i + AHEAD).cast());
                all.take(&whole[i], &turns[i], &keys[i]);
            }
            if !rest.is_empty() {
                let mut last = [0.0; SUMS];
                last[..rest.len()].copy_from_slice(rest);
                all.take(&last, &TURNS[whole.len()], &KEYS[whole.len()]);
            }
            all
        }

        fn sums(&self) -> [f32; SUMS] {
            // SAFETY: as many bytes on both sides, of which every pattern is a value.
            unsafe { transmute::<__m512, [f32; SUMS]>(self.sums) }
        }
    }

    /// `row::block`, at most [`BLOCK`] values, all lanes in one register.
    #[inline]
    #[target_feature(enable = "avx512f,avx2")]
    pub(super) fn wide_block(values: &[f32]) -> BlockSums {
        let all = Whole::of(values);
        // SAFETY: as many bytes on both sides, of which every pattern is a value.
        let (squares, largest, pairs) = unsafe {
            (
                transmute::<__m512, [__m256; 2]>(all.squares),
                transmute::<__m512i, [u32; SUMS]>(all.largest),
                transmute::<__m512i, [u64; 8]>(all.pairs),
            )
        };
        BlockSums {
            squares: added(squares[0], squares[1]),
            sums: all.sums(),
            largest: largest.iter().fold(0, |a, b| a.max(*b)),
            pairs: pairs.iter().fold(0, |a, b| a.wrapping_add(*b)),
        }
    }

    /// Eight rows of at most [`BLOCK`] values, from row `i` on: their ends side by side, a row in each lane.
    #[target_feature(enable = "avx512f,avx512dq,avx2")]
    fn eight<'a>(to: &mut Rows<'_>, i: usize, row: impl Fn(usize) -> &'a [f32]) {
        let none = _mm512_setzero_si512();
        let (mut squares, mut largest, mut pairs, mut lengths) = ([none; 8], [none; 8], [none; 8], [0; 8]);
        for lane in 0..8 {
            let values = row(i + lane);
            let all = Whole::of(values);
            to.projection[i + lane] = all.sums();
            // SAFETY: as many bytes on both sides, of which every pattern is a value.
            let [low, high] = unsafe { transmute::<__m512, [__m256; 2]>(all.squares) };
            squares[lane] = _mm512_castpd_si512(_mm512_add_pd(_mm512_cvtps_pd(low), _mm512_cvtps_pd(high)));
            (largest[lane], pairs[lane], lengths[lane]) = (all.largest, all.pairs, values.len() as u64);
        }
        let added = |a, b| _mm512_castpd_si512(_mm512_add_pd(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b)));
        let norm = _mm512_cvtpd_ps(_mm512_sqrt_pd(_mm512_castsi512_pd(folded(&squares, added))));
        let largest = folded(&largest, |a, b| _mm512_max_epu32(a, b));
        let largest = _mm512_cvtepi64_epi32(_mm512_max_epu32(largest, _mm512_srli_epi64::<32>(largest)));
        let pairs = folded(&pairs, |a, b| _mm512_add_epi64(a, b));
        // SAFETY: as many bytes on both sides, of which every pattern is a value.
        let (norm, sizes, hash) = unsafe {
            let lengths = transmute::<[u64; 8], __m512i>(lengths);
            let hash = mixed(_mm512_xor_si512(lengths, pairs));
            (
                transmute::<__m256, [f32; 8]>(norm),
                transmute::<__m256i, [u32; 8]>(largest),
                transmute::<__m512i, [i64; 8]>(hash),
            )
        };
        put(to, i, row, (norm, sizes, hash));
    }

    /// The eight numbers of each of eight rows as one: i and i + 4, then i and i + 2, then the last two.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn folded(rows: &[__m512i; 8], both: impl Fn(__m512i, __m512i) -> __m512i) -> __m512i {
        // Halves of two rows.
        let half = |a, b| both(_mm512_shuffle_i64x2::<0x44>(a, b), _mm512_shuffle_i64x2::<0xee>(a, b));
        // Two numbers of each of four rows.
        let quarter = |a, b| both(_mm512_shuffle_i64x2::<0x88>(a, b), _mm512_shuffle_i64x2::<0xdd>(a, b));
        let even = quarter(half(rows[0], rows[2]), half(rows[4], rows[6]));
        let odd = quarter(half(rows[1], rows[3]), half(rows[5], rows[7]));
        both(_mm512_unpacklo_epi64(even, odd), _mm512_unpackhi_epi64(even, odd))
    }

    /// `row::mixed` of each.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn mixed(x: __m512i) -> __m512i {
        let all = |v: u64| _mm512_set1_epi64(v as i64);
        let z = _mm512_add_epi64(x, all(0x9e37_79b9_7f4a_7c15));
        let z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64::<30>(z)), all(0xbf58_476d_1ce4_e5b9));
        let z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64::<27>(z)), all(0x94d0_49bb_1331_11eb));
        _mm512_xor_si512(z, _mm512_srli_epi64::<31>(z))
    }

    /// Sketches of rows of `width` values by [`four`] and [`block`].
    #[target_feature(enable = "avx2")]
    pub(super) fn rows<'a>(to: &mut Rows<'_>, width: usize, row: impl Fn(usize) -> &'a [f32] + Copy) {
        let n = to.norm.len();
        let by_four = if width <= BLOCK { n - n % 4 } else { 0 };
        (0..by_four).step_by(4).for_each(|i| four(to, i, row));
        (by_four..n).for_each(|i| to.put(i, &RowSketch::by(row(i), |values| block(values))));
    }

    /// The same by [`eight`] and [`wide_block`].
    #[target_feature(enable = "avx512f,avx512dq,avx2")]
    pub(super) fn wide_rows<'a>(to: &mut Rows<'_>, width: usize, row: impl Fn(usize) -> &'a [f32] + Copy) {
        let n = to.norm.len();
        let by_eight = if width <= BLOCK { n - n % 8 } else { 0 };
        (0..by_eight).step_by(8).for_each(|i| eight(to, i, row));
        (by_eight..n).for_each(|i| to.put(i, &RowSketch::by(row(i), |values| wide_block(values))));
    }

    /// `row::pairs`.
    #[target_feature(enable = "avx2")]
    pub(super) fn pairs(lines: &[[u32; SUMS]]) -> u64 {
        let lines = &lines[..lines.len().min(KEYS.len())];
        let keys = &KEYS[..lines.len()];
        let mut sums = [_mm256_setzero_si256(); 2];
        for i in 0..lines.len() {
            // SAFETY: 64 bytes each, of which every pattern is a value.
            let (words, keys) = unsafe {
                (transmute::<[u32; SUMS], [__m256i; 2]>(lines[i]), transmute::<[u32; SUMS], [__m256i; 2]>(keys[i]))
            };
            for half in 0..2 {
                let keyed = _mm256_add_epi32(words[half], keys[half]);
                let product = _mm256_mul_epu32(keyed, _mm256_srli_epi64::<32>(keyed));
                sums[half] = _mm256_add_epi64(sums[half], _mm256_add_epi64(product, keyed));
            }
        }
        // SAFETY: as many bytes on both sides, of which every pattern is a value.
        let sums = unsafe { transmute::<[__m256i; 2], [u64; 8]>(sums) };
        sums.iter().fold(0, |a, b| a.wrapping_add(*b))
    }

    /// Sixteen values.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn line(
        (mut low, mut high): (Half, Half),
        values: &[f32; SUMS],
        signs: &[u32; SUMS],
        keys: &[u32; SUMS],
    ) -> (Half, Half) {
        let (v, s, k) = (halves(values), halves(signs), halves(keys));
        low.take(v.0, s.0, k.0);
        high.take(v.1, s.1, k.1);
        (low, high)
    }

    /// Two arrays of eight.
    #[inline]
    fn halves<T>(line: &[T; SUMS]) -> (&[T; 8], &[T; 8]) {
        let [low, high] = line.as_chunks::<8>().0 else { unreachable!("sixteen is twice eight") };
        (low, high)
    }

    /// `row::added` of all lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn added(low: __m256, high: __m256) -> f64 {
        let four = quarters(low, high);
        let two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd::<1>(four));
        _mm_cvtsd_f64(two) + _mm_cvtsd_f64(_mm_unpackhi_pd(two, two))
    }

    /// Its first two steps: four numbers.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn quarters(low: __m256, high: __m256) -> __m256d {
        let first = |v| _mm256_cvtps_pd(_mm256_castps256_ps128(v));
        let second = |v| _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(v));
        _mm256_add_pd(_mm256_add_pd(first(low), first(high)), _mm256_add_pd(second(low), second(high)))
    }
}
