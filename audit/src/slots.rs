//! Experts that stand in other slots than their weights.

use karat_seam::{Data, Recorded, RowId};

/// The weights as a set must fit so many times better than expert by expert.
const CLEARLY: f64 = 10.0;

/// Rows that choose golden's experts and have golden's weights, each expert another's: taken as a set the weights are right,
/// expert by expert they are not. What went wrong there is which expert stands in which slot, a choice: no arithmetic of a
/// weight gives another expert's. Weights are compared expert by expert, so that without this such a row would look as if its
/// weights were wrong. Whether the experts moved or the weights can't be told from a row whose slots an engine orders as it
/// likes, and is one fault: the choice comes first on the way. `own` and `theirs`: golden's experts and the row's; `ours` and
/// `shown`: golden's weights of the row's experts, slot by slot, and the row's. `allowed`: the relative error that weights of a
/// row may have; experts of nearly equal weights change places within it. Most rows whose weights are wrong must be such rows.
pub(crate) fn misordered([own, theirs, ours, shown]: [&Recorded; 4], allowed: impl Fn(RowId) -> f64) -> Vec<RowId> {
    let (Data::I64(g), Data::I64(t)) = (&own.tensor.data, &theirs.tensor.data) else { return Vec::new() };
    let (Data::F32(a), Data::F32(b)) = (&ours.tensor.data, &shown.tensor.data) else { return Vec::new() };
    let k = own.tensor.width().max(1);
    let same = [theirs, ours, shown].iter().all(|r| r.rows == own.rows && r.tensor.width() == k);
    if !same {
        return Vec::new();
    }
    let mut wrong = 0;
    let mut is_out = |i: &usize| {
        let row = *i * k..(*i + 1) * k;
        let (g, t) = (sorted(&g[row.clone()], i64::cmp), sorted(&t[row.clone()], i64::cmp));
        let (a, b) = (&a[row.clone()], &b[row]);
        if g != t || b.iter().any(|v| !v.is_finite()) {
            return false;
        }
        // Of all pairings, that by size is the nearest.
        let by_expert = distance(a, b);
        let as_a_set = distance(&sorted(a, f32::total_cmp), &sorted(b, f32::total_cmp));
        let may = allowed(own.rows[*i]) * a.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        wrong += usize::from(by_expert > may);
        as_a_set <= may && by_expert > may && by_expert > CLEARLY * as_a_set
    };
    let found: Vec<usize> = (0..own.rows.len()).filter(&mut is_out).collect();
    // Of many rows whose weights are wrong, some fit another order by chance: two weights of a given sum have one freedom.
    if found.len() * 2 <= wrong { Vec::new() } else { found.into_iter().map(|i| own.rows[i]).collect() }
}

fn sorted<T: Copy>(values: &[T], by: impl Fn(&T, &T) -> std::cmp::Ordering) -> Vec<T> {
    let mut all = values.to_vec();
    all.sort_unstable_by(by);
    all
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (f64::from(*b) - f64::from(*a)).powi(2)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use karat_seam::Tensor;

    use super::*;

    fn rows(tensor: Tensor) -> Recorded {
        Recorded { rows: (0..tensor.rows() as u32).map(|pos| RowId::new(0, pos)).collect(), tensor }
    }

    #[test]
    fn only_experts_that_left_their_weights_behind_are_misordered() {
        let own = rows(Tensor::i64([4, 2], vec![3, 1, 3, 1, 3, 1, 3, 1]));
        // As golden; another order with its weights; the experts exchanged alone; another expert.
        let theirs = rows(Tensor::i64([4, 2], vec![3, 1, 1, 3, 1, 3, 2, 1]));
        // Golden weights expert 3 by 0.9 and expert 1 by 0.6, in the slots of the row.
        let ours = rows(Tensor::f32([4, 2], vec![0.9, 0.6, 0.6, 0.9, 0.6, 0.9, 0.8, 0.6]));
        let shown = rows(Tensor::f32([4, 2], vec![0.9, 0.6, 0.6, 0.9, 0.9, 0.6, 0.8, 0.6]));
        assert_eq!(misordered([&own, &theirs, &ours, &shown], |_| 0.01), [RowId::new(0, 2)]);
        // Weights that fit neither order are wrong themselves.
        let shown = rows(Tensor::f32([4, 2], vec![0.9, 0.6, 0.6, 0.9, 0.8, 0.5, 0.8, 0.6]));
        assert!(misordered([&own, &theirs, &ours, &shown], |_| 0.01).is_empty());
    }

    #[test]
    fn weights_in_each_others_slots_are_misordered_too() {
        let row = |a: [f32; 3]| rows(Tensor::f32([1, 3], a.to_vec()));
        let idx = rows(Tensor::i64([1, 3], vec![5, 0, 7]));
        let found = |shown: [f32; 3]| misordered([&idx, &idx, &row([0.75, 0.5, 0.25]), &row(shown)], |_| 1e-3).len();
        assert_eq!(found([0.75, 0.5, 0.25]), 0);
        assert_eq!(found([0.25, 0.5, 0.75]), 1);
        assert_eq!(found([0.5, 0.25, 0.75]), 1);
        // Two slots hold one expert's weight, all are off by a tenth, one is no number: their own faults.
        assert_eq!(found([0.75, 0.75, 0.25]), 0);
        assert_eq!(found([0.275, 0.55, 0.825]), 0);
        assert_eq!(found([0.25, 0.5, f32::NAN]), 0);
    }

    #[test]
    fn a_row_of_wrong_weights_that_fits_another_order_by_chance_is_not_misordered() {
        let idx = rows(Tensor::i64([3, 2], vec![3, 1, 3, 1, 3, 1]));
        // A bias of 0.2 moved from the first expert to the second: 0.6 and 0.4 become 0.4 and 0.6.
        let ours = rows(Tensor::f32([3, 2], vec![0.6, 0.4, 0.7, 0.3, 0.8, 0.2]));
        let shown = rows(Tensor::f32([3, 2], vec![0.4, 0.6, 0.5, 0.5, 0.6, 0.4]));
        assert!(misordered([&idx, &idx, &ours, &shown], |_| 1e-3).is_empty());
        let shown = rows(Tensor::f32([3, 2], vec![0.4, 0.6, 0.3, 0.7, 0.6, 0.4]));
        assert_eq!(misordered([&idx, &idx, &ours, &shown], |_| 1e-3), [RowId::new(0, 0), RowId::new(0, 1)]);
    }

    #[test]
    fn experts_of_nearly_equal_weights_may_change_places() {
        let own = rows(Tensor::i64([1, 2], vec![3, 1]));
        let theirs = rows(Tensor::i64([1, 2], vec![1, 3]));
        // Golden: 0.750 for expert 3, 0.748 for expert 1. The row has 0.750 for expert 1 and 0.748 for expert 3: noise of 0.3 %
        // that happens to fit the other order to the bit.
        let ours = rows(Tensor::f32([1, 2], vec![0.748, 0.75]));
        let shown = rows(Tensor::f32([1, 2], vec![0.75, 0.748]));
        assert!(misordered([&own, &theirs, &ours, &shown], |_| 0.01).is_empty());
        assert_eq!(misordered([&own, &theirs, &ours, &shown], |_| 1e-5), [RowId::new(0, 0)]);
    }
}
