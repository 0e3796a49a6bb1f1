//! The shared key/value head (spec 2.5).

use karat_model::Config;

use super::norm::rms_norm;
use super::rope::Rope;
use super::rows;
use crate::arith::round_rows;
use crate::linear::Linear;
use crate::plan::{KvFormat, Numerics};
use crate::quant::q8;

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
    let mut kv = wkv.apply(rules.dense, rules, x);
    round_rows(rules.store.rounds(), &mut kv);
    rms_norm(rules, &mut kv, kv_norm, config.rms_norm_eps as f32);
    rows(&mut kv, config.head_dim, |s, row| {
        rope.at(position(s)).apply(rules.store, row, false);
        store_kv(rules, config, row);
    });
    kv
}

/// Quantises the nope part of one kv row or entry as the cache stores it; the rope part stays as it is.
pub(crate) fn store_kv(rules: &Numerics, config: &Config, row: &mut [f32]) {
    match rules.kv {
        KvFormat::Stored => {}
        KvFormat::Q8 { block, floor } => q8(&mut row[..config.nope_head_dim()], block, floor),
    }
}
