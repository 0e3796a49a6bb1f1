use proptest::prelude::*;

use super::*;
use crate::support::{close, f32s, noise, pair, sum, tensor};

fn total(x: &[f64], y: &[f64], storage: Storage) -> Moments {
    let (x, y) = (tensor(&[1, x.len()], x), tensor(&[1, y.len()], y));
    measure("t", &x, &y, storage, &Grid::of(&x)).unwrap().total
}

#[test]
fn every_sum_equals_its_formula() {
    for n in [1, 3, 7, 8, 9, 127, 128, 129, 1000, 70_001] {
        let (x, y) = pair(n as u64, n);
        let s = total(&x, &y, Storage::F32).sums;
        let pairs = || x.iter().copied().zip(y.iter().copied());
        let scale = sum(pairs().map(|(x, y)| x.abs() + y.abs()));
        let near = |got: f64, expected: f64| assert!((got - expected).abs() <= 1e-14 * scale, "{got} {expected}");
        assert_eq!((s.n, s.finite, s.masked, s.nonfinite()), (n as u64, n as u64, 0, 0));
        near(s.x, sum(x.iter().copied()));
        near(s.y, sum(y.iter().copied()));
        near(s.d, sum(pairs().map(|(x, y)| y - x)));
        near(s.outward_d, sum(pairs().map(|(x, y)| (y - x) * x.signum())));
        near(s.xd, sum(pairs().map(|(x, y)| x * (y - x))));
        close(s.abs_d, sum(pairs().map(|(x, y)| (y - x).abs())), 1e-13);
        close(s.xx, sum(pairs().map(|(x, _)| x * x)), 1e-13);
        close(s.yy, sum(pairs().map(|(_, y)| y * y)), 1e-13);
        close(s.xy, sum(pairs().map(|(x, y)| x * y)), 1e-13);
        close(s.dd, sum(pairs().map(|(x, y)| (y - x) * (y - x))), 1e-13);
        let max = pairs().map(|(x, y)| (y - x).abs()).fold(0.0, f64::max);
        let at = pairs().position(|(x, y)| (y - x).abs() == max).unwrap() as u64;
        assert_eq!((s.max_abs, s.max_abs_at), (max, Some(At { row: 0, column: at })));
        assert_eq!(s.max_x, x.iter().fold(0.0, |a: f64, b| a.max(b.abs())));
        assert_eq!(s.max_y, y.iter().fold(0.0, |a: f64, b| a.max(b.abs())));
    }
}

#[test]
fn histograms_place_each_pair_by_its_exponent() {
    let x = [1.0, 1.0, 1.5, 2.0, -4.0, 0.0, 3.0];
    let ulp = f64::exp2(-7.0);
    // Off by 0, 1, 1/2, 3 bf16 ulp (2.0's ulp is 2^-6), 1.25; golden zero; off by 100 %.
    let y = [1.0, 1.0 + ulp, 1.5 + ulp / 2.0, 2.0 + 6.0 * ulp, -4.0 - 5.0 * ulp, 1.0, 6.0];
    let m = total(&x, &y, Storage::Bf16);
    let at = |h: &Histogram, e: i32| h.buckets()[(e - h.lowest()) as usize];
    assert_eq!((m.ulp.zeros(), m.relative.zeros(), m.ulp.len(), m.relative.len()), (1, 1, 7, 7));
    assert_eq!((at(&m.ulp, 0), at(&m.ulp, -1), at(&m.ulp, 1)), (2, 1, 1));
    // 3 is off by 3 = 192 ulp of 2^-6, and golden's zero has the ulp of the smallest normal number.
    assert_eq!((at(&m.ulp, 7), at(&m.ulp, 31)), (1, 1));
    assert_eq!((at(&m.relative, -7), at(&m.relative, 0), at(&m.relative, 15)), (2, 1, 1));
    // 1/128 and 5/512 share a bucket; 1/384; 3/128.
    assert_eq!((at(&m.relative, -9), at(&m.relative, -6)), (1, 1));
    assert_eq!(m.relative.buckets().iter().sum::<u64>(), 6);
}

#[test]
fn every_f32_pair_of_neighbours_is_one_ulp_apart() {
    for x in [1.0f32, 1.999, 0.1, 3e-39, 1e-45, 65504.0, 1e38] {
        let y = f32::from_bits(x.to_bits() + 1);
        let m = total(&[f64::from(x)], &[f64::from(y)], Storage::F32);
        assert_eq!(m.ulp.buckets()[(-m.ulp.lowest()) as usize], 1, "{x}");
    }
}

