use proptest::prelude::*;

use super::*;
use crate::support::noise;

fn idx(rows: usize, values: &[i64]) -> Tensor {
    Tensor::i64([rows, values.len() / rows], values.to_vec())
}

fn scores(rows: usize, values: &[f64]) -> Tensor {
    Tensor::f64([rows, values.len() / rows], values.to_vec())
}

#[test]
fn a_set_in_another_order_is_no_flip() {
    let d = experts("ffn.idx", &idx(2, &[3, 1, 0, 5]), &idx(2, &[1, 3, 5, 0]), None).unwrap();
    assert!(d.flips.is_empty() && d.rows.iter().all(RowDecision::is_same));
    assert_eq!((d.recall(), d.overlap(), d.rows_changed(), d.invalid()), (1.0, 1.0, 0, 0));
    assert_eq!(d.rows[0].shortfall, None);
}

#[test]
fn flips_carry_goldens_margin_and_pair_the_nearest() {
    let s = scores(1, &[0.9, 0.8, 0.5, 0.75, 0.1, 0.4]);
    // Golden {0,1,3}; the candidate lost 1 and 3 and took 2 and 5.
    let d = experts("ffn.idx", &idx(1, &[0, 1, 3]), &idx(1, &[2, 5, 0]), Some(&s)).unwrap();
    let got: Vec<_> = d.flips.iter().map(|f| (f.golden, f.candidate)).collect();
    assert_eq!(got, [(Some(3), Some(2)), (Some(1), Some(5))]);
    assert!((d.flips[0].margin.unwrap() - 0.25).abs() < 1e-15);
    assert!((d.flips[1].margin.unwrap() - 0.4).abs() < 1e-15);
    let row = d.rows[0];
    assert_eq!((row.common, row.recall(), row.overlap()), (1, 1.0 / 3.0, 0.2));
    assert!((row.shortfall.unwrap() - 0.4).abs() < 1e-15);
    // 4·s·√2: 0.25 is explained by noise of 0.05 (0.283), 0.4 is not.
    assert_eq!(d.unexplained(0.05).count(), 1);
    assert_eq!(d.unexplained(0.01).count(), 2);
    assert_eq!(d.unexplained(0.1).count(), 0);
}

#[test]
fn impossible_choices_are_counted_and_goldens_refused() {
    let s = scores(1, &[0.1, 0.2, 0.3, 0.4]);
    let d = experts("ffn.idx", &idx(1, &[3, 2]), &idx(1, &[3, 3]), Some(&s)).unwrap();
    assert_eq!((d.rows[0].invalid, d.rows[0].common, d.rows[0].is_same()), (1, 1, false));
    assert_eq!((d.flips[0].golden, d.flips[0].candidate, d.flips[0].margin), (Some(2), None, None));
    let out = experts("ffn.idx", &idx(1, &[3, 2]), &idx(1, &[-1, 4]), Some(&s)).unwrap();
    assert_eq!((out.invalid(), out.recall()), (2, 0.0));
    assert!(experts("ffn.idx", &idx(1, &[3, 9]), &idx(1, &[3, 2]), Some(&s)).is_err());
    assert!(experts("ffn.idx", &idx(1, &[3, 2]), &idx(2, &[3, 2]), None).is_err());
    assert!(experts("ffn.idx", &idx(1, &[3, 2]), &scores(1, &[0.0, 0.0]), None).is_err());
    // A flip without a partner can't be explained by noise.
    assert_eq!(d.unexplained(1e9).count(), 1);
}

#[test]
fn entries_are_masks_and_what_golden_cannot_see_is_infinitely_far() {
    let inf = f64::NEG_INFINITY;
    let s = scores(2, &[0.5, inf, inf, 0.5, 0.7, 0.6]);
    let g = Tensor::u8([2, 3], vec![1, 0, 0, 0, 1, 1]);
    let c = Tensor::u8([2, 3], vec![0, 1, 0, 1, 1, 0]);
    let d = entries("attn.selected", &g, &c, Some(&s)).unwrap();
    assert_eq!(d.flips[0].margin, Some(f64::INFINITY));
    assert!((d.flips[1].margin.unwrap() - 0.1).abs() < 1e-12);
    assert_eq!((d.rows[0].shortfall, d.rows[0].recall()), (Some(f64::INFINITY), 0.0));
    assert!((d.rows[1].shortfall.unwrap() - 0.1).abs() < 1e-12);
    assert_eq!(d.rows[1].recall(), 0.5);
    assert!(entries("t", &g, &Tensor::u8([3, 2], vec![0; 6]), None).is_err());
    assert!(entries("t", &g, &c, Some(&scores(2, &[0.0; 4]))).is_err());
}

