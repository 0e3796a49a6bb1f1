//! AVX2 + FMA forms of the dot products in `dot.rs` and `gemm.rs`: the same lanes, the same tree, the same bits.

use std::arch::x86_64::{
    __m256, __m256i, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_maskload_ps,
    _mm256_mul_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps,
};

use super::dot::{LANES, has_simd, tree};

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

/// Scaled form: per block of `block` elements the lane sums of raw codes times `sa[m][kb / ratio] * sb[n][kb]`.
pub(super) fn tile_scaled<const M: usize, const N: usize>(
    a: [&[f32]; M],
    sa: [&[f32]; M],
    b: [&[f32]; N],
    sb: [&[f32]; N],
    block: usize,
    ratio: usize,
) -> [[f32; N]; M] {
    assert!(has_simd());
    let k = a[0].len();
    let blocks = k / block;
    assert!(block.is_multiple_of(LANES) && k.is_multiple_of(block) && ratio > 0);
    assert!(a.iter().all(|r| r.len() == k) && b.iter().all(|r| r.len() == k));
    assert!(sa.iter().all(|r| r.len() * ratio >= blocks) && sb.iter().all(|r| r.len() == blocks));
    // SAFETY: features detected; rows have k = blocks * block elements, scale rows cover all blocks (all asserted above).
    unsafe {
        let (a, b) = (a.map(<[f32]>::as_ptr), b.map(<[f32]>::as_ptr));
        tile_scaled_avx2(a, sa.map(<[f32]>::as_ptr), b, sb.map(<[f32]>::as_ptr), block, ratio, blocks)
    }
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
            out[m][n] = tree(spill(acc[m][n]));
        }
    }
    out
}

/// # Safety
/// AVX2 and FMA must be available; `a`, `b` valid for `blocks * block` reads, `sb` for `blocks`, `sa` for
/// `ceil(blocks / ratio)`; `block` a multiple of 8.
#[target_feature(enable = "avx2,fma")]
unsafe fn tile_scaled_avx2<const M: usize, const N: usize>(
    a: [*const f32; M],
    sa: [*const f32; M],
    b: [*const f32; N],
    sb: [*const f32; N],
    block: usize,
    ratio: usize,
    blocks: usize,
) -> [[f32; N]; M] {
    let mut acc = [[_mm256_setzero_ps(); N]; M];
    for kb in 0..blocks {
        let mut t = [[_mm256_setzero_ps(); N]; M];
        let mut i = kb * block;
        let end = i + block;
        while i < end {
            // SAFETY: i + 8 <= blocks * block.
            unsafe {
                let mut bv = [_mm256_setzero_ps(); N];
                for n in 0..N {
                    bv[n] = _mm256_loadu_ps(b[n].add(i));
                }
                for m in 0..M {
                    let av = _mm256_loadu_ps(a[m].add(i));
                    for n in 0..N {
                        t[m][n] = _mm256_fmadd_ps(av, bv[n], t[m][n]);
                    }
                }
            }
            i += LANES;
        }
        for m in 0..M {
            for n in 0..N {
                // SAFETY: kb < blocks and kb / ratio < ceil(blocks / ratio).
                let s = unsafe {
                    _mm256_mul_ps(_mm256_broadcast_ss(&*sa[m].add(kb / ratio)), _mm256_broadcast_ss(&*sb[n].add(kb)))
                };
                acc[m][n] = _mm256_fmadd_ps(t[m][n], s, acc[m][n]);
            }
        }
    }
    let mut out = [[0.0; N]; M];
    for m in 0..M {
        for n in 0..N {
            out[m][n] = tree(spill(acc[m][n]));
        }
    }
    out
}

#[target_feature(enable = "avx2,fma")]
fn spill(v: __m256) -> [f32; LANES] {
    let mut l = [0.0; LANES];
    // SAFETY: `l` holds 8 floats.
    unsafe { _mm256_storeu_ps(l.as_mut_ptr(), v) };
    l
}

/// # Safety
/// AVX2 and FMA must be available; `p` has at least `M * n` elements, `out` `M * width`, `rows` `n * width`.
#[target_feature(enable = "avx2,fma")]
unsafe fn weighted_sums_avx2<const M: usize>(p: &[f32], rows: &[f32], n: usize, width: usize, out: &mut [f32]) {
    let whole = width - width % LANES;
    let mut d = 0;
    while d < whole {
        let mut acc = [_mm256_setzero_ps(); M];
        // SAFETY: d + 8 <= width, so every access stays inside its row.
        unsafe {
            for m in 0..M {
                acc[m] = _mm256_loadu_ps(out.as_ptr().add(m * width + d));
            }
            for k in 0..n {
                let row = _mm256_loadu_ps(rows.as_ptr().add(k * width + d));
                for m in 0..M {
                    acc[m] = _mm256_fmadd_ps(_mm256_set1_ps(*p.as_ptr().add(m * n + k)), row, acc[m]);
                }
            }
            for m in 0..M {
                _mm256_storeu_ps(out.as_mut_ptr().add(m * width + d), acc[m]);
            }
        }
        d += LANES;
    }
    for d in whole..width {
        for m in 0..M {
            for k in 0..n {
                out[m * width + d] = p[m * n + k].mul_add(rows[k * width + d], out[m * width + d]);
            }
        }
    }
}
