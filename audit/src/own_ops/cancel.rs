//! What an index score loses where its terms cancel.
//!
//! score = sum over heads of relu(q_h . k) w_h. A chain that stores q_h . k and its product with w_h in bf16 leaves the errors of its
//! terms in the sum, whose own size may be far less: of many scores some few cancel, of one or two it may be all.

use karat_diff::Rounding;
use karat_optimized::IndexScore;
use karat_seam::{Phase, Tap, Tensor};

use crate::compare::Context;

/// Scores up to which the terms are looked at: among more the few that cancel weigh little.
const SCORES: usize = 4096;

/// rel-L2 over the scores of some rows that storing their terms in bf16 costs; 0 where the plan stores none, or they are many.
/// `scores [S,T]` are golden's, of `operands` q `[S,H,d]`, k `[T,d]`, w `[S,H]`.
pub(super) fn cost(at: &Context<'_>, phase: Phase, operands: &[(Tap, Tensor)], scores: &Tensor, rows: &[usize]) -> f64 {
    let stores: f64 = match at.candidate.rules.map(|rules| rules.numerics[phase as usize].index.score) {
        Some(IndexScore::Bf16Chain) => 2.0,
        Some(IndexScore::Folded { bf16_product: true, .. }) => 1.0,
        _ => return 0.0,
    };
    let values = |tap: Tap| operands.iter().find(|(t, _)| *t == tap).and_then(|(_, v)| v.as_f32(tap.name()).ok());
    let all = (values(Tap::AttnIndexQ), values(Tap::AttnIndexK), values(Tap::AttnIndexW), scores.as_f32("scores").ok());
    let (Some(q), Some(k), Some(w), Some(scores)) = all else { return 0.0 };
    let rows_of_w = operands.iter().find(|(t, _)| *t == Tap::AttnIndexW).map_or(0, |(_, w)| w.rows());
    let [heads, total] = [w.len(), scores.len()].map(|n| n / rows_of_w.max(1));
    if rows_of_w == 0 || heads == 0 || total == 0 || rows.len() * total > SCORES {
        return 0.0;
    }
    stores.sqrt() * Rounding::Bf16.rel_l2() * terms_over_sums((q, k, w), scores, [heads, total], rows)
}

/// Root of the sum of squares of all terms of the scores of some rows, over that of the scores; 0 where these are zero.
fn terms_over_sums(
    (q, k, w): (&[f32], &[f32], &[f32]),
    scores: &[f32],
    [heads, total]: [usize; 2],
    rows: &[usize],
) -> f64 {
    let dim = q.len() / w.len().max(1);
    let (mut terms, mut sums) = (0.0, 0.0);
    for &row in rows {
        for (score, k) in scores[row * total..(row + 1) * total].iter().zip(k.chunks_exact(dim.max(1))) {
            if !score.is_finite() {
                continue;
            }
            sums += f64::from(*score).powi(2);
            for h in 0..heads {
                let q = &q[(row * heads + h) * dim..(row * heads + h + 1) * dim];
                let dot: f64 = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                terms += (dot.max(0.0) * f64::from(w[row * heads + h])).powi(2);
            }
        }
    }
    if sums > 0.0 { (terms / sums).sqrt() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::terms_over_sums;

    #[test]
    fn terms_that_cancel_weigh_more_than_their_sum() {
        // Row 1: heads of 2 and 3 with weights 1 and -0.6: 2 - 1.8 = 0.2, terms of 2 and 1.8. A negative product counts for nothing,
        // and neither does an entry that is not visible. Row 0 isn't asked for.
        let q = [9.0, 9.0, 9.0, 9.0, 2.0, 0.0, 0.0, 3.0];
        let k = [1.0, 1.0, 5.0, 5.0];
        let w = [1.0, 1.0, 1.0, -0.6];
        let scores = [1.0, 1.0, 0.2, f32::NEG_INFINITY];
        let found = terms_over_sums((&q, &k, &w), &scores, [2, 2], &[1]);
        let want = f64::sqrt(4.0 + 1.8 * 1.8) / 0.2;
        assert!((found / want - 1.0).abs() < 1e-6, "{found} {want}");
        assert_eq!(terms_over_sums((&q, &[-1.0, -1.0], &w), &[0.0, 0.0], [2, 1], &[1]), 0.0);
    }
}
