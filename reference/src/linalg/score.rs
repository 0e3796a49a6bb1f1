//! Index scores: the weighted sum over heads of what the dot products have above zero.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use super::gemm::columns_here;
use super::simd::{Job, dispatch};
use super::simd_vector::Machine;
use super::{Isa, K_BLOCK, LANES, Packed, Real};

/// Panels of keys that are scored together: their dot products stay in the first cache.
const PANELS: usize = 8;

/// Buffers of [`relu_scores`], reused between calls.
#[derive(Debug, Default)]
pub(crate) struct ScoreBuffers<T> {
    dots: Vec<T>,
}

/// `out[t][w] = sum_h relu(x[t,h] . key[w]) * weights[t,h]` for every query t and the first `out[t].len()` keys.
/// Shapes: x `[S*heads]` rows of queries, weights `[S,heads]`, out `[S]` rows, each no longer than there are keys.
pub(crate) fn relu_scores<T: Real>(
    isa: Isa,
    x: &[&[T]],
    keys: &Packed<T>,
    weights: &[T],
    out: &mut [&mut [T]],
    buffers: &mut ScoreBuffers<T>,
) {
    let heads = x.len() / out.len().max(1);
    assert_eq!(weights.len(), x.len(), "one weight a query and head");
    let most = out.iter().map(|row| row.len()).max().unwrap_or(0);
    for start in (0..most.div_ceil(LANES)).step_by(PANELS) {
        let panels = start..most.div_ceil(LANES).min(start + PANELS);
        let columns = (panels.end * LANES).min(keys.n()) - start * LANES;
        // Every one is written.
        buffers.dots.resize(x.len() * columns, T::ZERO);
        columns_here(isa, x, keys, panels, &mut buffers.dots);
        let queries = buffers.dots.chunks_exact(columns * heads).zip(weights.chunks_exact(heads));
        for ((dots, weights), row) in queries.zip(out.iter_mut()) {
            let end = row.len().min(start * LANES + columns);
            if let Some(out) = row.get_mut(start * LANES..end) {
                dispatch(isa, OverHeads { dots, columns, weights, out });
            }
        }
    }
}

struct OverHeads<'a, T> {
    dots: &'a [T],
    columns: usize,
    weights: &'a [T],
    out: &'a mut [T],
}

impl<T: Real> Job for OverHeads<'_, T> {
    #[inline(always)]
    fn run<M: Machine, const R: usize, const H: usize, const P: usize>(mut self) {
        let mut first = 0;
        while first + LANES <= self.out.len() {
            self.some::<LANES>(first);
            first += LANES;
        }
        while first < self.out.len() {
            self.some::<1>(first);
            first += 1;
        }
    }
}

impl<T: Real> OverHeads<'_, T> {
    #[inline(always)]
    fn some<const W: usize>(&mut self, first: usize) {
        let mut total = [0f64; W];
        let rows = self.dots.chunks(self.columns * K_BLOCK).zip(self.weights.chunks(K_BLOCK));
        for (dots, weights) in rows {
            let mut sum = [T::ZERO; W];
            for (dots, &weight) in dots.chunks_exact(self.columns).zip(weights) {
                let dots: &[T; W] = dots[first..].first_chunk().expect("W columns are there");
                for j in 0..W {
                    let above = if dots[j] <= T::ZERO { T::ZERO } else { dots[j] };
                    sum[j] = above.fma(weight, sum[j]);
                }
            }
            for j in 0..W {
                total[j] += sum[j].wide();
            }
        }
        let out: &mut [T; W] = self.out[first..].first_chunk_mut().expect("W columns are there");
        for j in 0..W {
            out[j] = T::of(total[j]);
        }
    }
}
