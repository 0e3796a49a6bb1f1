//! Distance of golden's distribution from one of which only the most likely ids are known.
//!
//! Let S be the ids whose log-probability the candidate tells, p golden's and q the candidate's probabilities, p' and q' what
//! is left of either outside S. Then, whatever the candidate does outside S,
//! `KL(p || q) >= Σ_S p ln(p/q) + p' ln(p'/q')` (the log-sum inequality: merging ids never adds divergence), and the total
//! variation is at most `½ (Σ_S |p - q| + p' + q')`. No upper bound of KL exists: an unseen id may have any small probability.

/// One position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Position {
    /// Lower bound of KL(golden || candidate), nats.
    pub kl: f64,
    /// Upper bound of the total variation.
    pub variation: f64,
    /// Golden's probability outside what the candidate tells, and the candidate's.
    pub tail: (f64, f64),
    /// Largest difference of two log-probabilities, over ids that either gives at least 1e-4 (nats).
    pub worst: f64,
    /// Mean square of that difference over the same ids.
    pub mean_square: f64,
    /// Most likely ids (the lower of several).
    pub best: (u32, u32),
    /// Golden's largest logit less its second.
    pub margin: f64,
}

/// Sums of a few rounded probabilities don't end in exactly 1.
const ROUNDING: f64 = 1e-7;
/// Below this an id's log-probability is in nobody's interest.
const SEEN: f64 = 1e-4;

/// Natural log-probabilities of one row of logits, sums in f64.
pub fn log_probs(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&v| f64::from(v - max).exp()).sum();
    logits.iter().map(|&v| f64::from(v - max) - sum.ln()).collect()
}

/// The `k` most likely ids of one row of logits, and `own`.
pub fn top(logits: &[f32], k: usize, own: u32) -> Vec<(u32, f64)> {
    let probs = log_probs(logits);
    let mut order: Vec<u32> = (0..probs.len() as u32).collect();
    order.sort_by(|a, b| probs[*b as usize].total_cmp(&probs[*a as usize]).then(a.cmp(b)));
    let rank = order.iter().position(|id| *id == own).unwrap_or(0);
    order[..k.min(order.len())]
        .iter()
        .chain((rank >= k).then(|| &order[rank]))
        .map(|id| (*id, probs[*id as usize]))
        .collect()
}

