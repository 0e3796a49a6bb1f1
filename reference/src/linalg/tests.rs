use proptest::prelude::*;
use rayon::prelude::*;

use super::*;

/// The normative dot product, word for word.
fn dot_by_hand(a: &[f32], b: &[f32]) -> f64 {
    let mut total = 0f64;
    for (x, y) in a.chunks(128).zip(b.chunks(128)) {
        let mut acc = 0f32;
        for (&x, &y) in x.iter().zip(y) {
            acc = x.mul_add(y, acc);
        }
        total += f64::from(acc);
    }
    total
}

/// Values of mixed size, from a seed.
fn values(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let unit = (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
            unit * [1.0f32, 1e-3, 30.0, 1.0][(state >> 33) as usize % 4]
        })
        .collect()
}

fn rows(x: &[f32], k: usize) -> Vec<&[f32]> {
    if k == 0 { Vec::new() } else { x.chunks(k).collect() }
}

fn pack(w: &[f32], n: usize, k: usize) -> Packed<f32> {
    Packed::from_rows(n, k, |i, out| out.copy_from_slice(&w[i * k..(i + 1) * k]))
}

/// On every instruction set and several threads: the same as the normative dot product.
fn multiply_everywhere(m: usize, n: usize, k: usize, seed: u64) {
    let (x, w) = (values(m * k, seed), values(n * k, !seed));
    let packed = pack(&w, n, k);
    let place = |i: usize| dot_by_hand(&x[i / n * k..][..k], &w[i % n * k..][..k]) as f32;
    let want: Vec<u32> = (0..m * n).into_par_iter().map(|i| place(i).to_bits()).collect();
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for &isa in Isa::available() {
        assert_eq!(bits(&matmul(isa, &rows(&x, k), &packed)), want, "{isa:?} {m} {n} {k}");
        for threads in [1, 2, 3] {
            let pool = Pool::with_isa(threads, isa).unwrap();
            let got = pool.install(|| matmul(isa, &rows(&x, k), &packed));
            assert_eq!(bits(&got), want, "{isa:?} on {threads} threads, {m} {n} {k}");
        }
    }
}

