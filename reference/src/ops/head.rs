//! Final head (spec 2.13).
//!
//! `m = (flatten(h) fn^T) * r` with one rms over hc*D values; `pre = sigmoid(m * scale[0] + base) + eps` `[S,hc]`;
//! `x = sum_j pre_j h_j` `[S,D]`; `x = RMSNorm(x; norm)`; `logits = x head^T` `[S,V]`. No post, no comb, no Sinkhorn.

use std::ops::Range;

use karat_model::Result;

use super::hc_mix::collapse;
use super::rms_norm::{inverse_rms, rms_norm};
use super::{Ctx, linear, linear_into, rows};
use crate::decode::Decoder;
use crate::linalg::{Isa, Packed, Real};
use crate::made::Made;

/// Weights of a hyper-connection head and its norm.
pub(crate) struct HeadWeights<T> {
    /// fn `[hc, hc*D]`.
    pub(crate) mix: Packed<T>,
    /// `[hc]`
    pub(crate) base: Vec<T>,
    /// `[1]`
    pub(crate) scale: Vec<T>,
    /// `[D]`
    pub(crate) norm: Vec<T>,
}

/// h `[S,hc,D]` to the collapsed streams `[S,D]`, before the norm.
pub(crate) fn head_collapse<T: Real>(ctx: Ctx<'_>, w: &HeadWeights<T>, h: &[T]) -> Made<T> {
    let width = ctx.config.hc_mult * ctx.config.hidden_size;
    let m = linear(ctx, h, width, &w.mix);
    let r = inverse_rms(ctx, h, width, ctx.config.rms_norm_eps);
    let eps = T::of(ctx.config.hc_eps);
    let there = ctx.values(|there| {
        let (scale, eps) = (T::single(&w.scale)[0], ctx.config.hc_eps as f32);
        there.head_weights(T::single(&m), T::single(&r), T::single(&w.base), scale, eps)
    });
    let pre = there.unwrap_or_else(|| {
        let mut pre = m;
        for (pre, &r) in pre.chunks_exact_mut(w.base.len()).zip(&*r) {
            for (pre, &base) in pre.iter_mut().zip(&w.base) {
                *pre = (*pre * r * w.scale[0] + base).sigmoid() + eps;
            }
        }
        pre
    });
    collapse(ctx, &pre, h)
}

/// Vocabulary rows decoded at a time: the table is never whole in f32.
const VOCAB_BLOCK: usize = 8192;

/// The table `[V,D]` of the head.
pub(crate) enum HeadTable<'a, T> {
    /// As stored: decoded block by block in each pass.
    Stored(Decoder<'a>),
    /// Decoded once, blocks of VOCAB_BLOCK rows.
    Held(Vec<Packed<T>>),
}

impl<T: Real> HeadTable<'_, T> {
    /// Decodes the whole table.
    pub(crate) fn hold(self, isa: Isa) -> Result<Self> {
        match self {
            Self::Held(_) => Ok(self),
            Self::Stored(table) => {
                Ok(Self::Held(blocks(table.rows()).map(|at| pack(isa, &table, at)).collect::<Result<_>>()?))
            }
        }
    }
}

fn blocks(vocab: usize) -> impl Iterator<Item = Range<usize>> {
    (0..vocab).step_by(VOCAB_BLOCK).map(move |first| first..vocab.min(first + VOCAB_BLOCK))
}

fn pack<T: Real>(isa: Isa, table: &Decoder<'_>, rows: Range<usize>) -> Result<Packed<T>> {
    crate::weights::pack(isa, table, rows.start, rows.len())
}

/// Collapsed streams of several lanes to logits `[S,V]` each, one pass over the table. A table that is
/// not finite is an input error.
pub(crate) fn head_logits<T: Real>(
    ctx: Ctx<'_>,
    w: &HeadWeights<T>,
    table: &HeadTable<'_, T>,
    collapsed: &[&[T]],
) -> Result<Vec<Made<T>>> {
    let (d, vocab) = (ctx.config.hidden_size, ctx.config.vocab_size);
    let x: Vec<Made<T>> = collapsed.iter().map(|x| rms_norm(ctx, x, &w.norm, ctx.config.rms_norm_eps)).collect();
    // A backend's product of the whole table is the logits.
    let whole = ctx.backend.is_some() && vocab <= VOCAB_BLOCK;
    let room = |x: &Made<T>| if whole { Vec::new() } else { vec![T::ZERO; x.len() / d * vocab] };
    let mut logits: Vec<Made<T>> = x.iter().map(|x| room(x).into()).collect();
    for (i, block) in blocks(vocab).enumerate() {
        let fresh;
        let packed = match table {
            HeadTable::Held(blocks) => &blocks[i],
            HeadTable::Stored(table) => {
                fresh = pack(ctx.isa, table, block.clone())?;
                &fresh
            }
        };
        for (x, logits) in x.iter().zip(&mut logits) {
            if whole {
                *logits = linear(ctx, x, d, packed);
            } else {
                linear_into(ctx, &rows(x, d), packed, logits, vocab, block.start);
            }
        }
    }
    Ok(logits)
}
