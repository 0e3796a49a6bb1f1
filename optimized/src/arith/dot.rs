//! The dot product of this path, its portable form and the choice of instruction set.
//!
//! Element i of a dot product belongs to lane i mod 8. Each lane is one chain of fused multiply-adds in ascending i; the
//! lanes are then added in a fixed tree: ((0+4)+(2+6)) + ((1+5)+(3+7)). Any tile, batch or thread count repeats exactly
//! this, so a row's result never depends on the rows beside it.

use std::sync::OnceLock;

/// Lanes of a dot product.
pub(super) const LANES: usize = 8;

/// The fixed tree over the lanes.
#[inline]
pub(super) fn tree(l: [f32; LANES]) -> f32 {
    ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}

/// True when the AVX2 and FMA forms may be used. Both forms give the same bits.
pub(crate) fn has_simd() -> bool {
    static SIMD: OnceLock<bool> = OnceLock::new();
    *SIMD.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        {
            std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            false
        }
    })
}

/// Lane sums of one block, portable form.
#[inline]
fn lanes_portable(a: &[f32], b: &[f32], l: &mut [f32; LANES]) {
    for (i, (&x, &y)) in a.iter().zip(b).enumerate() {
        let lane = i % LANES;
        l[lane] = x.mul_add(y, l[lane]);
    }
}

/// sum_i a[i]*b[i] in the order of this module.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    debug_assert_eq!(a.len(), b.len());
    #[cfg(target_arch = "x86_64")]
    if has_simd() {
        return super::simd_dot::tile::<1, 1>([a], [b])[0][0];
    }
    dot_portable(a, b)
}

/// sum_i a[i], as the dot product with ones: the same lanes and the same tree.
pub(crate) fn sum(a: &[f32]) -> f32 {
    let (chunks, rest) = a.as_chunks::<LANES>();
    let mut l = [0.0f32; LANES];
    for chunk in chunks {
        for (l, v) in l.iter_mut().zip(chunk) {
            *l += v;
        }
    }
    for (l, v) in l.iter_mut().zip(rest) {
        *l += v;
    }
    tree(l)
}

/// The portable form of [`dot`].
pub(super) fn dot_portable(a: &[f32], b: &[f32]) -> f32 {
    let mut l = [0.0; LANES];
    lanes_portable(a, b, &mut l);
    tree(l)
}

/// `out[m,:] += sum over n of p[m,n] * rows[n,:]`: one chain of fused multiply-adds an output, in ascending n.
/// `p [M,n]`, `rows [n,width]`, `out [M,width]`.
pub(crate) fn weighted_sums(p: &[f32], rows: &[f32], width: usize, out: &mut [f32]) {
    debug_assert_eq!(p.len() / (rows.len() / width), out.len() / width);
    #[cfg(target_arch = "x86_64")]
    if has_simd() {
        super::simd_dot::weighted_sums(p, rows, width, out);
        return;
    }
    weighted_sums_portable(p, rows, width, out);
}

/// The portable form of [`weighted_sums`].
pub(super) fn weighted_sums_portable(p: &[f32], rows: &[f32], width: usize, out: &mut [f32]) {
    let n = rows.len() / width;
    for (p, out) in p.chunks_exact(n).zip(out.chunks_exact_mut(width)) {
        for (p, row) in p.iter().zip(rows.chunks_exact(width)) {
            for (o, r) in out.iter_mut().zip(row) {
                *o = p.mul_add(*r, *o);
            }
        }
    }
}
