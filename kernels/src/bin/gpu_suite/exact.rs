//! The operations in f64 on the CPU, from the formulas, for small shapes.

use crate::numbers::from_bf16;

fn dot(a: impl Iterator<Item = f64>, b: impl Iterator<Item = f64>) -> f64 {
    a.zip(b).map(|(x, y)| x * y).sum()
}

/// Output [64, 512] of one sequence of sparse MLA (spec 2.9); `chosen` has rows of the cache, or -1.
pub(crate) fn mla(q: &[u16], cache: &[u16], chosen: &[i32], sink: &[f32]) -> Vec<f64> {
    let wide = |bits: &[u16]| -> Vec<f64> { bits.iter().map(|b| f64::from(from_bf16(*b))).collect() };
    let keys: Vec<Vec<f64>> =
        chosen.iter().filter(|c| **c >= 0).map(|c| wide(&cache[*c as usize * 512..][..512])).collect();
    let mut out = Vec::new();
    for (head, sink) in q.chunks(512).zip(sink) {
        let head = wide(head);
        let mut den = f64::from(*sink).exp();
        let mut sum = vec![0.0; 512];
        for key in &keys {
            let p = (dot(head.iter().copied(), key.iter().copied()) / 512.0_f64.sqrt()).exp();
            den += p;
            sum.iter_mut().zip(key).for_each(|(s, v)| *s += p * v);
        }
        out.extend(sum.iter().map(|s| s / den));
    }
    out
}

/// Product [m, n] of a [m, k] and w [n, k].
pub(crate) fn gemm(a: &[f32], w: &[u16], k: usize) -> Vec<f64> {
    let mut out = Vec::new();
    for a in a.chunks(k) {
        out.extend(
            w.chunks(k).map(|w| dot(a.iter().map(|v| f64::from(*v)), w.iter().map(|b| f64::from(from_bf16(*b))))),
        );
    }
    out
}
