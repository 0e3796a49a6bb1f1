use proptest::prelude::*;

use super::*;
use crate::support::{close, noise, pair, sum, tensor};
use crate::{Storage, measure};

fn three(seed: u64, n: usize) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (a, b) = pair(seed, n);
    let e = noise(seed ^ 0x77, n);
    let c = b.iter().zip(&e).map(|(b, e)| f64::from((b + e / 1024.0) as f32)).collect();
    (a, b, c)
}

fn run(shape: &[usize], a: &[f64], b: &[f64], c: &[f64], parts: usize) -> Split {
    let grid = Grid::new(shape[0], shape[1..].iter().product()).equal_parts(parts).unwrap();
    split("t", &tensor(shape, a), &tensor(shape, b), &tensor(shape, c), &grid).unwrap()
}

#[test]
fn norms_per_stream_row_and_whole_equal_their_formulas() {
    let shape = [37, 4, 96];
    let n = 37 * 4 * 96;
    let (a, b, c) = three(9, n);
    let split = run(&shape, &a, &b, &c, 4);
    let check = |got: SplitSums, inside: &dyn Fn(usize) -> bool| {
        let at = || (0..n).filter(|&i| inside(i));
        let norm = |p: &[f64], q: &[f64]| sum(at().map(|i| (p[i] - q[i]) * (p[i] - q[i]))).sqrt();
        close(got.total(), norm(&c, &a), 1e-12);
        close(got.inherited(), norm(&b, &a), 1e-12);
        close(got.injected(), norm(&c, &b), 1e-12);
        close(got.golden(), sum(at().map(|i| a[i] * a[i])).sqrt(), 1e-12);
        let cross = sum(at().map(|i| (b[i] - a[i]) * (c[i] - b[i])));
        assert!((got.cross - cross).abs() <= 1e-13 * got.inherited() * got.injected());
        assert!(got.closure() <= 1e-12, "{}", got.closure());
    };
    check(split.whole, &|_| true);
    for stream in 0..4 {
        check(split.part(stream), &|i| i / 96 % 4 == stream);
    }
    for (row, sums) in split.rows.iter().enumerate() {
        check(*sums, &|i| i / (4 * 96) == row);
    }
}

proptest! {
    #[test]
    fn total_is_inherited_plus_injected_element_by_element(bits in proptest::collection::vec(any::<[u32; 3]>(), 1..64)) {
        let values: Vec<[f32; 3]> = bits.iter().map(|b| b.map(f32::from_bits)).collect();
        let finite: Vec<[f64; 3]> =
            values.iter().filter(|v| v.iter().all(|v| v.is_finite())).map(|v| v.map(f64::from)).collect();
        for [a, b, c] in &finite {
            let (t, h, j) = (c - a, b - a, c - b);
            let most = [a, b, c].iter().fold(0.0f64, |m, v| m.max(v.abs()));
            prop_assert!((t - (h + j)).abs() <= 2f64.powi(-50) * most);
        }
        if !finite.is_empty() {
            let column = |i: usize| finite.iter().map(|v| v[i]).collect::<Vec<f64>>();
            let split = run(&[1, finite.len()], &column(0), &column(1), &column(2), 1);
            prop_assert!(split.whole.closure() <= 1e-12, "{}", split.whole.closure());
        }
    }
}

#[test]
fn a_candidate_that_is_golden_injects_nothing() {
    let (a, b, _) = three(3, 64);
    let s = run(&[8, 8], &a, &b, &b, 1).whole;
    assert_eq!((s.injected(), s.cross, s.closure()), (0.0, 0.0, 0.0));
    assert_eq!(s.total(), s.inherited());
    let first = run(&[8, 8], &a, &a, &b, 1).whole;
    assert_eq!((first.inherited(), first.total()), (0.0, first.injected()));
}

