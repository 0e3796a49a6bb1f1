//! AVX2 + FMA forms of the dot products in `dot.rs`: the same lanes, the same tree, the same bits.

use std::arch::x86_64::{
    __m256, __m256i, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_movehdup_ps, _mm_movehl_ps, _mm256_castps256_ps128,
    _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_maskload_ps, _mm256_set1_ps,
    _mm256_setzero_ps, _mm256_storeu_ps,
};

use super::dot::{LANES, has_simd};

/// All ones in the lanes that are read.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Mask([i32; LANES]);

/// Masks for the last 1..7 elements.
static MASKS: [Mask; LANES] = {
    let mut m = [Mask([0; LANES]); LANES];
    let mut n = 0;
    while n < 8 {
        let mut i = 0;
        while i < n {
            m[n].0[i] = -1;
            i += 1;
        }
        n += 1;
    }
    m
};

/// `out[m][n]` = dot of row m of `a` and row n of `b`. All rows have one length. Needs AVX2 and FMA.
pub(super) fn tile<const M: usize, const N: usize>(a: [&[f32]; M], b: [&[f32]; N]) -> [[f32; N]; M] {
    assert!(has_simd());
    let k = a[0].len();
    assert!(a.iter().all(|r| r.len() == k) && b.iter().all(|r| r.len() == k));
    // SAFETY: AVX2 and FMA were detected (asserted above), every row has k elements (asserted above).
    unsafe { tile_avx2(a.map(<[f32]>::as_ptr), b.map(<[f32]>::as_ptr), k) }
}

/// `out[m,:] += sum over n of p[m,n] * rows[n,:]`. Needs AVX2 and FMA.
pub(super) fn weighted_sums(p: &[f32], rows: &[f32], width: usize, out: &mut [f32]) {
    assert!(has_simd());
    let n = rows.len() / width;
    assert!(rows.len() == n * width && p.len() * width == out.len() * n);
    let count = out.len() / width;
    let mut m = 0;
    while m < count {
        let (p, out) = (&p[m * n..], &mut out[m * width..]);
        // SAFETY: features detected; `p` and `out` hold at least 4 (or 1) rows of n and width elements from here, `rows`
        // holds n rows of width elements (asserted above).
        unsafe {
            if count - m >= 4 {
                weighted_sums_avx2::<4>(p, rows, n, width, out);
                m += 4;
            } else {
                weighted_sums_avx2::<1>(p, rows, n, width, out);
                m += 1;
            }
        }
    }
}

/// # Safety
/// AVX2 and FMA must be available; every pointer must be valid for `k` reads.
#[target_feature(enable = "avx2,fma")]
unsafe fn tile_avx2<const M: usize, const N: usize>(a: [*const f32; M], b: [*const f32; N], k: usize) -> [[f32; N]; M] {
    let mut acc = [[_mm256_setzero_ps(); N]; M];
    let whole = k - k % LANES;
    let mut i = 0;
    while i < whole {
        // SAFETY: i + 8 <= k, and every row has k elements.
        unsafe {
            let mut bv = [_mm256_setzero_ps(); N];
            for n in 0..N {
                bv[n] = _mm256_loadu_ps(b[n].add(i));
            }
            for m in 0..M {
                let av = _mm256_loadu_ps(a[m].add(i));
                for n in 0..N {
                    acc[m][n] = _mm256_fmadd_ps(av, bv[n], acc[m][n]);
                }
            }
        }
        i += LANES;
    }
    if whole < k {
        // SAFETY: the mask selects the k - whole elements that exist; masked-out lanes are not read and add 0*0.
        unsafe {
            let mask = _mm256_loadu_si256(std::ptr::from_ref(&MASKS[k - whole]).cast::<__m256i>());
            for m in 0..M {
                let av = _mm256_maskload_ps(a[m].add(whole), mask);
                for n in 0..N {
                    acc[m][n] = _mm256_fmadd_ps(av, _mm256_maskload_ps(b[n].add(whole), mask), acc[m][n]);
                }
            }
        }
    }
    let mut out = [[0.0; N]; M];
    for m in 0..M {
        for n in 0..N {
            out[m][n] = tree(acc[m][n]);
        }
    }
    out
}

/// The tree of `dot.rs`: ((0+4)+(2+6)) + ((1+5)+(3+7)).
#[inline]
#[target_feature(enable = "avx2,fma")]
fn tree(v: __m256) -> f32 {
    let fours = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let twos = _mm_add_ps(fours, _mm_movehl_ps(fours, fours));
    _mm_cvtss_f32(_mm_add_ss(twos, _mm_movehdup_ps(twos)))
}

/// # Safety
/// AVX2 and FMA must be available; `p` has at least `M * n` elements, `out` `M * width`, `rows` `n * width`.
#[target_feature(enable = "avx2,fma")]
unsafe fn weighted_sums_avx2<const M: usize>(p: &[f32], rows: &[f32], n: usize, width: usize, out: &mut [f32]) {
    const PAIR: usize = 2 * LANES;
    let mut d = 0;
    while d + PAIR <= width {
        // SAFETY: d + 16 <= width, so every access stays inside its row.
        unsafe { weighted_columns::<M, 2>(p, rows, n, width, out, d) };
        d += PAIR;
    }
    if d + LANES <= width {
        // SAFETY: d + 8 <= width.
        unsafe { weighted_columns::<M, 1>(p, rows, n, width, out, d) };
        d += LANES;
    }
    for d in d..width {
        for m in 0..M {
            for k in 0..n {
                out[m * width + d] = p[m * n + k].mul_add(rows[k * width + d], out[m * width + d]);
            }
        }
    }
}

/// Columns `d..d + 8 * V` of [`weighted_sums_avx2`].
///
/// # Safety
/// As there; `d + 8 * V` is at most `width`.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn weighted_columns<const M: usize, const V: usize>(
    p: &[f32],
    rows: &[f32],
    n: usize,
    width: usize,
    out: &mut [f32],
    d: usize,
) {
    let mut acc = [[_mm256_setzero_ps(); V]; M];
    // SAFETY: every access is inside row m of `out` and `p` or row k of `rows`, up to column d + 8 * V.
    unsafe {
        for m in 0..M {
            for v in 0..V {
                acc[m][v] = _mm256_loadu_ps(out.as_ptr().add(m * width + d + v * LANES));
            }
        }
        for k in 0..n {
            let mut row = [_mm256_setzero_ps(); V];
            for v in 0..V {
                row[v] = _mm256_loadu_ps(rows.as_ptr().add(k * width + d + v * LANES));
            }
            for m in 0..M {
                let weight = _mm256_set1_ps(*p.as_ptr().add(m * n + k));
                for v in 0..V {
                    acc[m][v] = _mm256_fmadd_ps(weight, row[v], acc[m][v]);
                }
            }
        }
        for m in 0..M {
            for v in 0..V {
                _mm256_storeu_ps(out.as_mut_ptr().add(m * width + d + v * LANES), acc[m][v]);
            }
        }
    }
}
