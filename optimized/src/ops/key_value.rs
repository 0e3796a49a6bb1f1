//! The shared key/value head (spec 2.5).

use karat_model::Config;

use super::norm::rms_norm_as;
use super::rope::Rope;
use super::rows;
use crate::arith::round_rows;
use crate::linear::Linear;
use crate::plan::{KvFormat, Numerics, Store};
use crate::quant::{q8, unscaled};

/// kv = store(rope(RMSNorm(Lin(x, wkv); kv_norm))): `[S,hd]`.
pub(crate) fn key_value(
    rules: &Numerics,
    config: &Config,
    wkv: &Linear,
    kv_norm: &[f32],
    rope: &Rope,
    x: &[f32],
    position: impl Fn(usize) -> u32 + Sync,
) -> Vec<f32> {
    let mut kv = wkv.apply_parts(rules.dense, rules, rules.qkv_a, x);
    round_rows(rules.store.rounds(), &mut kv);
    rms_norm_as(norm_store(rules), &mut kv, kv_norm, config.rms_norm_eps as f32);
    rows(&mut kv, config.head_dim, |s, row| {
        rope.at(position(s)).apply(rules.store, row, false);
        store_kv(rules, config, row);
    });
    kv
}

/// Format in which the norm leaves a kv row or an entry: f32 where the quantiser is fused with it (D3).
pub(crate) fn norm_store(rules: &Numerics) -> Store {
    match rules.kv {
        KvFormat::Q8 { source, .. } if rules.store.rounds() => source,
        _ => rules.store,
    }
}

/// Quantises one kv row or entry as the cache stores it: the nope part, or all of it.
pub(crate) fn store_kv(rules: &Numerics, config: &Config, row: &mut [f32]) {
    match rules.kv {
        KvFormat::Stored => {}
        KvFormat::Q8 { block, floor, .. } => q8(&mut row[..config.nope_head_dim()], block, floor),
        KvFormat::Uniform => unscaled(row),
    }
}
