use proptest::prelude::*;

use super::*;
use crate::support::{close, noise, sum};

fn one(g: &[f64], c: &[f64], target: Option<u32>) -> Position {
    let t = |v: &[f64]| Tensor::f64([1, v.len()], v.to_vec());
    positions(&t(g), &t(c), &[target], 5).unwrap().remove(0)
}

fn softmax(l: &[f64]) -> Vec<f64> {
    let max = l.iter().fold(f64::NEG_INFINITY, |a: f64, b| a.max(*b));
    let z = sum(l.iter().map(|l| (l - max).exp()));
    l.iter().map(|l| (l - max).exp() / z).collect()
}

#[test]
fn divergences_equal_their_formulas() {
    for scale in [1.0, 0.1, 8.0] {
        let g = noise(4, 500);
        let c: Vec<f64> = g.iter().zip(noise(9, 500)).map(|(g, e)| g + scale * e).collect();
        let (p, q) = (softmax(&g), softmax(&c));
        let kl = |a: &[f64], b: &[f64]| sum(a.iter().zip(b).map(|(a, b)| a * (a / b).ln()));
        let m: Vec<f64> = p.iter().zip(&q).map(|(p, q)| f64::midpoint(*p, *q)).collect();
        let got = one(&g, &c, Some(17));
        close(got.kl, kl(&p, &q), 1e-10);
        close(got.js, f64::midpoint(kl(&p, &m), kl(&q, &m)), 1e-9);
        close(got.delta_logit_rms, (sum(g.iter().zip(&c).map(|(g, c)| (c - g).powi(2))) / 500.0).sqrt(), 1e-12);
        close(got.target_log_prob_golden.unwrap(), p[17].ln(), 1e-12);
        close(got.target_log_prob.unwrap(), q[17].ln(), 1e-12);
        let rank = |l: &[f64]| 1 + l.iter().filter(|v| **v > l[17]).count() as u32;
        assert_eq!((got.target_rank_golden, got.target_rank), (Some(rank(&g)), Some(rank(&c))));
    }
}

#[test]
fn tiny_differences_keep_their_kl() {
    // KL of a tiny change e·v is e²/2·Var_p(v) to first order; at e = 1e-7 that is 1e-15, under the rounding of ln p.
    let g = noise(4, 300);
    let v = noise(8, 300);
    let p = softmax(&g);
    let mean = sum(p.iter().zip(&v).map(|(p, v)| p * v));
    let var = sum(p.iter().zip(&v).map(|(p, v)| p * (v - mean).powi(2)));
    for e in [1e-4, 1e-7] {
        let c: Vec<f64> = g.iter().zip(&v).map(|(g, v)| g + e * v).collect();
        let got = one(&g, &c, None);
        close(got.kl, 0.5 * e * e * var, 20.0 * e + 1e-8);
        close(got.kl_from_variance, got.kl, 20.0 * e + 1e-7);
    }
}

#[test]
fn a_constant_added_to_all_logits_changes_no_distribution() {
    let g = noise(1, 100);
    let c: Vec<f64> = g.iter().map(|g| g + 3.5).collect();
    let got = one(&g, &c, Some(0));
    assert!(got.kl < 1e-28 && got.js < 1e-25 && got.kl_from_variance < 1e-28);
    close(got.delta_logit_rms, 3.5, 1e-14);
    assert_eq!(got.target_rank, got.target_rank_golden);
}

#[test]
fn first_choices_margins_and_overlap() {
    let g = [1.0, 5.0, 4.0, 5.0, 0.0, 0.5];
    let c = [1.0, 4.0, 6.0, 5.0, 0.0, 0.5];
    let got = one(&g, &c, Some(3));
    assert_eq!((got.top1_golden, got.top1_candidate, got.is_flip()), (1, 2, true));
    assert_eq!((got.margin_golden, got.margin_candidate, got.flip_margin), (0.0, 1.0, 1.0));
    // A tie ranks the lower id first.
    assert_eq!((got.target_rank_golden, got.target_rank, got.top_k_overlap), (Some(2), Some(2), 1.0));
    let t = |v: &[f64]| Tensor::f64([1, 6], v.to_vec());
    let two = positions(&t(&g), &t(&c), &[None], 2).unwrap()[0];
    assert_eq!((two.top_k_overlap, two.target_rank), (0.5, None));
    assert_eq!(one(&[2.0], &[3.0], Some(0)).margin_golden, f64::INFINITY);
    assert_eq!(one(&g, &g, None).flip_margin, 0.0);
}

