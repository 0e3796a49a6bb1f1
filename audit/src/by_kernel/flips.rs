//! How much of a row's error may be values stored as a neighbouring code, counted one by one.
//!
//! A result that another order of the sums moves by D is stored as another code where a boundary lies in between: with a probability
//! of D over the distance u of two codes, at a cost of u². Over many values the costs come to their mean; in a short row they are
//! none, one or two. What is allowed is the total that a right kernel goes over with a probability of `rate` at most: the flips of
//! values of one cost are a sum of independent trials, no more spread than a Poisson variable of the same mean (its moment
//! generating function is at least theirs), so that for every t > 0
//!
//! ```text
//! P(total >= T) <= exp(sum over costs c of n_c (e^(t c) - 1) - t T)
//! ```
//!
//! with n_c the mean number of flips of cost c. The smallest T for which the right side is `rate` for some t is the limit.

use std::collections::BTreeMap;

/// Mean numbers of flips by cost, and the limit on their total.
#[derive(Debug, Clone, Default)]
pub(super) struct Flips {
    /// By the binary logarithm of the cost, rounded up.
    means: BTreeMap<i32, f64>,
}

impl Flips {
    /// Adds trials that flip `mean` times on average, each time at this cost.
    pub(super) fn add(&mut self, mean: f64, cost: f64) {
        if mean > 0.0 && cost > 0.0 && cost.is_finite() {
            *self.means.entry(cost.log2().ceil() as i32).or_default() += mean;
        }
    }

    /// Adds those of other values.
    pub(super) fn merge(&mut self, other: &Self) {
        other.means.iter().for_each(|(cost, mean)| *self.means.entry(*cost).or_default() += mean);
    }

    /// Total cost that is gone over with a probability of `rate` at most.
    pub(super) fn limit(&self, rate: f64) -> f64 {
        let Some(most) = self.means.keys().next_back() else { return 0.0 };
        let unit = f64::exp2(f64::from(*most));
        let costs: Vec<(f64, f64)> =
            self.means.iter().map(|(c, mean)| (f64::exp2(f64::from(c - most)), *mean)).collect();
        // In units of the largest cost; ln t is searched: the bound falls up to its best t and rises behind it.
        let bound = |ln_t: f64| {
            let t = ln_t.exp();
            (costs.iter().map(|(c, mean)| mean * (t * c).exp_m1()).sum::<f64>() - rate.ln()) / t
        };
        let (mut low, mut high) = (-20.0, 4.0);
        for _ in 0..80 {
            let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
            if bound(a) < bound(b) { high = b } else { low = a }
        }
        bound(f64::midpoint(low, high)) * unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P(X > k) of a binomial variable, term by term.
    fn tail(n: i32, p: f64, k: i32) -> f64 {
        let mut term = (1.0 - p).powi(n);
        let mut below = 0.0;
        for i in 0..=k {
            below += term;
            term *= f64::from(n - i) / f64::from(i + 1) * p / (1.0 - p);
        }
        1.0 - below
    }

    #[test]
    fn a_limit_covers_the_binomial_tail_and_little_more() {
        for (n, p, rate) in [(128, 2e-3, 1e-6), (512, 1e-4, 1e-6), (4096, 5e-3, 1e-7), (40, 0.05, 1e-5)] {
            let mut flips = Flips::default();
            flips.add(f64::from(n) * p, 1.0);
            let limit = flips.limit(rate);
            assert!(tail(n, p, limit.floor() as i32) <= rate, "{n} {p}: {limit}");
            // The smallest number that the exact tail allows is no more than a third less, or two.
            let exact = (0..n).find(|k| tail(n, p, *k) <= rate).unwrap();
            assert!(limit <= f64::from(exact) * 1.34 + 2.0, "{n} {p}: {limit} for {exact}");
        }
    }

    #[test]
    fn many_values_come_to_their_mean_and_none_allow_nothing() {
        let mut flips = Flips::default();
        flips.add(1e6, 4.0);
        flips.add(3e6, 0.25);
        let mean = 1e6 * 4.0 + 3e6 * 0.25;
        assert!((1.0..1.01).contains(&(flips.limit(1e-9) / mean)), "{}", flips.limit(1e-9) / mean);
        assert_eq!(Flips::default().limit(1e-9), 0.0);
    }
}
