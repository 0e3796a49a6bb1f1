//! Split-K attention: queries whose keys are cut alike go through the kernel together.

use std::collections::BTreeMap;

use karat_model::{Error, Result};
use karat_optimized::{Attending, SplitK, Store};

use super::operands::{bits, cut, fill, values};
use super::rows::POISON;
use super::{DIMS, HEADS};
use crate::cuda::{Device, Mla, MlaCall};

/// Queries of one launch: their keys are held once a query.
const BATCH: usize = 128;

/// Splits, and tiles of a split, as the contract cuts `keys` keys: whole tiles, the last split perhaps shorter. Keys are filled up
/// with places that hold none, so that every split of the kernel has as many tiles.
pub(super) fn splits(rule: SplitK, keys: usize) -> (usize, usize) {
    let tiles = keys.div_ceil(rule.tile).max(1);
    let each = tiles.div_ceil(rule.splits);
    (tiles.div_ceil(each), each)
}

/// Output `[S,H,hd]` and log-sum-exp `[S,H]`.
pub(super) fn attend(device: &Device, kernel: &Mla, it: Attending<'_>) -> Result<(Vec<f32>, Vec<f32>)> {
    let (heads, hd) = (it.sink.len(), it.width);
    let queries = it.from.len().saturating_sub(1);
    let mut out = vec![0.0; queries * heads * hd];
    let mut lse = vec![0.0; queries * heads];
    let mut alike: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for query in 0..queries {
        alike.entry(splits(it.rule, it.from[query + 1] - it.from[query])).or_default().push(query);
    }
    let mut sink = it.sink.to_vec();
    sink.resize(HEADS, 0.0);
    let sink = device.upload(&sink)?;
    for ((count, each), queries) in alike {
        let room = count * each * it.rule.tile;
        for some in queries.chunks(BATCH) {
            let (mut q, mut cache, mut chosen) = (Vec::new(), Vec::new(), vec![-1_i32; some.len() * room]);
            for (slots, &query) in chosen.chunks_exact_mut(room).zip(some) {
                q.extend_from_slice(&it.q[query * heads * hd..(query + 1) * heads * hd]);
                let keys = &it.keys[it.from[query] * hd..it.from[query + 1] * hd];
                let first = cache.len() / hd;
                slots.iter_mut().take(keys.len() / hd).enumerate().for_each(|(i, slot)| *slot = (first + i) as i32);
                cache.extend_from_slice(keys);
            }
            let batch = some.len();
            let partial_bytes = if it.rule.partials == Store::Bf16 { 2 } else { 4 };
            let call = MlaCall {
                q: &device.upload(&fill(&bits(&q), (heads, hd), (HEADS, DIMS)))?,
                cache: &device.upload(&fill(&bits(&cache), (1, hd), (1, DIMS)))?,
                chosen: &device.upload(&chosen)?,
                sink: &sink,
                partial: &device.alloc(batch * count * HEADS * DIMS * partial_bytes, POISON)?,
                lse: &device.alloc(batch * count * HEADS * 4, POISON)?,
                scores: &device.alloc(16, POISON)?,
                out: &device.alloc(batch * HEADS * DIMS * 2, POISON)?,
                batch: batch as u32,
                keys: room as u32,
                splits: count as u32,
            };
            kernel.run(device, &call)?;
            let made = cut(&values(&device.download::<u16>(call.out)?), (HEADS, DIMS), (heads, hd));
            let parts = device.download::<f32>(call.lse)?;
            for (i, &query) in some.iter().enumerate() {
                out[query * heads * hd..(query + 1) * heads * hd]
                    .copy_from_slice(&made[i * heads * hd..(i + 1) * heads * hd]);
                for h in 0..heads {
                    let parts = (0..count).map(|s| parts[(i * count + s) * HEADS + h]);
                    lse[query * heads + h] = merged(parts, it.sink[h]);
                }
            }
        }
    }
    if out.len() != it.q.len() {
        let error = Error::input("the attention kernel was given queries without keys");
        return Err(error.expected(it.q.len()).found(out.len()));
    }
    Ok((out, lse))
}

/// Natural log of the whole denominator, sink included, from the log-sum-exp of every split in base 2: what the kernel's merge
/// has in registers and does not write.
pub(super) fn merged(parts: impl Iterator<Item = f32>, sink: f32) -> f32 {
    let parts: Vec<f64> = parts.map(|p| f64::from(p) * std::f64::consts::LN_2).collect();
    let top = parts.iter().copied().fold(f64::from(sink), f64::max);
    let sum: f64 = parts.iter().map(|p| (p - top).exp()).sum::<f64>() + (f64::from(sink) - top).exp();
    (top + sum.ln()) as f32
}
