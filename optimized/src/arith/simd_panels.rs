//! AVX2 + FMA tiles of the products in `panels.rs`: the same chains, the same bits.

use std::arch::x86_64::{
    __m256, _mm256_add_ps, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_setzero_ps,
    _mm256_storeu_ps,
};

use super::dot::has_simd;
use super::panels::WIDTH;

/// Outputs of M rows `a [k]` and one panel `w [k, 16]`, block sums of `step` columns added in order.
#[inline]
pub(super) fn tile<const M: usize>(a: [&[f32]; M], w: &[f32], step: usize) -> [[f32; WIDTH]; M] {
    debug_assert!(has_simd());
    let k = a[0].len();
    assert!(step > 0 && w.len() == k * WIDTH && a.iter().all(|r| r.len() == k));
    // SAFETY: the caller asked `has_simd`; the rows hold k elements and the panel 16 k (asserted above).
    unsafe { tile_avx2(a.map(<[f32]>::as_ptr), w.as_ptr(), k, step) }
}

/// The scaled form: block b of row m is multiplied by `sa[m][b / ratio[0]] * sw[b / ratio[1], :]`.
#[inline]
pub(super) fn tile_scaled<const M: usize>(
    a: [&[f32]; M],
    sa: [&[f32]; M],
    w: &[f32],
    sw: &[f32],
    step: usize,
    ratio: [usize; 2],
) -> [[f32; WIDTH]; M] {
    debug_assert!(has_simd());
    let k = a[0].len();
    assert!(step > 0 && k.is_multiple_of(step) && w.len() == k * WIDTH && a.iter().all(|r| r.len() == k));
    let blocks = k / step;
    assert!(ratio[0] > 0 && ratio[1] > 0);
    assert!(sa.iter().all(|s| s.len() * ratio[0] >= blocks) && sw.len() / WIDTH * ratio[1] >= blocks);
    // SAFETY: the caller asked `has_simd`; rows, panel and scales cover `blocks` blocks (asserted above).
    unsafe {
        tile_scaled_avx2(a.map(<[f32]>::as_ptr), sa.map(<[f32]>::as_ptr), w.as_ptr(), sw.as_ptr(), step, ratio, blocks)
    }
}

type Sums<const M: usize> = [[__m256; 2]; M];

/// Sums of the columns `start..end`.
///
/// # Safety
/// AVX2 and FMA must be available; rows are valid for `end` reads, the panel for `16 * end`.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn block<const M: usize>(a: [*const f32; M], w: *const f32, start: usize, end: usize) -> Sums<M> {
    let mut t = [[_mm256_setzero_ps(); 2]; M];
    for i in start..end {
        // SAFETY: i < end.
        unsafe {
            let (low, high) = (_mm256_loadu_ps(w.add(i * WIDTH)), _mm256_loadu_ps(w.add(i * WIDTH + 8)));
            for m in 0..M {
                let av = _mm256_broadcast_ss(&*a[m].add(i));
                t[m][0] = _mm256_fmadd_ps(av, low, t[m][0]);
                t[m][1] = _mm256_fmadd_ps(av, high, t[m][1]);
            }
        }
    }
    t
}

/// # Safety
/// AVX2 and FMA must be available; rows are valid for `k` reads, the panel for `16 * k`; `step` is not 0.
#[target_feature(enable = "avx2,fma")]
unsafe fn tile_avx2<const M: usize>(a: [*const f32; M], w: *const f32, k: usize, step: usize) -> [[f32; WIDTH]; M] {
    let mut acc = [[_mm256_setzero_ps(); 2]; M];
    let mut start = 0;
    while start < k {
        let end = k.min(start + step);
        // SAFETY: end <= k.
        let t = unsafe { block(a, w, start, end) };
        for m in 0..M {
            acc[m][0] = _mm256_add_ps(acc[m][0], t[m][0]);
            acc[m][1] = _mm256_add_ps(acc[m][1], t[m][1]);
        }
        start = end;
    }
    spill(acc)
}

/// # Safety
/// AVX2 and FMA must be available; rows are valid for `blocks * step` reads, the panel for 16 times that, `sa` for
/// `ceil(blocks / ratio[0])`, `sw` for `16 * ceil(blocks / ratio[1])`.
#[target_feature(enable = "avx2,fma")]
unsafe fn tile_scaled_avx2<const M: usize>(
    a: [*const f32; M],
    sa: [*const f32; M],
    w: *const f32,
    sw: *const f32,
    step: usize,
    ratio: [usize; 2],
    blocks: usize,
) -> [[f32; WIDTH]; M] {
    let mut acc = [[_mm256_setzero_ps(); 2]; M];
    for b in 0..blocks {
        // SAFETY: b < blocks, so the block, its row scale and its panel scales are inside.
        unsafe {
            let t = block(a, w, b * step, (b + 1) * step);
            let at = sw.add(b / ratio[1] * WIDTH);
            let (low, high) = (_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8)));
            for m in 0..M {
                let s = _mm256_broadcast_ss(&*sa[m].add(b / ratio[0]));
                acc[m][0] = _mm256_fmadd_ps(t[m][0], _mm256_mul_ps(s, low), acc[m][0]);
                acc[m][1] = _mm256_fmadd_ps(t[m][1], _mm256_mul_ps(s, high), acc[m][1]);
            }
        }
    }
    spill(acc)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn spill<const M: usize>(acc: Sums<M>) -> [[f32; WIDTH]; M] {
    let mut out = [[0.0; WIDTH]; M];
    for m in 0..M {
        // SAFETY: a row of `out` holds 16 floats.
        unsafe {
            _mm256_storeu_ps(out[m].as_mut_ptr(), acc[m][0]);
            _mm256_storeu_ps(out[m].as_mut_ptr().add(8), acc[m][1]);
        }
    }
    out
}