/// Tiles that are full, halves, rests of every size; one slab and two, more rows than one task takes, and few rows of a
/// wide weight, which is cut by panels.
#[test]
fn every_cut_of_a_product_gives_the_normative_bits() {
    for m in 1..=25 {
        multiply_everywhere(m, 16 * (m % 8) + 9, 40 * m, m as u64);
    }
    for (m, n, k) in [(400, 24, 130), (200, 40, 2200), (13, 900, 300), (36, 200, 2049), (1, 1000, 513), (97, 16, 300)] {
        multiply_everywhere(m, n, k, k as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_path_gives_the_normative_bits(m in 1usize..60, n in 1usize..200, k in 1usize..1200, seed: u64) {
        multiply_everywhere(m, n, k, seed);
    }

    #[test]
    fn reductions_give_the_normative_bits(m in 1usize..20, k in 1usize..400, width in 1usize..150, seed: u64) {
        let (a, v) = (values(k * m, seed), values(k * width, !seed));
        let column = |x: &[f32], n: usize, d: usize| (0..k).map(|j| x[j * n + d]).collect::<Vec<_>>();
        let den: Vec<f64> = values(m, seed ^ 7).iter().map(|&v| f64::from(v) * 1.1).collect();
        for &isa in Isa::available() {
            let (mut out, mut divided) = (vec![0f32; m * width], vec![0f32; m * width]);
            mix_rows(isa, &a, m, &rows(&v, width), None, &mut out);
            mix_rows(isa, &a, m, &rows(&v, width), Some(&den), &mut divided);
            for i in 0..m {
                for d in 0..width {
                    let want = dot_by_hand(&column(&a, m, i), &column(&v, width, d));
                    prop_assert_eq!(out[i * width + d].to_bits(), (want as f32).to_bits());
                    prop_assert_eq!(divided[i * width + d].to_bits(), ((want / den[i]) as f32).to_bits());
                }
            }
            let mut ss = vec![0f64; k];
            sums_of_squares(isa, &v, width, &mut ss);
            for (j, row) in v.chunks(width).enumerate() {
                prop_assert_eq!(ss[j].to_bits(), dot_by_hand(row, row).to_bits());
            }
        }
    }

    #[test]
    fn softmax_gives_the_normative_bits(n in 1usize..300, m in 1usize..20, seed: u64) {
        let (scores, sink) = (values(n * m, seed), values(m, !seed));
        let weight = |s: f32, max: f32| libm::exp(f64::from(s - max)) as f32;
        for &isa in Isa::available() {
            let (mut p, mut max, mut den) = (scores.clone(), vec![0f32; m], vec![0f64; m]);
            SinkSoftmax { scores: &mut p, scale: 0.3, sink: &sink, max: &mut max, den: &mut den }.run_on(isa);
            let mut pooled = vec![0f32; m];
            let v = values(n * m, seed ^ 3);
            pool_slots(isa, &rows(&scores, m), &rows(&v, m), &mut pooled, &mut PoolBuffers::default());
            for h in 0..m {
                let column: Vec<f32> = (0..n).map(|j| scores[j * m + h] * 0.3).collect();
                let top = column.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let want: Vec<f32> = column.iter().map(|&s| weight(s, top)).collect();
                for j in 0..n {
                    prop_assert_eq!(p[j * m + h].to_bits(), want[j].to_bits());
                }
                let sum = want.iter().fold(0f64, |sum, &p| sum + f64::from(p)) + f64::from(weight(sink[h], top));
                prop_assert_eq!((max[h].to_bits(), den[h].to_bits()), (top.to_bits(), sum.to_bits()));

                let column: Vec<f32> = (0..n).map(|j| scores[j * m + h]).collect();
                let top = column.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let want: Vec<f32> = column.iter().map(|&s| weight(s, top)).collect();
                let num = dot_by_hand(&want, &(0..n).map(|j| v[j * m + h]).collect::<Vec<_>>());
                let den = want.iter().fold(0f64, |sum, &p| sum + f64::from(p));
                prop_assert_eq!(pooled[h].to_bits(), ((num / den) as f32).to_bits());
            }
        }
    }

    #[test]
    fn index_scores_give_the_normative_bits(
        s in 1usize..10, heads in 1usize..9, keys in 1usize..200, k in 1usize..150, short in 0usize..40, seed: u64,
    ) {
        let (x, key, w) = (values(s * heads * k, seed), values(keys * k, !seed), values(s * heads, seed ^ 9));
        let n = |t: usize| keys.saturating_sub(short * (s - 1 - t));
        for &isa in Isa::available() {
            let mut scores = vec![f32::NEG_INFINITY; s * keys];
            let mut out: Vec<&mut [f32]> =
                scores.chunks_exact_mut(keys).enumerate().map(|(t, row)| &mut row[..n(t)]).collect();
            let packed = pack(&key, keys, k);
            relu_scores(isa, &rows(&x, k), &packed, &w, &mut out, &mut ScoreBuffers::default());
            for t in 0..s {
                for j in 0..keys {
                    let above = |h: usize| {
                        let row = &x[(t * heads + h) * k..][..k];
                        let dot = dot_by_hand(row, &key[j * k..(j + 1) * k]) as f32;
                        if dot <= 0.0 { 0.0 } else { dot }
                    };
                    let dots: Vec<f32> = (0..heads).map(above).collect();
                    let want = dot_by_hand(&dots, &w[t * heads..(t + 1) * heads]) as f32;
                    let want = if j < n(t) { want } else { f32::NEG_INFINITY };
                    prop_assert_eq!(scores[t * keys + j].to_bits(), want.to_bits());
                }
            }
        }
    }

    #[test]
    fn f64_mode_sums_in_f64(m in 1usize..14, k in 1usize..300, seed: u64) {
        let x: Vec<f64> = values(m * k, seed).iter().map(|&v| f64::from(v)).collect();
        let refs: Vec<&[f64]> = x.chunks(k).collect();
        let packed = Packed::from_rows(m, k, |i, out| out.copy_from_slice(refs[i]));
        for &isa in Isa::available() {
            let got = matmul(isa, &refs, &packed);
            for i in 0..m {
                for j in 0..m {
                    let exact: f64 = refs[i].iter().zip(refs[j]).map(|(a, b)| a * b).sum();
                    let size: f64 = refs[i].iter().zip(refs[j]).map(|(a, b)| (a * b).abs()).sum();
                    prop_assert!((got[i * m + j] - exact).abs() <= 1e-13 * size);
                }
            }
        }
    }
}

#[test]
fn a_not_a_number_is_not_lost() {
    let x = [f32::NAN, 1.0];
    let got = matmul(Isa::best(), &[&x[..]], &pack(&[0.0, 1.0], 1, 2));
    assert!(got[0].is_nan());
    assert!(f32::NAN.softplus().is_nan() && f32::NAN.silu().is_nan() && f32::NAN.sigmoid().is_nan());
}

#[test]
fn functions_at_their_ends() {
    assert_eq!(f32::softplus(20.5), 20.5);
    assert!((f64::from(f32::softplus(0.0)) - std::f64::consts::LN_2).abs() < 3e-8);
    // ln(1 + e^-100) = e^-100 to f64 precision: it must not vanish as 1 + e^-100 would.
    assert!((f64::from(f32::softplus(-80.0)) / (-80f64).exp() - 1.0).abs() < 1e-7);
    assert_eq!(f32::sigmoid(-200.0), 0.0);
    assert_eq!(f32::sigmoid(200.0), 1.0);
    assert_eq!(f32::silu(-200.0), 0.0);
}

#[derive(Clone, Copy)]
struct Exp;

impl Function<f32> for Exp {
    fn of(&self, v: f32) -> f32 {
        // Not the standard library's, which an f32 would rather take.
        Real::exp(v)
    }
}

#[derive(Clone, Copy)]
struct Softplus;

impl Function<f32> for Softplus {
    fn of(&self, v: f32) -> f32 {
        v.softplus()
    }
}

/// The definitions.
fn exp(v: f32) -> f32 {
    libm::exp(f64::from(v)) as f32
}

fn softplus(v: f32) -> f32 {
    if v > 20.0 { v } else { libm::log1p(libm::exp(f64::from(v))) as f32 }
}

fn compare(isa: Isa, x: &[f32], of: impl Function<f32> + Copy, want: impl Fn(usize, f32) -> f32) {
    let mut y = x.to_vec();
    map(isa, &mut y, of);
    for (i, (&x, y)) in x.iter().zip(y).enumerate() {
        let want = want(i, x);
        assert!(y.to_bits() == want.to_bits() || y.is_nan() && want.is_nan(), "{isa:?} {x:e}: {y:e}, not {want:e}");
    }
}

#[test]
fn vector_functions_give_the_bits_of_their_definition() {
    let x: Vec<f32> = (0..1 << 32).step_by(4099).map(|bits: u64| f32::from_bits(bits as u32)).collect();
    for &isa in Isa::available() {
        compare(isa, &x, Exp, |_, x| exp(x));
        compare(isa, &x, Softplus, |_, x| softplus(x));
    }
}

/// Every eighth f32, in all binades; all 2^32 with `KARAT_EVERY_F32=1` (minutes; last run on 2026-11-30). Where the rounded
/// function is constant (or the identity), every argument is compared with that value and every thousandth with
/// the definition; everywhere else all are compared with the definition.
#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn vector_functions_give_the_bits_of_their_definition_in_every_binade() {
    let step = if std::env::var_os("KARAT_EVERY_F32").is_some() { 1 } else { 8 };
    (0..1u32 << 12).into_par_iter().for_each(|block| {
        // Another remainder in each block of the low bits.
        let low = (block % step..1u32 << 20).step_by(step as usize);
        let x: Vec<f32> = low.map(|low| f32::from_bits(block << 20 | low)).collect();
        let (lowest, highest) = (x[0].abs(), x[x.len() - 1].abs());
        let flat = if highest < 2f32.powi(-26) || lowest >= 128.0 { 1000 } else { 1 };
        let constant = |v: f32, near_zero: f32, high: f32| match v {
            v if v.is_nan() || v.abs() < 1.0 => near_zero + v,
            v if v > 0.0 => high,
            _ => 0.0,
        };
        let isa = Isa::best();
        compare(isa, &x, Exp, |i, x| if i.is_multiple_of(flat) { exp(x) } else { constant(x, 1.0, f32::INFINITY) });
        compare(
            isa,
            &x,
            Softplus,
            |i, x| if i.is_multiple_of(flat) { softplus(x) } else { constant(x, softplus(0.0), x) },
        );
    });
}

/// A weight `[n,k]` that lies by rows.
struct ByRows<'a> {
    w: &'a [f32],
    k: usize,
}

