//! Queries (spec 2.5).
//!
//! `qr = RMSNorm(x wq_a^T; q_norm)` `[S,R]`; `q = qr wq_b^T` `[S,H,hd]`; each head `q = q / rms(q)` over all hd dims,
//! no weight, BEFORE rope; then rope on the last rd dims at the row's position.

use super::rms_norm::{rms_norm, rms_scale};
use super::rope::Angles;
use super::{Ctx, linear};
use crate::linalg::{Packed, Real};
use crate::linear::Linear;
use crate::made::Made;

/// x `[S,D]` to qr `[S,R]`.
pub(crate) fn query_down<T: Real>(ctx: Ctx<'_>, x: &[T], wq_a: &Packed<T>, q_norm: &[T]) -> Made<T> {
    let down = linear(ctx, x, ctx.config.hidden_size, wq_a);
    rms_norm(ctx, &down, q_norm, ctx.config.rms_norm_eps)
}

/// qr `[S,R]` to q `[S,H,hd]`, normed and roped.
pub(crate) fn query_up<T: Real>(ctx: Ctx<'_>, qr: &[T], wq_b: &Linear<'_, T>, angles: &Angles<T>) -> Made<T> {
    let (heads, hd) = (ctx.config.num_attention_heads, ctx.config.head_dim);
    let mut q = linear(ctx, qr, ctx.config.q_lora_rank, wq_b);
    rms_scale(ctx, &mut q, hd, ctx.config.rms_norm_eps);
    angles.rotate_rows(ctx, &mut q, (heads, hd), false);
    q
}
