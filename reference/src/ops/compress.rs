//! Compressor: r tokens to one entry (spec 2.7). The main one has width hd, the indexer's di; c = 2 for CSA, 1 for HCA.
//!
//! `kvp = x wkv^T`, `score = x wgate^T`, both `[S, c*width]`. Token p is slot `p mod r` of window `p div r`;
//! `z = score + ape[slot]`. HCA: `entry[d] = sum_i softmax_i(z[i,d]) * kvp[i,d]` over the r slots, per channel.
//! CSA: columns 0..width are series Ca, width..2*width Cb; entry w pools the r Ca rows of window w-1, then the r Cb rows
//! of window w (window 0 has no Ca rows). Then RMSNorm, and rope at position w*r, the FIRST token of the window.
//! An entry exists once all r tokens of its window are known.

use rayon::prelude::*;

use super::rms_norm::rms_norm;
use super::rope::{Angles, Rope};
use super::{Ctx, linear};
use crate::backend::Windows;
use crate::lent::{Lent, List, listed};
use crate::linalg::{Packed, Real, pool_slots};
use crate::made::Made;
use crate::state::CompressorState;

/// Weights of one compressor.
pub(crate) struct CompressorWeights<T> {
    /// `[c*width, D]`
    pub(crate) wkv: Packed<T>,
    /// `[c*width, D]`
    pub(crate) wgate: Packed<T>,
    /// `[r, c*width]`
    pub(crate) ape: Vec<T>,
    /// `[width]`
    pub(crate) norm: Vec<T>,
    /// r.
    pub(crate) ratio: usize,
    /// True for CSA: c = 2.
    pub(crate) overlap: bool,
}

impl<T> CompressorWeights<T> {
    /// c*width.
    pub(crate) fn columns(&self) -> usize {
        self.ape.len() / self.ratio
    }

    /// Width of an entry.
    pub(crate) fn width(&self) -> usize {
        self.norm.len()
    }
}

/// x `[S,D]` to (kvp, score), each `[S, c*width]`, score WITHOUT ape.
pub(crate) fn project<T: Real>(ctx: Ctx<'_>, w: &CompressorWeights<T>, x: &[T]) -> (Made<T>, Made<T>) {
    let d = ctx.config.hidden_size;
    (linear(ctx, x, d, &w.wkv), linear(ctx, x, d, &w.wgate))
}

/// Takes new rows into the state and returns the entries that they complete, `[n, width]`. The caller appends them to
/// the state's entries.
pub(crate) fn pool<T: Real>(
    ctx: Ctx<'_>,
    w: &CompressorWeights<T>,
    rope: &Rope,
    state: &mut CompressorState<T>,
    kvp: &[T],
    score: &[T],
) -> Made<T> {
    let (r, columns, width) = (w.ratio, w.columns(), w.width());
    state.pend_kvp.extend_from_slice(kvp);
    state.pend_score.extend_from_slice(score);
    let first = state.entries.len() / width;
    let windows = state.pend_kvp.len() / columns / r;
    if windows == 0 {
        return Vec::new().into();
    }
    let block = r * columns;
    let before = || state.prev.as_ref().map(|prev| [T::single(&prev.kvp), T::single(&prev.score)]);
    let whole = || Windows {
        kvp: T::single(&state.pend_kvp[..windows * block]),
        score: T::single(&state.pend_score[..windows * block]),
        ape: T::single(&w.ape),
        before: before(),
        ratio: r,
        width,
    };
    let (entries, z) = match ctx.there::<T, _>(|there| there.pool(whole())) {
        Some((entries, z)) => (T::of_singles(entries), T::of_singles(z)),
        None => pool_here(ctx, w, state, windows),
    };
    if w.overlap {
        let last = (windows - 1) * block..windows * block;
        let ca = |rows: &[T]| rows.chunks_exact(columns).flat_map(|row| &row[..width]).copied().collect();
        state.prev = Some(crate::state::Overlap { kvp: ca(&state.pend_kvp[last.clone()]), score: ca(&z[last]) });
    }
    state.pend_kvp.drain(..windows * block);
    state.pend_score.drain(..windows * block);

    let mut entries = rms_norm(ctx, &entries, &w.norm, ctx.config.rms_norm_eps);
    let angles = Angles::at(rope, (first..first + windows).map(|i| (i * r) as u32));
    angles.rotate_rows(ctx, &mut entries, (1, width), false);
    entries
}

/// Entries before their norm `[windows,width]`, and z of all complete windows.
fn pool_here<T: Real>(
    ctx: Ctx<'_>,
    w: &CompressorWeights<T>,
    state: &CompressorState<T>,
    windows: usize,
) -> (Vec<T>, Vec<T>) {
    let (r, columns, width) = (w.ratio, w.columns(), w.width());
    let block = r * columns;
    let mut z = state.pend_score[..windows * block].to_vec();
    for window in z.chunks_exact_mut(block) {
        for (z, &ape) in window.iter_mut().zip(&w.ape) {
            *z = *z + ape;
        }
    }
    let mut entries = vec![T::ZERO; windows * width];
    let init = || (Lent::<(List<T>, List<T>)>::take(), Lent::take());
    entries.par_chunks_exact_mut(width).enumerate().for_each_init(init, |(lists, buffers), (i, entry)| {
        let own = i * block..(i + 1) * block;
        let column = if w.overlap { width..2 * width } else { 0..width };
        let (values, scores) = &mut **lists;
        listed(values, |values| {
            listed(scores, |scores| {
                if w.overlap && i > 0 {
                    let before = (i - 1) * block..i * block;
                    values.extend(state.pend_kvp[before.clone()].chunks_exact(columns).map(|row| &row[..width]));
                    scores.extend(z[before].chunks_exact(columns).map(|row| &row[..width]));
                } else if let Some(prev) = state.prev.as_ref().filter(|_| w.overlap) {
                    values.extend(prev.kvp.chunks_exact(width));
                    scores.extend(prev.score.chunks_exact(width));
                }
                values.extend(state.pend_kvp[own.clone()].chunks_exact(columns).map(|row| &row[column.clone()]));
                scores.extend(z[own].chunks_exact(columns).map(|row| &row[column.clone()]));
                pool_slots(ctx.isa, scores, values, entry, buffers);
            });
        });
    });
    (entries, z)
}