#[test]
fn ties_at_the_boundary_are_counted() {
    assert_eq!(boundary_ties(&[3.0, 2.0, 2.0, 2.0, 1.0], 2), Ties { selected: 1, unselected: 2 });
    assert!(!boundary_ties(&[3.0, 2.0, 1.0], 2).is_tied());
    // All zeros: an indexer that collapsed.
    assert_eq!(boundary_ties(&[0.0; 8], 3), Ties { selected: 3, unselected: 5 });
    assert_eq!(boundary_ties(&[1.0, f64::NEG_INFINITY, f64::NEG_INFINITY], 2), Ties::default());
    assert_eq!((boundary_ties(&[1.0], 0), boundary_ties(&[1.0], 2)), (Ties::default(), Ties::default()));
    let s = scores(1, &[0.5, 0.5, 0.1]);
    let d = experts("t", &idx(1, &[0]), &idx(1, &[1]), Some(&s)).unwrap();
    assert_eq!((d.tied_rows(), d.flips[0].margin, d.rows[0].shortfall), (1, Some(0.0), Some(0.0)));
    assert_eq!(d.unexplained(0.0).count(), 0);
}

#[test]
fn integer_tensors_are_compared_code_by_code() {
    assert_eq!(codes("t", &idx(1, &[1, 2, 3]), &idx(1, &[1, 0, 0])).unwrap(), (2, Some(1)));
    let bytes = Tensor::u8([3], vec![1, 2, 3]);
    assert_eq!(codes("t", &bytes, &bytes).unwrap(), (0, None));
    assert!(codes("t", &bytes, &Tensor::i64([3], vec![1, 2, 3])).is_err());
    assert!(codes("t", &Tensor::f32([1], vec![0.0]), &Tensor::f32([1], vec![0.0])).is_err());
    assert!(codes("t", &bytes, &Tensor::u8([1, 3], vec![1, 2, 3])).is_err());
}

proptest! {
    #[test]
    fn a_top_k_of_goldens_scores_falls_short_of_nothing(seed: u64, n in 1usize..40, k in 0usize..40) {
        let k = k.min(n);
        let s = noise(seed, n);
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| s[b].total_cmp(&s[a]).then(a.cmp(&b)));
        let mut top: Vec<u32> = order[..k].iter().map(|&i| i as u32).collect();
        top.sort_unstable();
        prop_assert_eq!(shortfall(&s, &top), 0.0);
        if k > 0 && k < n {
            // Swap the k-th for the next one: short by exactly their distance.
            let mut worse: Vec<u32> = order[..k - 1].iter().chain(&order[k..=k]).map(|&i| i as u32).collect();
            worse.sort_unstable();
            prop_assert_eq!(shortfall(&s, &worse), s[order[k - 1]] - s[order[k]]);
        }
    }

    #[test]
    fn recall_and_overlap_are_shares(a in proptest::collection::btree_set(0i64..20, 1..8), b in proptest::collection::btree_set(0i64..20, 1..8)) {
        let list = |s: &std::collections::BTreeSet<i64>| idx(1, &s.iter().copied().collect::<Vec<_>>());
        let d = experts("t", &list(&a), &list(&b), None).unwrap();
        let common = a.intersection(&b).count() as f64;
        prop_assert_eq!(d.recall(), common / a.len() as f64);
        prop_assert_eq!(d.overlap(), common / a.union(&b).count() as f64);
        prop_assert_eq!(d.flips.len(), (a.len() - common as usize).max(b.len() - common as usize));
    }
}
