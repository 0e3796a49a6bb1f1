//! Final head (spec 2.13).
//!
//! `m = (flatten(h) fn^T) * r` with one rms over hc*D values; `pre = sigmoid(m * scale[0] + base) + eps` `[S,hc]`;
//! `x = sum_j pre_j h_j` `[S,D]`; `x = RMSNorm(x; norm)`; `logits = x head^T` `[S,V]`. No post, no comb, no Sinkhorn.

use super::hc_mix::collapse;
use super::rms_norm::{inverse_rms, rms_norm};
use super::{Ctx, linear, rows};
use crate::decode::Decoder;
use crate::linalg::{Packed, Real, matmul_into};

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
pub(crate) fn head_collapse<T: Real>(ctx: Ctx<'_>, w: &HeadWeights<T>, h: &[T]) -> Vec<T> {
    let width = ctx.config.hc_mult * ctx.config.hidden_size;
    let m = linear(ctx, h, width, &w.mix);
    let r = inverse_rms(ctx.isa, h, width, ctx.config.rms_norm_eps);
    let eps = T::of(ctx.config.hc_eps);
    let mut pre = m;
    for (pre, &r) in pre.chunks_exact_mut(w.base.len()).zip(&r) {
        for (pre, &base) in pre.iter_mut().zip(&w.base) {
            *pre = (*pre * r * w.scale[0] + base).sigmoid() + eps;
        }
    }
    collapse(ctx, &pre, h)
}

/// Vocabulary rows decoded at a time: the table is never whole in f32.
const VOCAB_BLOCK: usize = 8192;

/// Collapsed streams of several lanes to logits `[S,V]` each, one pass over the table.
pub(crate) fn head_logits<T: Real>(
    ctx: Ctx<'_>,
    w: &HeadWeights<T>,
    table: &Decoder<'_>,
    collapsed: &[&[T]],
) -> Vec<Vec<T>> {
    let (d, vocab) = (table.cols(), table.rows());
    let x: Vec<Vec<T>> = collapsed.iter().map(|x| rms_norm(ctx.isa, x, &w.norm, ctx.config.rms_norm_eps)).collect();
    let mut logits: Vec<Vec<T>> = x.iter().map(|x| vec![T::ZERO; x.len() / d * vocab]).collect();
    for first in (0..vocab).step_by(VOCAB_BLOCK) {
        let n = VOCAB_BLOCK.min(vocab - first);
        let packed = crate::weights::pack(table, first, n);
        for (x, logits) in x.iter().zip(&mut logits) {
            matmul_into(ctx.isa, &rows(x, d), &packed, logits, vocab, first);
        }
    }
    logits
}
