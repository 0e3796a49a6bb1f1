use karat_seam::Phase;

use super::flips::open;
use super::judge::{Draws, Factors, Judged, Name, Scale, Statistic, statistics};
use super::linear::{basis, dot, inverse, norm, remove, split};
use super::unmix::Branch;

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
fn what_coefficients_are_off_by_is_told_from_an_error_of_attention() {
    // Two ways with a sine near 0.2, and an experts' sum (3, 4, 0) that goes into the streams by coefficients 0.01 off in the second.
    let (c, p) = ([1.0, 1.0, 1.0, 1.0], [1.2, 1.2, 0.8, 0.8]);
    let (sum, across) = ([3.0, 4.0, 0.0], [0.0, 0.0, 0.02]);
    let off = [0.0, 0.01, 0.0, 0.0];
    let e: Vec<f64> = (0..4).flat_map(|k| [0, 1, 2].map(|i| off[k] * sum[i] + c[k] * across[i])).collect();
    let [mut attention, ..] = split(&e, &c, &p);
    // (pp ce - cp pe) / (cc pp - cp cp) with cc 4, cp 4, pp 4.16, ce 0.01 and pe 0.012: -0.0064 / 0.64 = -0.01 sums.
    for (found, right) in attention.iter().zip([-0.03, -0.04, 0.02]) {
        assert!((found - right).abs() < 1e-12, "{attention:?}");
    }
    // Two and a half times what attention itself errs by; without the sum's own direction that alone is left.
    remove(&mut attention, &basis([sum.to_vec()]));
    assert!(attention.iter().zip(across).all(|(found, right)| (found - right).abs() < 1e-12), "{attention:?}");
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
    assert!(open(&scores, chosen, |_| 0.0, 9).is_empty());
    // 0.1 apart: each within 4 sqrt(2) of 0.02.
    assert_eq!(open(&scores, chosen, |_| 0.02, 9), [1, 2]);
    assert_eq!(open(&scores, chosen, |_| 0.36, 9).len(), 3, "1.0 is 2.0 under the last chosen one");
    assert_eq!(open(&scores, chosen, |_| 0.36, 1).len(), 1, "the nearest alone");
    // 1.0 alone is noisy: 4 times 0.5 reach over the 2.0.
    assert_eq!(open(&scores, chosen, |i| if i == 3 { 0.51 } else { 0.0 }, 9), [3]);
    assert!(open(&scores[..2], chosen, |_| 9.0, 9).is_empty(), "without a choice nothing is open");
}

const FACTORS: Factors = Factors { all: 1.5, attention: [1.5, 4.0] };

/// Draws that have these values of one statistic.
fn drawn(name: Name, values: &[f64]) -> Draws {
    let mut draws = Draws::new(200);
    // 0.002 over 200: 1e-5.
    values.chunks(12).for_each(|some| draws.extend(some.iter().map(|v| vec![Statistic::made(name, *v)])));
    draws
}

#[test]
fn a_statistic_passes_near_the_draws_fails_beyond_chance_and_asks_for_more_between() {
    let name = (0, Phase::Prefill, "tenth", 0);
    let judged = |value: f64, of: &Draws, n: usize| Statistic::made(name, value).judged(of, n, FACTORS).unwrap();
    // All alike: 1.5 times the furthest is all there is.
    let alike = drawn(name, &[1.25; 12]);
    assert_eq!(judged(1.87, &alike, 12), (Judged::Passes, 1.875));
    assert_eq!(judged(1.88, &alike, 12).0, Judged::Fails);
    assert_eq!(judged(f64::NAN, &alike, 12).0, Judged::Fails);
    // ln: half 0, half 0.5: mean 0.25, standard deviation sqrt(12 * 0.0625 / 11) = 0.26112; one in 100,000 is beyond 7.0974 of
    // Student's t of 11 degrees (scipy), and 1/12 more variance: e^(0.25 + 7.0974 * 0.26112 * 1.04083) = 8.8367.
    let scattered: Vec<f64> = (0..24).map(|i| if i % 2 == 0 { 1.0 } else { 0.5f64.exp() }).collect();
    let scattered = drawn(name, &scattered);
    let (found, limit) = judged(3.0, &scattered, 12);
    assert_eq!(found, Judged::Undecided, "over 1.5 e^0.5 = 2.47");
    assert!((limit - 8.8367).abs() < 1e-3, "{limit}");
    assert!(judged(3.0, &scattered, 24).1 < limit, "more of the same draws say more");
    assert_eq!(judged(8.9, &scattered, 12).0, Judged::Fails);
    assert!(
        Statistic::made((1, Phase::Prefill, "tenth", 0), 9.0).judged(&scattered, 12, FACTORS).is_none(),
        "none was drawn"
    );
}

/// A branch of 40 rows of one value part (1, 0), which err by `error` across it.
fn branch(error: impl Fn(usize) -> [f64; 2]) -> Branch {
    let errors: Vec<[f64; 2]> = (0..40).map(error).collect();
    let off = errors.iter().map(|e| norm(e)).collect();
    Branch {
        error: errors.concat(),
        width: 2,
        size: vec![1.0; 40],
        off,
        is_closed: vec![true; 40],
        parts: vec![[1.0, 0.0].repeat(40)],
        along: Vec::new(),
        blur: vec![1.0; 40],
        is_one_op: true,
    }
}

#[test]
fn no_single_row_carries_a_gain_and_what_all_rows_have_does() {
    let nothing = || branch(|_| [0.0; 2]);
    let wave = |s: usize| [0.01 * (1.0 - 2.0 * (s % 2) as f64), 0.01 * (1.0 - (s / 2 % 2) as f64 * 2.0)];
    let right = [branch(wave), nothing(), nothing()];
    let scale = Scale::of(&[&right, &right]);
    let gain = |of: Branch| {
        let all = statistics(&[of, nothing(), nothing()], &scale, &[Phase::Prefill; 40], &[], 1);
        let draws = drawn((0, Phase::Prefill, "gain", 0), &[1.0; 24]);
        let gain = all.into_iter().find(|s| s.name == (0, Phase::Prefill, "gain", 0)).unwrap();
        gain.judged(&draws, 24, FACTORS).unwrap().0
    };
    assert_eq!(gain(branch(wave)), Judged::Passes);
    // One row that is 5 times its size off would move a plain mean by 5 / 40 = 0.125: 79 standard deviations of 0.01 / sqrt(40).
    assert_eq!(gain(branch(|s| if s == 7 { [5.0, 0.0] } else { wave(s) })), Judged::Passes);
    // Four hundredths in every row are 25 of them.
    assert_eq!(gain(branch(|s| [wave(s)[0] + 0.04, wave(s)[1]])), Judged::Fails);
}