impl Stored<f32> for ByRows<'_> {
    fn inputs(&self) -> usize {
        self.k
    }

    fn panel(&self, _: Isa, rows: std::ops::Range<usize>, ks: std::ops::Range<usize>, out: &mut [[f32; LANES]]) {
        for (k, out) in ks.zip(out) {
            *out = [0.0; LANES];
            rows.clone().zip(out).for_each(|(n, v)| *v = self.w[n * self.k + k]);
        }
    }
}

/// One block of inputs and many, one group of panels and many, a last panel of few outputs, more rows than are taken at once,
/// and two weights of one copy of the rows.
#[test]
fn weights_that_are_decoded_on_the_way_give_the_normative_bits() {
    for (m, n, k) in
        [(1, 16, 40), (7, 130, 256), (48, 40, 257), (13, 7, 513), (400, 33, 300), (36, 200, 2049), (0, 16, 300)]
    {
        let (x, w) = (values(m * k, k as u64), [values(n * k, 3), values(n * k, 4)]);
        let place = |w: &[f32], i: usize| dot_by_hand(&x[i / n * k..][..k], &w[i % n * k..][..k]) as f32;
        let want = w.each_ref().map(|w| (0..m * n).map(|i| place(w, i).to_bits()).collect::<Vec<_>>());
        let stored = w.each_ref().map(|w| ByRows { w, k });
        for &isa in Isa::available() {
            let mut out = [vec![f32::NAN; m * n], vec![f32::NAN; m * n]];
            let mut products: Vec<Times<'_, f32>> =
                stored.iter().zip(&mut out).map(|(w, out)| Times { w, n, out }).collect();
            multiply_stored(isa, &rows(&x, k), &mut products);
            for (out, want) in out.iter().zip(&want) {
                assert_eq!(&out.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), want, "{isa:?} {m} {n} {k}");
            }
            // By all threads, all outputs and some, between columns of others.
            for (threads, outputs) in [(1, 0..n), (3, 0..n), (4, n / 3..n - n / 5)] {
                let (stride, first) = (outputs.len() + 3, 2);
                let mut out = vec![7.0; m * stride];
                let pool = Pool::with_isa(threads, isa).unwrap();
                pool.install(|| {
                    multiply_wide(isa, &rows(&x, k), &stored[0], outputs.clone(), (&mut out, stride, first));
                });
                let right = |(i, v): (usize, &f32)| match (i % stride).checked_sub(first) {
                    Some(j) if j < outputs.len() => v.to_bits() == want[0][i / stride * n + outputs.start + j],
                    _ => *v == 7.0,
                };
                assert!(out.iter().enumerate().all(right), "{isa:?} {m} {n} {k}, {threads} threads, {outputs:?}");
            }
            let packed = Packed::of_stored(isa, &stored[0], 0, n);
            assert!((0..packed.panels()).all(|p| packed.panel(p) == pack(&w[0], n, k).panel(p)), "{isa:?} {n} {k}");
        }
    }
}
