use super::*;
use crate::support::noise;

/// Decoded as the doc comment says: (e, r).
fn told(key: u8) -> (i32, i32) {
    let sum = i32::from(key) - KEY_ZERO;
    let e = (sum + 1).div_euclid(2);
    (e, sum - e)
}

fn keys<Q: Quad>(d: &[f64; LANES], x: &[f64; LANES]) -> [u8; LANES] {
    let mut out = [0; LANES];
    for half in 0..Q::HALVES {
        Q::load(d, half).keys(Q::load(x, half), &mut out, half);
    }
    out
}

#[test]
fn keys_tell_the_exponents_of_difference_and_quotient() {
    let (d, x) = (noise(1, 4000), noise(2, 4000));
    for (d, x) in d.as_chunks::<LANES>().0.iter().zip(x.as_chunks::<LANES>().0) {
        let keys = keys::<Plain>(d, x);
        for i in 0..LANES {
            if d[i] == 0.0 || x[i] == 0.0 {
                continue;
            }
            let log = |v: f64| v.abs().log2().floor() as i32;
            // Quotients of two 24-bit numbers are never so near a power of two that log2 rounds over it.
            assert_eq!(told(keys[i]), (log(d[i]) - log(x[i]), log(d[i] / x[i])), "{} {}", d[i], x[i]);
        }
    }
    assert_eq!(keys::<Plain>(&[0.0; LANES], &[1.0; LANES]), [0; LANES]);
    assert_eq!(keys::<Plain>(&[1e300; LANES], &[-1e-300; LANES]), [255; LANES]);
}

#[test]
fn sums_of_lanes_have_their_order() {
    // Large values cancel only in the order of the doc comment.
    let v = [1e17, 1.0, 3.0, 1e17, -1e17, 2.0, 4.0, -1e17];
    assert_eq!(Plain::join([Plain::load(&v, 0), Plain::load(&v, 1)]), 10.0);
    assert_eq!(Plain::largest([Plain::load(&v, 0), Plain::load(&v, 1)]), 1e17);
    assert_eq!(Plain::largest([Plain::splat(-1.0); 2]), 0.0);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn all_implementations_give_the_same_bits() {
    let avx2 = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    let avx512 = std::arch::is_x86_feature_detected!("avx512f");
    let mut a = noise(3, 4000);
    let b = noise(4, 4000);
    a[..8].copy_from_slice(&[0.0, -0.0, f64::MAX, 5e-324, 1.0, -1.0, 1e-300, f64::MIN_POSITIVE]);
    for (a, b) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
        let want = all::<Plain>(a, b);
        if avx2 {
            assert_eq!(want, all::<Avx2>(a, b));
        }
        if avx512 {
            assert_eq!(want, all::<Avx512>(a, b));
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn all<Q: Quad>(a: &[f64; LANES], b: &[f64; LANES]) -> Vec<u64> {
    let (na, nb) = (a.map(|v| v as f32), b.map(|v| v as f32));
    let mut out = Vec::new();
    let mut joined = [[Q::splat(0.0); 2]; 2];
    for half in 0..Q::HALVES {
        let (wa, wb) = (Q::widen(&na, half), Q::widen(&nb, half));
        let (a, b) = (Q::load(a, half), Q::load(b, half));
        for joined in &mut joined {
            joined[half] = a;
        }
        joined[1][half] = b;
        let all = [
            a.add(b),
            a.sub(b),
            a.mul(b),
            a.plus_exact(wa, wb),
            a.abs(),
            a.larger(b),
            a.signed_by(b),
            wb,
            Q::splat(2.5),
        ];
        for (i, v) in all.into_iter().enumerate() {
            out.resize(9, [0.0; LANES]);
            v.store(&mut out[i], half);
        }
    }
    let held = (0..Q::HALVES).any(|half| Q::load(a, half).holds(a[5]));
    let more = [u64::from(held), Q::join(joined[0]).to_bits(), Q::largest(joined[1]).to_bits()];
    let bits = out.iter().flatten().map(|v| v.to_bits());
    bits.chain(keys::<Q>(a, b).map(u64::from)).chain(more).collect()
}
