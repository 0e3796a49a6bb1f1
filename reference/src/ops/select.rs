//! Which entries a query attends to (spec 2.8, 2.9).
//!
//! An entry w is visible to the query at position t iff `w < (t+1) div r`. CSA: the top min(index_topk, visible) of the
//! visible entries by index score; HCA: all visible ones. Ties: larger score first, then LOWER index; NaN last.

use std::cmp::Ordering;

use crate::linalg::Real;

/// Larger first, then lower index; NaN after every number.
pub(crate) fn larger_first<T: Real>(scores: &[T]) -> impl Fn(&u32, &u32) -> Ordering + '_ {
    |&a, &b| {
        let (x, y) = (scores[a as usize], scores[b as usize]);
        y.partial_cmp(&x).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan())).then(a.cmp(&b))
    }
}

/// The `k` best indices in order, best first.
pub(crate) fn top_k<T: Real>(scores: &[T], k: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    if k < order.len() {
        order.select_nth_unstable_by(k, larger_first(scores));
        order.truncate(k);
    }
    order.sort_unstable_by(larger_first(scores));
    order
}

/// Mask `[S,T]` of rows at positions `first..first+S`: scores `[S,T]`, or none for HCA.
pub(crate) fn select<T: Real>(
    scores: Option<&[T]>,
    topk: usize,
    s: usize,
    total: usize,
    first: usize,
    ratio: usize,
) -> Vec<u8> {
    let mut mask = vec![0u8; s * total];
    if total == 0 {
        return mask;
    }
    for (t, mask) in mask.chunks_exact_mut(total).enumerate() {
        let visible = ((first + t + 1) / ratio).min(total);
        match scores {
            Some(scores) if visible > topk => {
                for w in top_k(&scores[t * total..t * total + visible], topk) {
                    mask[w as usize] = 1;
                }
            }
            _ => mask[..visible].fill(1),
        }
    }
    mask
}
