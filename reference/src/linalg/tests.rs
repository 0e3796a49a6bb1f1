use proptest::prelude::*;

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_path_gives_the_normative_bits(m in 1usize..40, n in 1usize..50, k in 1usize..400, seed: u64) {
        let (x, w) = (values(m * k, seed), values(n * k, !seed));
        let packed = pack(&w, n, k);
        let mut want = vec![0f32; m * n];
        for i in 0..m {
            for j in 0..n {
                want[i * n + j] = dot_by_hand(&x[i * k..(i + 1) * k], &w[j * k..(j + 1) * k]) as f32;
            }
        }
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for &isa in Isa::available() {
            prop_assert_eq!(bits(&matmul(isa, &rows(&x, k), &packed)), bits(&want), "{:?}", isa);
            for threads in [1, 2, 3] {
                let pool = Pool::with_isa(threads, isa).unwrap();
                let got = pool.install(|| matmul(isa, &rows(&x, k), &packed));
                prop_assert_eq!(bits(&got), bits(&want), "{:?} on {} threads", isa, threads);
            }
        }
    }

    #[test]
    fn reductions_give_the_normative_bits(m in 1usize..9, k in 1usize..300, width in 1usize..70, seed: u64) {
        let (a, v) = (values(m * k, seed), values(k * width, !seed));
        let column = |d: usize| (0..k).map(|j| v[j * width + d]).collect::<Vec<_>>();
        for &isa in Isa::available() {
            let mut out = vec![0f64; m * width];
            mix_rows(isa, &rows(&a, k), &rows(&v, width), width, &mut out, &mut Scratch::default());
            for (i, row) in out.chunks(width).enumerate() {
                for (d, got) in row.iter().enumerate() {
                    prop_assert_eq!(got.to_bits(), dot_by_hand(&a[i * k..(i + 1) * k], &column(d)).to_bits());
                }
            }
            let mut ss = vec![0f64; k];
            sums_of_squares(isa, &v, width, &mut ss);
            let mut dots = vec![0f32; k];
            dot_lanes(isa, &v, &v[..width], &mut dots, &mut Vec::new());
            for (j, row) in v.chunks(width).enumerate() {
                prop_assert_eq!(ss[j].to_bits(), dot_by_hand(row, row).to_bits());
                prop_assert_eq!(dots[j].to_bits(), (dot_by_hand(row, &v[..width]) as f32).to_bits());
            }
            let weights = values(k * width, seed ^ 5);
            let mut pooled = vec![0f64; width];
            pool_slots(isa, &rows(&weights, width), &rows(&v, width), &mut pooled, &mut vec![0f32; width]);
            for d in 0..width {
                let w: Vec<f32> = (0..k).map(|j| weights[j * width + d]).collect();
                prop_assert_eq!(pooled[d].to_bits(), dot_by_hand(&w, &column(d)).to_bits());
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

#[test]
#[ignore = "slow: a benchmark, prints GFLOP/s (run with --include-ignored in release)"]
fn gemm_speed() {
    for (m, k, n) in [(512, 4096, 2048), (2048, 256, 1024), (333, 128, 384), (16, 4096, 2048), (1, 4096, 2048)] {
        let (x, w) = (values(m * k, 1), values(n * k, 2));
        let packed = pack(&w, n, k);
        for &isa in &Isa::available()[1..] {
            let best = (0..5)
                .map(|_| {
                    let start = std::time::Instant::now();
                    std::hint::black_box(matmul(isa, &rows(&x, k), &packed));
                    start.elapsed().as_secs_f64()
                })
                .fold(f64::INFINITY, f64::min);
            let threads = rayon::current_num_threads();
            let rate = 2.0 * (m * k * n) as f64 / best / 1e9;
            println!("{isa:?} {m}x{k}x{n}: {rate:.1} GFLOP/s on {threads} threads");
        }
    }
}
