//! Output projection (spec 2.10).

use karat_model::Config;
use karat_seam::copied;

use super::rope::Rope;
use super::rows;
use crate::arith::round_rows;
use crate::linear::{Adder, Linear};
use crate::plan::Numerics;

/// Inverse rope at the query's position, then z[g] = B(wo_a[g] @ o[g]): `[S, G*o_lora]` from `o [S,H,hd]`.
pub(crate) fn down(
    rules: &Numerics,
    config: &Config,
    wo_a: &Linear,
    rope: &Rope,
    o: &[f32],
    position: impl Fn(usize) -> u32 + Sync,
) -> Vec<f32> {
    let (hd, groups, rank) = (config.head_dim, config.o_groups, config.o_lora_rank);
    let width = config.num_attention_heads * hd;
    let mut o = copied(o);
    rows(&mut o, width, |s, row| {
        let turn = rope.at(position(s));
        row.chunks_exact_mut(hd).for_each(|head| turn.apply(rules.store, head, true));
    });
    let part = width / groups;
    let mut z = vec![0.0; o.len() / width * groups * rank];
    let mut x = vec![0.0; o.len() / groups];
    for g in 0..groups {
        rows(&mut x, part, |s, x| x.copy_from_slice(&o[s * width + g * part..][..part]));
        let y = wo_a.apply_rows(rules.wo_a, rules, &x, g * rank..(g + 1) * rank);
        rows(&mut z, groups * rank, |s, z| z[g * rank..(g + 1) * rank].copy_from_slice(&y[s * rank..][..rank]));
    }
    round_rows(rules.store.rounds(), &mut z);
    z
}

/// y = Lin(z, wo_b): `[S,D]`.
pub(crate) fn up(rules: &Numerics, adder: &Adder, wo_b: &Linear, z: &[f32]) -> Vec<f32> {
    let mut y = wo_b.apply_ranks(rules.dense, rules, adder, z);
    round_rows(rules.store.rounds(), &mut y);
    y
}