#[test]
fn amplification_is_inherited_over_what_came_in() {
    let x = noise(1, 40);
    let x2: Vec<f64> = x.iter().enumerate().map(|(i, v)| if i == 7 { v + 0.5 } else { *v }).collect();
    let triple = |v: &[f64]| v.iter().map(|v| 3.0 * v).collect::<Vec<_>>();
    let (a, b) = (triple(&x), triple(&x2));
    let s = run(&[4, 10], &a, &b, &b, 1).whole;
    let input = |p: &[f64], q: &[f64]| {
        let (p, q) = (tensor(&[4, 10], p), tensor(&[4, 10], q));
        measure("x", &p, &q, Storage::F32, &Grid::of(&p)).unwrap().total.sums
    };
    close(s.amplification(&input(&x, &x2)).unwrap(), 3.0, 1e-6);
    assert_eq!(s.amplification(&input(&x, &x)), None);
}

#[test]
fn a_value_that_is_not_finite_takes_the_norms() {
    let (a, mut b, mut c) = three(4, 30);
    c[11] = f64::NAN;
    b[12] = f64::INFINITY;
    let split = run(&[3, 10], &a, &b, &c, 1);
    assert_eq!(split.whole.nonfinite, 2);
    assert!(split.whole.total().is_nan() && split.whole.injected().is_nan() && split.whole.inherited().is_nan());
    assert!(split.rows[0].total().is_finite() && split.rows[1].total().is_nan());
    let inf = f64::NEG_INFINITY;
    let masked = run(&[1, 2], &[inf, 1.0], &[inf, 1.0], &[inf, 2.0], 1).whole;
    assert_eq!((masked.masked, masked.nonfinite, masked.total()), (1, 0, 1.0));
}

#[test]
fn every_instruction_set_and_thread_count_gives_the_same_bits() {
    let (a, b, mut c) = three(6, 3 * 40_000);
    c[7] = f64::NAN;
    assert_eq!(simd::pass(&a, &b, &c), simd::plain(&a, &b, &c));
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run(&[3, 40_000], &a, &b, &c, 8))
    };
    let one = with(1);
    assert_eq!(one, with(3));
    assert_eq!((one.whole.nonfinite, one.rows.len()), (1, 3));
}

#[test]
fn f64_tensors_and_what_is_refused() {
    let (a, b, c) = three(5, 12);
    let wide = |v: &[f64]| Tensor::f64([3, 4], v.to_vec());
    let grid = Grid::new(3, 4);
    let s = split("t", &wide(&a), &wide(&b), &wide(&c), &grid).unwrap();
    assert_eq!(s.whole, run(&[3, 4], &a, &b, &c, 1).whole);
    assert!(split("t", &wide(&a), &tensor(&[3, 4], &b), &wide(&c), &grid).is_err());
    assert!(split("t", &wide(&a), &wide(&b), &Tensor::f64([4, 3], c), &grid).is_err());
    assert!(split("t", &wide(&a), &wide(&b), &Tensor::i64([3, 4], vec![0; 12]), &grid).is_err());
}

proptest! {
    #[test]
    fn the_split_closes(seed: u64, rows in 1usize..9, width in 1usize..200, size in 0i32..24) {
        let n = rows * width;
        let a = noise(seed, n);
        let shrink = f64::exp2(f64::from(-size));
        let near = |from: &[f64], salt: u64| {
            let e = noise(seed ^ salt, n);
            from.iter().zip(&e).map(|(v, e)| f64::from((v + e * shrink) as f32)).collect::<Vec<_>>()
        };
        let b = near(&a, 1);
        let c = near(&b, 2);
        let s = run(&[rows, width], &a, &b, &c, 1);
        prop_assert!(s.whole.closure() <= 1e-12);
        // T = H + J elementwise, in f64.
        for i in 0..n {
            let (t, h, j) = (c[i] - a[i], b[i] - a[i], c[i] - b[i]);
            prop_assert!((t - (h + j)).abs() <= 1e-15 * (t.abs() + h.abs() + j.abs()));
        }
    }
}