/// Compares one row of golden's logits `[V]` with what the candidate tells. An id beyond the vocabulary makes every number
/// NaN, and so does a logit that is none.
pub fn compare(golden: &[f32], told: &[(u32, f64)]) -> Position {
    let p = log_probs(golden);
    let nan = f64::NAN;
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*b].total_cmp(&p[*a]).then(a.cmp(b)));
    let margin = order.get(1).map_or(nan, |second| p[order[0]] - p[*second]);
    let best = (order.first().map_or(0, |i| *i as u32), told.first().map_or(0, |t| t.0));
    if told.is_empty() || told.iter().any(|(id, _)| *id as usize >= p.len()) || p.iter().any(|v| v.is_nan()) {
        return Position { kl: nan, variation: nan, tail: (nan, nan), worst: nan, mean_square: nan, best, margin };
    }
    let mut outside: f64 = p.iter().map(|v| v.exp()).sum();
    let (mut kl, mut apart, mut candidate) = (0.0, 0.0, 1.0);
    let (mut worst, mut squares, mut seen) = (0.0_f64, 0.0, 0_u32);
    for (id, q) in told {
        let own = p[*id as usize];
        let (ours, theirs) = (own.exp(), q.exp());
        // An id that the candidate rules out and golden doesn't is infinitely far.
        kl += if ours == 0.0 { 0.0 } else { ours * (own - q) };
        apart += (ours - theirs).abs();
        outside -= ours;
        candidate -= theirs;
        if ours.max(theirs) >= SEEN {
            worst = worst.max((own - q).abs());
            squares += (own - q).powi(2);
            seen += 1;
        }
    }
    let rounding = ROUNDING * told.len() as f64;
    let (outside, left) = (outside.max(0.0), candidate.max(rounding));
    if outside > 0.0 {
        let tail = outside * (outside / left).ln();
        // What may be the sums' own rounding must not lift a lower bound.
        kl += if outside > rounding { tail } else { tail.min(0.0) };
    }
    let variation = (0.5 * (apart + outside + candidate.max(0.0))).min(1.0);
    let mean_square = squares / f64::from(seen.max(1));
    Position { kl: kl.max(0.0), variation, tail: (outside, candidate.max(0.0)), worst, mean_square, best, margin }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kl(p: &[f64], q: &[f64]) -> f64 {
        p.iter().zip(q).map(|(p, q)| p * (p / q).ln()).sum()
    }

    #[test]
    fn bounds_enclose_and_meet_when_everything_is_told() {
        let p = [0.5, 0.3, 0.15, 0.05];
        let q = [0.4, 0.35, 0.05, 0.2];
        let logits: Vec<f32> = p.iter().map(|p: &f64| p.ln() as f32).collect();
        let told = |k: usize| -> Vec<(u32, f64)> { (0..k).map(|i| (i as u32, f64::ln(q[i]))).collect() };
        let (all, two) = (compare(&logits, &told(4)), compare(&logits, &told(2)));
        assert!((all.kl - kl(&p, &q)).abs() < 1e-6, "{} {}", all.kl, kl(&p, &q));
        // ½ Σ|p - q| = ½ (0.1 + 0.05 + 0.1 + 0.15) = 0.2.
        assert!((all.variation - 0.2).abs() < 1e-6);
        // Two ids merged: 0.5 ln(0.5/0.4) + 0.3 ln(0.3/0.35) + 0.2 ln(0.2/0.25).
        let merged = 0.5 * f64::ln(1.25) + 0.3 * f64::ln(0.3 / 0.35) + 0.2 * f64::ln(0.8);
        assert!((two.kl - merged).abs() < 1e-6 && two.kl < all.kl);
        assert!(two.variation >= all.variation);
        assert!((two.tail.0 - 0.2).abs() < 1e-6 && (two.tail.1 - 0.25).abs() < 1e-6);
        assert_eq!(two.best, (0, 0));
    }

    #[test]
    fn an_equal_distribution_is_at_no_distance_and_a_ruled_out_id_at_infinity() {
        let logits = [1.0_f32, 3.0, -2.0, 0.5, 0.4];
        let same = compare(&logits, &top(&logits, 2, 2));
        assert!(same.kl < 1e-12 && same.worst < 1e-12 && same.best == (1, 1));
        assert_eq!(top(&logits, 2, 2).len(), 3);
        assert_eq!(compare(&logits, &[(1, f64::NEG_INFINITY)]).kl, f64::INFINITY);
        assert!(compare(&logits, &[(9, -1.0)]).kl.is_nan() && compare(&logits, &[]).kl.is_nan());
        assert!(compare(&[f32::NAN, 1.0], &[(1, -1.0)]).kl.is_nan());
    }

    proptest::proptest! {
        #[test]
        fn the_lower_bound_is_one(
            a in proptest::collection::vec(-8.0_f32..8.0, 12), b in proptest::collection::vec(-8.0_f32..8.0, 12), k in 1_usize..12,
        ) {
            let exp = |v: &[f64]| v.iter().map(|v| v.exp()).collect::<Vec<_>>();
            let (p, q) = (exp(&log_probs(&a)), exp(&log_probs(&b)));
            let found = compare(&a, &top(&b, k, 3));
            let variation: f64 = 0.5 * p.iter().zip(&q).map(|(p, q)| (p - q).abs()).sum::<f64>();
            proptest::prop_assert!(found.kl <= kl(&p, &q) + 1e-9);
            proptest::prop_assert!(found.variation >= variation - 1e-9);
        }
    }
}
