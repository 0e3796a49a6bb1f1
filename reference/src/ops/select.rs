//! Which entries a query attends to (spec 2.8, 2.9).
//!
//! An entry w is visible to the query at position t iff `w < (t+1) div r`. CSA: the top min(index_topk, visible) of the
//! visible entries by index score; HCA: all visible ones. Ties: larger score first, then LOWER index; NaN last.

use std::cmp::Ordering;

use rayon::prelude::*;

use super::Ctx;
use crate::backend::Choosing;
use crate::lent::Lent;
use crate::linalg::Real;

/// Larger first, then lower index; NaN after every number.
pub(crate) fn larger_first<T: Real>(scores: &[T]) -> impl Fn(&u32, &u32) -> Ordering + '_ {
    |&a, &b| {
        let (x, y) = (scores[a as usize], scores[b as usize]);
        y.partial_cmp(&x).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan())).then(a.cmp(&b))
    }
}

/// Adds the `k` best indices to `all` in order, best first.
pub(crate) fn top_k<T: Real>(scores: &[T], k: usize, all: &mut Vec<u32>) {
    let (better, first) = (larger_first(scores), all.len());
    for w in 0..scores.len() as u32 {
        // k is small: nearly every score stops at the worst of the best.
        let place = all[first..].iter().rposition(|b| better(b, &w) == Ordering::Less).map_or(0, |i| i + 1);
        if place < k {
            all.insert(first + place, w);
            all.truncate(first + k);
        }
    }
}

/// Marks the `k` best of more than k scores. `best` is a buffer.
fn mark_best<T: Real>(scores: &[T], k: usize, best: &mut Vec<u32>, mask: &mut [u8]) {
    if k == 0 {
        return;
    }
    best.clear();
    // Every score before this one that can be among the k best is in `best`; `bar` is the lowest of k of them.
    let mut bar = None;
    for (w, score) in scores.iter().enumerate() {
        // An equal score with a higher index is worse.
        if bar.is_some_and(|bar| matches!(score.partial_cmp(bar), Some(Ordering::Less | Ordering::Equal))) {
            continue;
        }
        best.push(w as u32);
        if best.len() == 2 * k {
            bar = Some(&scores[keep(scores, k, best)]);
        }
    }
    if best.len() > k {
        keep(scores, k, best);
    }
    for &w in best.iter() {
        mask[w as usize] = 1;
    }
}

/// Keeps the k best (k > 0, fewer than there are) and returns the worst of them.
fn keep<T: Real>(scores: &[T], k: usize, best: &mut Vec<u32>) -> usize {
    let worst = *best.select_nth_unstable_by(k - 1, larger_first(scores)).1;
    best.truncate(k);
    worst as usize
}

/// Mask `[S,T]` of rows at positions `first..first+S`: scores `[S,T]`, or none for HCA.
pub(crate) fn select<T: Real>(
    ctx: Ctx<'_>,
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
    let choosing = || Choosing { scores: scores.map(T::single), topk, rows: s, total, first, ratio };
    if let Some(mask) = ctx.there::<T, _>(|there| there.select(choosing())) {
        return mask;
    }
    mask.par_chunks_exact_mut(total).enumerate().with_min_len(16).for_each_init(Lent::take, |best, (t, mask)| {
        let visible = ((first + t + 1) / ratio).min(total);
        match scores {
            Some(scores) if visible > topk => {
                mark_best(&scores[t * total..t * total + visible], topk, best, mask);
            }
            _ => mask[..visible].fill(1),
        }
    });
    mask
}
