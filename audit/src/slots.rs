//! Experts that stand in other slots than their weights.

use karat_seam::{Data, Recorded, RowId};

/// One order of the slots must fit so many times better than the other.
const CLEARLY: f64 = 10.0;

/// Rows that choose golden's experts and weight each as if it stood where golden has it: in golden's order the weights are
/// right, in the order that the row itself shows they are not. Weights are compared expert by expert, so that without this such
/// a row would look as if its weights were wrong. `own` and `theirs`: golden's experts and the row's; `ours` and `shown`:
/// golden's weights of the row's experts, slot by slot, and the row's. `allowed`: the relative error that weights of a row may
/// have; experts of nearly equal weights change places within it, and then either order fits.
pub(crate) fn misordered([own, theirs, ours, shown]: [&Recorded; 4], allowed: impl Fn(RowId) -> f64) -> Vec<RowId> {
    let (Data::I64(g), Data::I64(t)) = (&own.tensor.data, &theirs.tensor.data) else { return Vec::new() };
    let (Data::F32(a), Data::F32(b)) = (&ours.tensor.data, &shown.tensor.data) else { return Vec::new() };
    let k = own.tensor.width().max(1);
    let same = [theirs, ours, shown].iter().all(|r| r.rows == own.rows && r.tensor.width() == k);
    if !same {
        return Vec::new();
    }
    let is_out = |i: &usize| {
        let row = *i * k..(*i + 1) * k;
        let (g, t, a, b) = (&g[row.clone()], &t[row.clone()], &a[row.clone()], &b[row]);
        let place: Option<Vec<usize>> = g.iter().map(|e| t.iter().position(|x| x == e)).collect();
        let Some(place) = place.filter(|place| g != t && (0..k).all(|slot| place.contains(&slot))) else {
            return false;
        };
        let distance = |of: &dyn Fn(usize) -> usize| -> f64 {
            (0..k).map(|slot| (f64::from(b[slot]) - f64::from(a[of(slot)])).powi(2)).sum::<f64>().sqrt()
        };
        let length = a.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        let own_order = distance(&|slot| slot);
        own_order > allowed(own.rows[*i]) * length && own_order > CLEARLY * distance(&|slot| place[slot])
    };
    (0..own.rows.len()).filter(is_out).map(|i| own.rows[i]).collect()
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