#[test]
fn nothing_that_is_not_a_number_vanishes() {
    let inf = f64::INFINITY;
    let mut x = noise(3, 300);
    let mut y = x.clone();
    let clean = total(&x, &y, Storage::Bf16);
    for (i, (a, b)) in [(f64::NAN, 1.0), (1.0, f64::NAN), (f64::NAN, f64::NAN), (inf, inf), (-inf, 1.0), (-inf, -inf)]
        .into_iter()
        .enumerate()
    {
        x[i * 41] = a;
        y[i * 41] = b;
    }
    let m = total(&x, &y, Storage::Bf16);
    let s = m.sums;
    assert_eq!((s.n, s.finite, s.masked, s.nonfinite()), (300, 294, 1, 5));
    assert_eq!((s.nan_x, s.nan_y, s.inf_x, s.inf_y), (2, 2, 2, 1));
    assert_eq!((m.relative.len(), m.ulp.len()), (294, 294));
    assert!(s.dd == 0.0 && s.xx < clean.sums.xx && s.xx.is_finite());
}

#[test]
fn saturated_values_and_lost_zeros_are_counted() {
    let x = [500.0, -900.0, 1.0, 0.0, 0.0, 447.0];
    let y = [448.0, -448.0, 0.0, 1.0, 0.0, 447.0];
    let s = total(&x, &y, Storage::E4m3).sums;
    assert_eq!((s.saturated, s.zero_lost, s.zero_gained), (2, 1, 1));
    assert_eq!(total(&x, &y, Storage::Mxfp4).sums.saturated, 0);
    assert!(total(&x, &y, Storage::Mxfp4).ulp.is_empty());
    let big = half::bf16::MAX.to_f64();
    assert_eq!(total(&[1.0], &[big], Storage::Bf16).sums.saturated, 1);
    assert_eq!(total(&[1.0], &[65504.0], Storage::F16).sums.saturated, 1);
}

fn grid_cases() -> Vec<(Vec<usize>, usize)> {
    vec![
        (vec![5, 4, 3], 4),
        (vec![700, 100], 2),
        (vec![3, 70_000], 2),
        (vec![1, 100_000], 1),
        (vec![0, 4], 2),
        (vec![9, 0], 1),
    ]
}

#[test]
fn same_bits_for_every_thread_count_and_instruction_set() {
    for (shape, parts) in grid_cases() {
        let n = shape.iter().product();
        let (x, y) = pair(11, n);
        let (x, y) = (tensor(&shape, &x), tensor(&shape, &y));
        let grid = Grid::of(&x).equal_parts(parts).unwrap();
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| measure("t", &x, &y, Storage::Bf16, &grid).unwrap())
        };
        let one = run(1);
        assert_eq!(one, run(2));
        assert_eq!(one, run(5));
    }
}

#[test]
fn vector_and_plain_code_give_the_same_bits() {
    for (n, storage) in [(4001, Storage::Bf16), (4000, Storage::F32), (777, Storage::F16), (20, Storage::Mxfp4)] {
        let (mut x, mut y) = pair(5, n);
        (x[n / 2], y[n / 3]) = (f64::NAN, 0.0);
        let narrow = (f32s(&x), f32s(&y));
        let sides = [(Values::F32(&narrow.0), Values::F32(&narrow.1)), (Values::F64(&x), Values::F32(&narrow.1))];
        for (x, y) in sides {
            let shape = [1, n];
            let view = |values| View { shape: &shape, values };
            let pair = Pair::new("t", view(x), view(y), Format::of(storage), 3, &Grid::new(1, n)).unwrap();
            let counted = |tally: Tally| {
                let offenders = tally.offenders.clone().into_vec();
                (tally.settle(Format::of(storage)), offenders)
            };
            let (mut wide, mut plain) = (Tally::default(), Tally::default());
            let full = simd::pass::<true>(&pair, 0..n, &mut wide);
            assert_eq!(full, simd::plain::<true>(&pair, 0..n, &mut plain));
            assert_eq!(counted(wide), counted(plain));
            let core = simd::pass::<false>(&pair, 0..n, &mut Tally::default());
            assert_eq!(core, simd::plain::<false>(&pair, 0..n, &mut Tally::default()));
            assert_eq!(CoreSums::of(&core), CoreSums::of(&full));
        }
    }
}

/// Values on which the sums' exact order shows: everything is added lane by lane in a plain loop, in f64.
fn by_hand(x: &[f64], y: &[f64]) -> [f64; 6] {
    let mut lanes = [[0.0f64; 8]; 6];
    for (i, (x, y)) in x.iter().zip(y).enumerate() {
        let d = y - x;
        for (sum, value) in lanes.iter_mut().zip([*x, x * x, x * y, d * d, d.abs(), x * d]) {
            sum[i % 8] += value;
        }
    }
    lanes.map(|l| ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7])))
}

