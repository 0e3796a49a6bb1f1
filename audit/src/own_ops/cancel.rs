//! What an index score loses where its terms cancel.
//!
//! score = sum over heads of relu(q_h . k) w_h. A chain that stores q_h . k and its product with w_h in bf16 leaves the errors of its
//! terms in the sum, whose own size may be far less: of many scores some few cancel, of one or two it may be all.
//!
//! An error e of a key is in all its terms at once. With g = sum over the heads whose product is positive of w_h q_h the score is g . k
//! and its error g . e: for an e without a direction, c times as large as the key, of root mean square c ||g|| ||k|| / sqrt(d). Of a
//! score of that size, which is that of a key without a direction, it is c; of one that cancels, more.

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
    let Some(LookedAt { values, scores, sizes }) = looked_at(operands, scores, rows) else { return 0.0 };
    stores.sqrt() * Rounding::Bf16.rel_l2() * terms_over_sums(values, scores, sizes, rows)
}

/// How many times as large, in rel-L2 over the scores of some rows, an error of the keys is behind the sum than in the keys, where they
/// cancel: 1 at least, and where they are many. Operands as for [`cost`].
pub(super) fn of_keys(operands: &[(Tap, Tensor)], scores: &Tensor, rows: &[usize]) -> f64 {
    looked_at(operands, scores, rows).map_or(1.0, |at| keys_over_sums(at.values, at.scores, at.sizes, rows).max(1.0))
}

/// Operands and scores of few enough rows to be looked at.
struct LookedAt<'a> {
    /// q, k, w.
    values: (&'a [f32], &'a [f32], &'a [f32]),
    scores: &'a [f32],
    /// Heads and keys.
    sizes: [usize; 2],
}

fn looked_at<'a>(operands: &'a [(Tap, Tensor)], scores: &'a Tensor, rows: &[usize]) -> Option<LookedAt<'a>> {
    let values = |tap: Tap| operands.iter().find(|(t, _)| *t == tap).and_then(|(_, v)| v.as_f32(tap.name()).ok());
    let values = (values(Tap::AttnIndexQ)?, values(Tap::AttnIndexK)?, values(Tap::AttnIndexW)?);
    let scores = scores.as_f32("scores").ok()?;
    let rows_of_w = operands.iter().find(|(t, _)| *t == Tap::AttnIndexW).map_or(0, |(_, w)| w.rows());
    let [heads, total] = [values.2.len(), scores.len()].map(|n| n / rows_of_w.max(1));
    let few = rows_of_w > 0 && heads > 0 && total > 0 && rows.len() * total <= SCORES;
    few.then_some(LookedAt { values, scores, sizes: [heads, total] })
}

/// Root of the sum of squares of ||g|| ||k|| / sqrt(d) of the scores of some rows, over that of the scores; 0 where these are zero.
fn keys_over_sums(
    (q, k, w): (&[f32], &[f32], &[f32]),
    scores: &[f32],
    [heads, total]: [usize; 2],
    rows: &[usize],
) -> f64 {
    let dim = (q.len() / w.len().max(1)).max(1);
    let (mut moved, mut sums) = (0.0, 0.0);
    let mut gradient = vec![0.0; dim];
    for &row in rows {
        for (score, k) in scores[row * total..(row + 1) * total].iter().zip(k.chunks_exact(dim)) {
            if !score.is_finite() {
                continue;
            }
            sums += f64::from(*score).powi(2);
            gradient.fill(0.0);
            for h in 0..heads {
                let q = &q[(row * heads + h) * dim..(row * heads + h + 1) * dim];
                let dot: f64 = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                if dot > 0.0 {
                    let w = f64::from(w[row * heads + h]);
                    gradient.iter_mut().zip(q).for_each(|(g, q)| *g += w * f64::from(*q));
                }
            }
            let of_key: f64 = k.iter().map(|k| f64::from(*k).powi(2)).sum();
            moved += gradient.iter().map(|g| g * g).sum::<f64>() * of_key / dim as f64;
        }
    }
    if sums > 0.0 { (moved / sums).sqrt() } else { 0.0 }
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
    use super::{keys_over_sums, terms_over_sums};

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

    #[test]
    fn an_error_of_a_key_weighs_more_where_the_heads_cancel() {
        // Row 1, key (1, 1): both heads count, g = (2, 0) - 0.6 (0, 3) = (2, -1.8), and g . k = 0.2. A key that is off by (e, -e), which is
        // e of its size, moves the score by 3.8 e; by (e, e) by 0.2 e: root mean square sqrt((3.8^2 + 0.2^2) / 2) e.
        let q = [9.0, 9.0, 9.0, 9.0, 2.0, 0.0, 0.0, 3.0];
        let w = [1.0, 1.0, 1.0, -0.6];
        let k = [1.0, 1.0, 5.0, 5.0];
        let found = keys_over_sums((&q, &k, &w), &[1.0, 1.0, 0.2, f32::NEG_INFINITY], [2, 2], &[1]);
        let want = f64::sqrt(f64::midpoint(3.8 * 3.8, 0.2 * 0.2)) / 0.2;
        assert!((found / want - 1.0).abs() < 1e-6, "{found} {want}");
        // Key (1, -1): the second head's product is negative, g = (2, 0), the score 2: an error of (e, +-e) moves it by 2 e, which is e of it.
        let found = keys_over_sums((&q, &[1.0, -1.0], &w), &[9.0, 2.0], [2, 1], &[1]);
        assert!((found - 1.0).abs() < 1e-6, "{found}");
    }
}
