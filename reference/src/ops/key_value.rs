//! The shared key and value (spec 2.5).
//!
//! `kv = RMSNorm(x wkv^T; kv_norm)` `[S,hd]`, rope on the last rd dims: one head for all queries, K = V = kv.

use super::rms_norm::rms_norm;
use super::rope::Angles;
use super::{Ctx, linear};
use crate::linalg::{Packed, Real};
use crate::made::Made;

/// x `[S,D]` to kv `[S,hd]`, normed and roped.
pub(crate) fn key_value<T: Real>(ctx: Ctx<'_>, x: &[T], wkv: &Packed<T>, kv_norm: &[T], angles: &Angles<T>) -> Made<T> {
    let hd = ctx.config.head_dim;
    let mut kv = rms_norm(ctx, &linear(ctx, x, ctx.config.hidden_size, wkv), kv_norm, ctx.config.rms_norm_eps);
    angles.rotate_rows(ctx, &mut kv, (1, hd), false);
    kv
}