#[test]
fn forbidden_tokens_and_rows_without_a_distribution() {
    let inf = f64::INFINITY;
    let both = one(&[1.0, -inf, 2.0], &[1.0, -inf, 2.0], Some(1));
    assert_eq!((both.kl, both.js, both.nonfinite), (0.0, 0.0, 0));
    assert_eq!(both.target_log_prob, Some(-inf));
    let forbids = one(&[1.0, 0.0, 2.0], &[1.0, -inf, 2.0], None);
    assert_eq!((forbids.kl, forbids.kl_from_variance), (inf, inf));
    assert!(forbids.js > 0.0 && forbids.js < 0.1);
    let allows = one(&[1.0, -inf], &[1.0, 1.0], None);
    close(allows.kl, 2f64.ln(), 1e-12);
    let apart = one(&[0.0, -inf], &[-inf, 0.0], None);
    close(apart.js, 2f64.ln(), 1e-15);
    for bad in [[f64::NAN, 0.0], [inf, 0.0], [-inf, -inf]] {
        let got = one(&bad, &[0.0, 0.0], Some(0));
        assert!(!got.is_comparable() && got.is_flip() && got.js.is_nan() && got.target_rank.is_none());
        assert_eq!(got.nonfinite, u64::from(bad[0] > -inf || bad[0].is_nan()));
        assert!(!one(&[0.0, 0.0], &bad, Some(0)).is_comparable());
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let t = |s: [usize; 2]| Tensor::f32(s, vec![0.0; s[0] * s[1]]);
    assert!(positions(&t([2, 3]), &t([2, 4]), &[None; 2], 1).is_err());
    assert!(positions(&t([2, 3]), &t([2, 3]), &[None], 1).is_err());
    assert!(positions(&t([1, 3]), &t([1, 3]), &[Some(3)], 1).is_err());
    assert!(positions(&t([1, 0]), &t([1, 0]), &[None], 1).is_err());
    assert!(positions(&t([1, 1]), &Tensor::i64([1, 1], vec![0]), &[None], 1).is_err());
    assert!(positions(&t([0, 3]), &t([0, 3]), &[], 1).unwrap().is_empty());
}

#[test]
fn flip_probability_is_the_normal_tail() {
    // Φ(-z) at z = 0, 1, 2, 3 (tables); z = m/(s·√2).
    for (z, p) in [(0.0, 0.5), (1.0, 0.158_655_253_931_457), (2.0, 0.022_750_131_948_179), (3.0, 0.001_349_898_031_630)]
    {
        close(expected_flip_probability(z * 0.3 * std::f64::consts::SQRT_2, 0.3), p, 1e-11);
    }
    assert_eq!((expected_flip_probability(1.0, 0.0), expected_flip_probability(0.0, 0.0)), (0.0, 0.5));
    assert_eq!(expected_flip_probability(f64::INFINITY, 1.0), 0.0);
}

#[test]
fn summaries_by_hand() {
    let s = Summary::of([4.0, 1.0, f64::NAN, 3.0, 2.0]);
    assert_eq!((s.n, s.nan, s.mean, s.p50, s.max), (4, 1, 2.5, 2.5, 4.0));
    close(s.rms, 7.5f64.sqrt(), 1e-15);
    // Sample variance 5/3, so the error of the mean is √(5/12).
    close(s.standard_error, (5.0f64 / 12.0).sqrt(), 1e-15);
    close(s.p90, 3.7, 1e-15);
    let long = Summary::of((0..=1000).map(f64::from));
    assert_eq!((long.p99, long.p999), (990.0, 999.0));
    let none = Summary::of([f64::NAN]);
    assert!(none.n == 0 && none.nan == 1 && none.mean.is_nan() && none.max.is_nan());
    assert!(Summary::of([1.0]).standard_error.is_nan());
}

proptest! {
    #[test]
    fn divergences_are_never_negative_and_zero_for_equal_rows(seed: u64, n in 1usize..200, scale in 0.0f64..3.0) {
        let g = noise(seed, n);
        let c: Vec<f64> = g.iter().zip(noise(seed ^ 1, n)).map(|(g, e)| g + scale * e).collect();
        let got = one(&g, &c, Some((n / 2) as u32));
        prop_assert!(got.kl >= 0.0 && got.js >= 0.0 && got.js <= std::f64::consts::LN_2);
        // Pinsker-type bound: JS never exceeds KL/2 + ... ; here the simple one, JS <= (KL(p‖q)+KL(q‖p))/4.
        let back = one(&c, &g, None);
        prop_assert!(got.js <= 0.25 * (got.kl + back.kl) + 1e-14);
        prop_assert!((got.js - back.js).abs() <= 1e-14);
        let same = one(&g, &g, None);
        prop_assert_eq!((same.kl, same.js, same.delta_logit_rms, same.top_k_overlap), (0.0, 0.0, 0.0, 1.0));
    }

    #[test]
    fn permuting_the_vocabulary_keeps_the_divergences(seed: u64, n in 2usize..100, turn in 0usize..100) {
        let (g, e) = (noise(seed, n), noise(seed ^ 5, n));
        let c: Vec<f64> = g.iter().zip(e).map(|(g, e)| g + e / 8.0).collect();
        let rot = |v: &[f64]| { let mut v = v.to_vec(); v.rotate_left(turn % n); v };
        let (a, b) = (one(&g, &c, None), one(&rot(&g), &rot(&c), None));
        prop_assert!((a.kl - b.kl).abs() <= 1e-12 * a.kl + 1e-18);
        prop_assert_eq!((a.margin_golden, a.top_k_overlap), (b.margin_golden, b.top_k_overlap));
    }

    #[test]
    fn any_bits_give_a_position(bits in proptest::collection::vec(any::<(u32, u32)>(), 1..40), target in 0u32..40) {
        let row = |f: fn(&(u32, u32)) -> u32| bits.iter().map(|b| f64::from(f32::from_bits(f(b)))).collect::<Vec<_>>();
        let got = one(&row(|b| b.0), &row(|b| b.1), Some(target % bits.len() as u32));
        let t = |v: Vec<f64>| Tensor::f64([1, v.len()], v);
        let choice = first_choices(&t(row(|b| b.0)), &t(row(|b| b.1))).unwrap().remove(0);
        prop_assert_eq!(choice.is_flip, got.is_flip());
        prop_assert_eq!(choice.flip_margin.to_bits(), got.flip_margin.to_bits());
        prop_assert!(got.nonfinite > 0 || got.is_comparable() || bits.iter().all(|b| f32::from_bits(b.0) < -1e38 || f32::from_bits(b.1) < -1e38));
    }
}

#[test]
fn a_choice_among_many_changes_more_often_than_a_choice_among_two() {
    // One other id: the closed form.
    for (m, s) in [(0.0, 1.0), (0.5, 1.0), (2.0, 0.7), (3.0, 1.0)] {
        let got = expected_choice_change([1.0, 1.0 - m].into_iter(), s);
        let want = if m == 0.0 { 0.5 } else { expected_flip_probability(m, s) };
        close(got, want, 1e-9);
    }
    // k ids that tie: by symmetry the first stays with chance 1/k.
    for k in [2usize, 3, 10] {
        close(expected_choice_change(std::iter::repeat_n(4.0, k), 0.3), 1.0 - 1.0 / k as f64, 1e-9);
        close(expected_choice_change(std::iter::repeat_n(4.0, k), 0.0), 1.0 - 1.0 / k as f64, 1e-15);
    }
    // Ids that cannot win do not count; nor do ids that are no numbers.
    close(
        expected_choice_change([0.0, -1.0, -1e6, f64::NEG_INFINITY, f64::NAN].into_iter(), 1.0),
        expected_flip_probability(1.0, 1.0),
        1e-9,
    );
    assert_eq!(expected_choice_change(std::iter::empty(), 1.0), 0.0);
    assert_eq!(expected_choice_change([5.0, 4.0].into_iter(), 0.0), 0.0);
}