#[test]
fn rows_parts_and_classes_cover_the_whole() {
    for (shape, parts) in grid_cases() {
        let n = shape.iter().product();
        let (x, y) = pair(12, n);
        let classes: Vec<u32> = (0..shape[0]).map(|r| (r / 2 % 3) as u32).collect();
        let (tx, ty) = (tensor(&shape, &x), tensor(&shape, &y));
        let grid = Grid::of(&tx).equal_parts(parts).unwrap().classes(classes.clone()).unwrap();
        let m = measure("t", &tx, &ty, Storage::F32, &grid).unwrap();
        assert_eq!((m.total.sums.n, m.rows.len()), (n as u64, shape[0]));
        let width = n / shape[0].max(1);
        for (r, row) in m.rows.iter().enumerate() {
            let dd = sum((r * width..(r + 1) * width).map(|i| (y[i] - x[i]) * (y[i] - x[i])));
            close(row.dd, dd, 1e-13);
            assert!(row.max_abs_at.is_none_or(|at| at.row == r as u64));
        }
        for part in 0..parts {
            let inside = |i: &usize| grid.part_columns(part).contains(&(i % width.max(1)));
            let dd = sum((0..n).filter(inside).map(|i| (y[i] - x[i]) * (y[i] - x[i])));
            close(m.part(part).sums.dd, dd, 1e-13);
        }
        for class in 0..3 {
            let inside = |i: &usize| classes[i / width] == class;
            let dd = sum((0..n).filter(inside).map(|i| (y[i] - x[i]) * (y[i] - x[i])));
            close(m.class(class).sums.dd, dd, 1e-13);
        }
        let counted: u64 = m.cells.values().map(|c| c.relative.len()).sum();
        assert_eq!((counted, m.total.relative.len()), (n as u64, n as u64));
    }
}

#[test]
fn the_position_is_the_true_coordinate() {
    let mut y = vec![0.0; 3 * 70_000];
    y[2 * 70_000 + 65_001] = 5.0;
    y[70_000 + 3] = -2.0;
    let (x, y) = (tensor(&[3, 70_000], &vec![0.0; 3 * 70_000]), tensor(&[3, 70_000], &y));
    let m = measure("t", &x, &y, Storage::F32, &Grid::of(&x).equal_parts(7).unwrap()).unwrap();
    assert_eq!(m.total.sums.max_abs_at, Some(At { row: 2, column: 65_001 }));
    assert_eq!(m.rows[1].max_abs_at, Some(At { row: 1, column: 3 }));
    assert_eq!(m.part(0).sums.max_abs_at, Some(At { row: 1, column: 3 }));
}

