use super::*;
use crate::support::noise;

/// Decoded as the doc comment says: (e, r).
fn told(key: i32) -> (i32, i32) {
    let sum = key - KEY_ZERO;
    let e = (sum + 1).div_euclid(2);
    (e, sum - e)
}

#[test]
fn keys_tell_the_exponents_of_difference_and_quotient() {
    let (d, x) = (noise(1, 4000), noise(2, 4000));
    for (d, x) in d.as_chunks::<4>().0.iter().zip(x.as_chunks::<4>().0) {
        let keys = Plain::load(d).keys(Plain::load(x));
        for i in 0..4 {
            if d[i] == 0.0 || x[i] == 0.0 {
                continue;
            }
            let log = |v: f64| v.abs().log2().floor() as i32;
            // Quotients of two 24-bit numbers are never so near a power of two that log2 rounds over it.
            assert_eq!(told(keys[i]), (log(d[i]) - log(x[i]), log(d[i] / x[i])), "{} {}", d[i], x[i]);
        }
    }
    assert_eq!(Plain::splat(0.0).keys(Plain::splat(1.0)), [0; 4]);
    assert_eq!(Plain::splat(1e300).keys(Plain::splat(-1e-300)), [255; 4]);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn both_implementations_give_the_same_bits() {
    if !std::arch::is_x86_feature_detected!("avx2") {
        return;
    }
    let mut a = noise(3, 4000);
    let b = noise(4, 4000);
    a[..4].copy_from_slice(&[0.0, -0.0, f64::MAX, 5e-324]);
    for (a, b) in a.as_chunks::<4>().0.iter().zip(b.as_chunks::<4>().0) {
        assert_eq!(all::<Plain>(a, b), all::<Avx2>(a, b));
    }
}

#[cfg(target_arch = "x86_64")]
fn all<Q: Quad>(a: &[f64; 4], b: &[f64; 4]) -> Vec<u64> {
    let narrow = b.map(|v| v as f32);
    let (a, b) = (Q::load(a), Q::load(b));
    let out = [a.add(b), a.sub(b), a.mul(b), a.abs(), a.larger(b), a.signed_by(b), Q::widen(&narrow), Q::splat(2.5)];
    let keys = a.keys(b).map(|k| k as u64);
    out.iter().flat_map(|q| q.array().map(f64::to_bits)).chain(keys).collect()
}
