//! Output projection (spec 2.9 last line, 2.10).
//!
//! o `[S,H,hd]`, inverse rope at the QUERY position, viewed as `[S,G,H/G*hd]`;
//! `oa[t,g,:] = wo_a[g] o[t,g,:]`, `[S, G*o_lora]`; `y = oa wo_b^T` `[S,D]`.

use super::rope::Angles;
use super::{Ctx, linear, linear_into};
use crate::linalg::Real;
use crate::linear::Linear;
use crate::made::Made;

/// o `[S,H,hd]` to oa `[S,G*o_lora]`; `wo_a` holds one weight `[o_lora, H/G*hd]` a group.
pub(crate) fn output_down<T: Real>(ctx: Ctx<'_>, mut o: Made<T>, wo_a: &[Linear<'_, T>], angles: &Angles<T>) -> Vec<T> {
    let (hd, width) = (ctx.config.head_dim, ctx.config.num_attention_heads * ctx.config.head_dim);
    angles.rotate_rows(ctx, &mut o, (ctx.config.num_attention_heads, hd), true);
    let (group, rank) = (width / wo_a.len(), ctx.config.o_lora_rank);
    let stride = wo_a.len() * rank;
    let mut oa = vec![T::ZERO; o.len() / width * stride];
    for (g, w) in wo_a.iter().enumerate() {
        let x: Vec<&[T]> = o.chunks_exact(width).map(|row| &row[g * group..(g + 1) * group]).collect();
        linear_into(ctx, &x, w, &mut oa, stride, g * rank);
    }
    oa
}

/// oa `[S,G*o_lora]` to `[S,D]`.
pub(crate) fn output_up<T: Real>(ctx: Ctx<'_>, oa: &[T], wo_b: &Linear<'_, T>) -> Made<T> {
    linear(ctx, oa, ctx.config.o_groups * ctx.config.o_lora_rank, wo_b)
}