#[test]
fn parts_repeat_as_heads_and_scale_blocks_do() {
    let columns = |g: &Grid| (0..g.part_count()).map(|p| g.part_columns(p)).collect::<Vec<_>>();
    let heads = Grid::new(3, 20).repeated(&[7, 3]).unwrap();
    assert_eq!(columns(&heads), [0..7, 7..10, 10..17, 17..20]);
    assert_eq!(columns(&Grid::new(3, 20).repeated(&[8]).unwrap()), [0..8, 8..16, 16..20]);
    assert_eq!(columns(&Grid::new(0, 0).repeated(&[8]).unwrap()), std::slice::from_ref(&(0..0)));
    assert!(Grid::new(3, 20).repeated(&[]).is_err() && Grid::new(3, 20).repeated(&[4, 0]).is_err());
    let mut y = vec![0.0; 60];
    y[20 + 18] = 1.0;
    let (x, y) = (tensor(&[3, 20], &[1.0; 60]), tensor(&[3, 20], &y.iter().map(|v| v + 1.0).collect::<Vec<_>>()));
    let m = measure("t", &x, &y, Storage::F32, &heads).unwrap();
    assert_eq!([0, 1, 2, 3].map(|p| m.part(p).sums.dd), [0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn element_types_mix_and_integers_are_refused() {
    let (x, y) = pair(1, 12);
    let single = total(&x, &y, Storage::F32);
    let (a, b) = (Tensor::f64([1, 12], x.clone()), Tensor::f64([1, 12], y.clone()));
    let grid = Grid::of(&a);
    for (p, q) in [(&a, &b), (&tensor(&[1, 12], &x), &b), (&a, &tensor(&[1, 12], &y))] {
        assert_eq!(measure("t", p, q, Storage::F32, &grid).unwrap().total, single);
    }
    let ints = Tensor::i64([1, 12], vec![0; 12]);
    assert!(measure("t", &a, &ints, Storage::F32, &grid).is_err());
    assert!(measure("t", &ints, &a, Storage::F32, &grid).is_err());
    let error = measure("layers.0.out", &a, &Tensor::f64([2, 6], x), Storage::F32, &grid).unwrap_err().to_string();
    assert_eq!(error, "layers.0.out: expected shape [1, 12], found [2, 6]");
    assert!(Grid::new(2, 5).equal_parts(2).is_err() && Grid::new(2, 5).parts(vec![3]).is_err());
    assert!(Grid::new(2, 5).parts(vec![4, 3, 5]).is_err() && Grid::new(2, 5).classes(vec![0]).is_err());
}

#[test]
fn stored_rows_of_any_length_have_the_sums_of_rows_in_memory() {
    // Beyond a chunk and odd: what was decoded before must not be added again.
    for width in [255, 257, 300, 513, 1023, 2051] {
        let (x, y) = pair(width as u64, 2 * width);
        let (x, y) = (f32s(&x), f32s(&y));
        let bytes = |v: &[f32]| -> Vec<u8> { v.iter().flat_map(|v| v.to_le_bytes()).collect() };
        let (bx, by) = (bytes(&x), bytes(&y));
        let (shape, grid) = ([2, width], Grid::new(2, width));
        let stored = |b| View { shape: &shape, values: Values::Stored(crate::Code::F32, b) };
        let held = |v| View { shape: &shape, values: Values::F32(v) };
        let full = |x, y| measure_views("t", x, y, Storage::F32, 3, &grid).unwrap();
        assert_eq!(full(stored(&bx), stored(&by)), full(held(&x), held(&y)), "{width}");
        let core = measure_core("t", stored(&bx), held(&y), &grid).unwrap();
        assert_eq!(core, measure_core("t", held(&x), held(&y), &grid).unwrap(), "{width}");
        // By hand, so that both are right.
        let right = sum(x.iter().map(|v| f64::from(*v)));
        assert!((core.total.x - right).abs() < 1e-10, "{width}");
    }
}

#[test]
fn histogram_quantiles_lie_in_the_right_bucket() {
    let mut buckets = vec![0; 64];
    buckets[32] = 98;
    buckets[35] = 2;
    let h = Histogram::from_counts(-32, 100, &buckets).unwrap();
    assert_eq!((h.len(), h.quantile(0.5), h.quantile(0.0)), (200, Some(0.0), Some(0.0)));
    close(h.quantile(0.745).unwrap(), 1.5, 1e-12);
    close(h.quantile(1.0).unwrap(), 16.0, 1e-12);
    assert_eq!(Histogram::ulp().quantile(0.5), None);
    assert!(Histogram::from_counts(0, 0, &[0; 65]).is_none());
}

proptest! {
    #[test]
    fn the_bits_are_those_of_a_plain_loop(seed: u64, rows in 1usize..5, width in 1usize..700, double: bool, threads in 1usize..4) {
        let n = rows * width;
        let (mut x, y) = pair(seed, n);
        if double {
            x.iter_mut().for_each(|v| *v *= 1.0 + f64::EPSILON);
        }
        let tx = if double { Tensor::f64([rows, width], x.clone()) } else { tensor(&[rows, width], &x) };
        let ty = tensor(&[rows, width], &y);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let grid = Grid::of(&tx);
        let m = pool.install(|| measure("t", &tx, &ty, Storage::Bf16, &grid)).unwrap();
        let mut whole = [0.0; 6];
        for (r, row) in m.rows.iter().enumerate() {
            let at = r * width..(r + 1) * width;
            let expected = by_hand(&x[at.clone()], &y[at]);
            prop_assert_eq!([row.x, row.xx, row.xy, row.dd, row.abs_d, row.xd], expected);
            whole.iter_mut().zip(expected).for_each(|(sum, v)| *sum += v);
        }
        let s = m.total.sums;
        prop_assert_eq!([s.x, s.xx, s.xy, s.dd, s.abs_d, s.xd], whole);
        let (vx, vy) = (View::of("t", &tx).unwrap(), View::of("t", &ty).unwrap());
        let core = pool.install(|| measure_core("t", vx, vy, &grid)).unwrap();
        let cell = Cell { class: 0, part: 0 };
        prop_assert_eq!(core.total, CoreSums::of(&m.cells[&cell].sums));
    }

    #[test]
    fn offenders_are_the_worst_in_order(seed: u64, rows in 1usize..40, width in 1usize..90, wanted in 0usize..9, threads in 1usize..4) {
        let n = rows * width;
        let (x, mut y) = pair(seed, n);
        // Ties: the same pair again further on.
        y[n - 1] = x[n - 1];
        let far = n / 2;
        y[far] = x[far] + 3.0;
        y[far / 2] = x[far / 2] + 3.0;
        let (tx, ty) = (tensor(&[rows, width], &x), tensor(&[rows, width], &y));
        let mut expected: Vec<(f64, usize)> =
            f32s(&x).iter().zip(f32s(&y)).map(|(x, y)| (f64::from(y) - f64::from(*x)).abs()).zip(0..).filter(|p| p.0 > 0.0).collect();
        expected.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let grid = Grid::of(&tx).classes((0..rows as u32).map(|r| r % 2).collect()).unwrap();
        let views = (View::of("t", &tx).unwrap(), View::of("t", &ty).unwrap());
        let m = pool.install(|| measure_views("t", views.0, views.1, Storage::F32, wanted, &grid)).unwrap();
        let found: Vec<(f64, usize)> =
            m.offenders.iter().map(|o| (o.distance(), o.at.row as usize * width + o.at.column as usize)).collect();
        prop_assert_eq!(&found[..], &expected[..wanted.min(expected.len())]);
    }

    #[test]
    fn merging_pieces_equals_the_whole(seed: u64, n in 3usize..400, cut_a in 0usize..400, cut_b in 0usize..400) {
        let (x, y) = pair(seed, n);
        let (a, b) = (cut_a.min(cut_b).min(n), cut_a.max(cut_b).min(n));
        let piece = |r: std::ops::Range<usize>| total(&x[r.clone()], &y[r], Storage::Bf16);
        let (p, q, r) = (piece(0..a), piece(a..b), piece(b..n));
        let mut left = p.clone();
        left.merge(&q);
        left.merge(&r);
        let mut right = q;
        right.merge(&r);
        let mut joined = p;
        joined.merge(&right);
        let whole = total(&x, &y, Storage::Bf16);
        for m in [&left, &joined] {
            prop_assert_eq!(&m.relative, &whole.relative);
            prop_assert_eq!(&m.ulp, &whole.ulp);
            prop_assert_eq!((m.sums.n, m.sums.zero_lost, m.sums.max_abs), (whole.sums.n, whole.sums.zero_lost, whole.sums.max_abs));
            close(m.sums.dd, whole.sums.dd, 1e-13);
            close(m.sums.xx, whole.sums.xx, 1e-13);
            close(m.sums.abs_d, whole.sums.abs_d, 1e-13);
        }
    }

    #[test]
    fn permuting_rows_permutes_rows_and_keeps_the_whole(seed: u64, rows in 1usize..12, width in 1usize..40, shift in 0usize..12) {
        let (x, y) = pair(seed, rows * width);
        let turn = |v: &[f64]| { let mut v = v.to_vec(); v.rotate_left(shift % rows * width); v };
        let run = |x: &[f64], y: &[f64]| {
            let (x, y) = (tensor(&[rows, width], x), tensor(&[rows, width], y));
            measure("t", &x, &y, Storage::F16, &Grid::of(&x)).unwrap()
        };
        let (plain, turned) = (run(&x, &y), run(&turn(&x), &turn(&y)));
        for r in 0..rows {
            let (a, b) = (plain.rows[(r + shift) % rows], turned.rows[r]);
            prop_assert_eq!((a.dd, a.xy, a.max_abs), (b.dd, b.xy, b.max_abs));
        }
        prop_assert_eq!(&plain.total.ulp, &turned.total.ulp);
        close(plain.total.sums.dd, turned.total.sums.dd, 1e-13);
    }

    #[test]
    fn any_bits_are_accounted_for(bits in proptest::collection::vec(any::<(u32, u32)>(), 0..300)) {
        let x: Vec<f32> = bits.iter().map(|b| f32::from_bits(b.0)).collect();
        let y: Vec<f32> = bits.iter().map(|b| f32::from_bits(b.1)).collect();
        let n = bits.len();
        let bad = x.iter().zip(&y).filter(|(x, y)| !x.is_finite() || !y.is_finite()).count() as u64;
        let (x, y) = (Tensor::f32([1, n], x), Tensor::f32([1, n], y));
        let m = measure("t", &x, &y, Storage::F32, &Grid::of(&x)).unwrap().total;
        prop_assert_eq!(m.sums.nonfinite() + m.sums.masked, bad);
        prop_assert_eq!((m.relative.len(), m.ulp.len()), (n as u64 - bad, n as u64 - bad));
        prop_assert!(!m.sums.dd.is_nan() && !m.sums.xy.is_nan());
    }
}
