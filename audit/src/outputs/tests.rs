use super::flips::open;
use super::judge::reach;
use super::linear::{basis, dot, inverse, norm, remove, split};

#[test]
fn two_branches_are_told_apart_by_their_coefficients() {
    // Four streams of two values: attention (1, -2) by c, experts (3, 0.5) by p, and a rest that neither can make.
    let (c, p) = ([1.0, 0.5, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]);
    let (a, f) = ([1.0, -2.0], [3.0, 0.5]);
    let mut e: Vec<f64> = (0..4).flat_map(|k| [0, 1].map(|i| c[k] * a[i] + p[k] * f[i])).collect();
    e[6] = 7.0;
    let [found, experts, rest] = split(&e, &c, &p);
    for i in 0..2 {
        assert!((found[i] - a[i]).abs() < 1e-12 && (experts[i] - f[i]).abs() < 1e-12, "{found:?} {experts:?}");
    }
    assert!((norm(&rest) - 7.0).abs() < 1e-12, "{rest:?}");
    // Where both go the same way nothing can be told apart: the mean of what the two streams say, (3.5 + 3) / 2 and (-0.5 + 0.5) / 2.
    let [found, experts, _] = split(&e, &p, &p);
    assert_eq!((found, experts), (vec![0.0, 0.0], vec![3.25, 0.0]));
}

#[test]
fn what_lies_in_a_span_is_taken_out_and_the_rest_stays() {
    let basis = basis([vec![1.0, 1.0, 0.0], vec![2.0, 2.0, 0.0], vec![0.0, 1.0, 0.0]]);
    assert_eq!(basis.len(), 2, "the second is the first");
    assert!(dot(&basis[0], &basis[1]).abs() < 1e-12);
    let mut v = vec![3.0, -4.0, 5.0];
    remove(&mut v, &basis);
    assert!(v[0].abs() < 1e-12 && v[1].abs() < 1e-12 && (v[2] - 5.0).abs() < 1e-12, "{v:?}");
}

#[test]
fn an_inverse_undoes_its_matrix_and_a_singular_one_has_none() {
    let inverse_of = inverse(&[vec![2.0, 1.0], vec![1.0, 3.0]]).unwrap();
    for (row, right) in inverse_of.iter().zip([[0.6, -0.2], [-0.2, 0.4]]) {
        assert!(row.iter().zip(right).all(|(a, b)| (a - b).abs() < 1e-12), "{inverse_of:?}");
    }
    assert!(inverse(&[vec![1.0, 2.0], vec![2.0, 4.0]]).is_none());
}

#[test]
fn decisions_are_open_as_far_as_noise_reaches() {
    let scores = [5.0, 3.0, 2.9, 1.0, f64::NEG_INFINITY];
    let chosen = |i: usize| i < 2;
    assert!(open(&scores, chosen, 0.0, 9).is_empty());
    // 0.1 apart: each within 4 sqrt(2) of 0.02.
    assert_eq!(open(&scores, chosen, 0.02, 9), [1, 2]);
    assert_eq!(open(&scores, chosen, 0.36, 9).len(), 3, "1.0 is 2.0 under the last chosen one");
    assert_eq!(open(&scores, chosen, 0.36, 1).len(), 1, "the nearest alone");
    assert!(open(&scores[..2], chosen, 9.0, 9).is_empty(), "without a choice nothing is open");
}

#[test]
fn few_draws_that_scatter_reach_further_than_the_furthest_of_them() {
    // Alike: the furthest, by hand.
    assert_eq!(reach(&[1.25; 12]), 1.25);
    // ln: half 0, half 0.5: mean 0.25, standard deviation sqrt(12 * 0.0625 / 11) = 0.26112; t 7.1, and 1/12 more variance:
    // e^(0.25 + 7.1 * 0.26112 * 1.04083) = 8.8430, over 1.5.
    let draws: Vec<f64> = (0..12).map(|i| if i % 2 == 0 { 1.0 } else { 0.5f64.exp() }).collect();
    assert!((reach(&draws) - 8.8430 / 1.5).abs() < 1e-3, "{}", reach(&draws));
    assert_eq!(reach(&[]), 0.0);
    assert_eq!(reach(&[0.0; 12]), 0.0);
    assert!(reach(&[1.0, f64::NAN]).is_nan());
}
