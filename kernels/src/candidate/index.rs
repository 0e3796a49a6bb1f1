//! Index scores out of a paged cache, and the exact selection by them.

use karat_model::Result;
use karat_optimized::Scoring;

use super::operands::{e4m3, fill};
use super::rows::POISON;
use super::{HEADS, INDEX_DIMS};
use crate::cuda::{Device, IndexCall, IndexLogits, Select, SelectCall};

/// Keys of a page where the patch doesn't say.
const PAGE: usize = 64;

/// Queries of one launch.
const BATCH: usize = 1024;

/// Scores `[S,T]`.
pub(super) fn scores(device: &Device, kernel: &IndexLogits, it: Scoring<'_>) -> Result<Vec<f32>> {
    let (total, heads) = (it.key_scales.len(), it.heads);
    let dims = it.keys.len() / total.max(1);
    let page = if it.page == 0 { PAGE } else { it.page };
    let pages = total.div_ceil(page);
    let room = pages * page;
    // Pages lie in the cache backwards: where a page lies must change nothing.
    let codes = fill(&e4m3(it.keys)?, (1, dims), (1, INDEX_DIMS));
    let (mut keys, mut key_scales) = (vec![0_u8; room * INDEX_DIMS], vec![0.0_f32; room]);
    for (i, (code, scale)) in codes.chunks_exact(INDEX_DIMS).zip(it.key_scales).enumerate() {
        let at = (pages - 1 - i / page) * page + i % page;
        keys[at * INDEX_DIMS..(at + 1) * INDEX_DIMS].copy_from_slice(code);
        key_scales[at] = *scale;
    }
    let (keys, key_scales) = (device.upload(&keys)?, device.upload(&key_scales)?);
    let mut out = Vec::with_capacity(it.visible.len() * total);
    for (i, visible) in it.visible.chunks(BATCH).enumerate() {
        let (first, batch) = (i * BATCH, visible.len());
        let of = |values: &[f32], width: usize| values[first * width..(first + batch) * width].to_vec();
        let by_head = |values: &[f32]| fill(&of(values, heads), (1, heads), (1, HEADS));
        let q = fill(&e4m3(&of(it.q, heads * dims))?, (heads, dims), (HEADS, INDEX_DIMS));
        let table: Vec<i32> = (0..batch).flat_map(|_| (0..pages as i32).rev()).collect();
        let seen: Vec<i32> = visible.iter().map(|n| *n as i32).collect();
        let logits = device.alloc(batch * room * 4, POISON)?;
        let call = IndexCall {
            q: &device.upload(&q)?,
            q_scale: &device.upload(&by_head(it.q_scales))?,
            weight: &device.upload(&by_head(it.weights))?,
            keys: &keys,
            key_scale: &key_scales,
            table: &device.upload(&table)?,
            visible: &device.upload(&seen)?,
            logits: &logits,
            batch: batch as u32,
            page: page as u32,
            table_pages: pages as u32,
        };
        kernel.run(device, &call)?;
        let made = device.download::<f32>(&logits)?;
        for (row, visible) in made.chunks_exact(room).zip(visible) {
            out.extend_from_slice(&row[..*visible]);
            out.extend(std::iter::repeat_n(f32::NEG_INFINITY, total - visible));
        }
    }
    Ok(out)
}

/// The best entries of each row of scores, ascending.
pub(super) fn select(
    device: &Device,
    kernel: &Select,
    scores: &[f32],
    visible: &[usize],
    topk: usize,
) -> Result<Vec<Vec<u32>>> {
    let width = scores.len() / visible.len().max(1);
    let mut out = Vec::with_capacity(visible.len());
    for (i, visible) in visible.chunks(BATCH).enumerate() {
        let batch = visible.len();
        let seen: Vec<i32> = visible.iter().map(|n| *n as i32).collect();
        let candidates = batch * Select::chunks(width as u32) as usize * topk;
        let chosen = device.alloc(batch * topk * 4, POISON)?;
        let call = SelectCall {
            logits: &device.upload(&scores[i * BATCH * width..(i * BATCH + batch) * width])?,
            visible: &device.upload(&seen)?,
            keys: &device.alloc(candidates * 4, POISON)?,
            places: &device.alloc(candidates * 4, POISON)?,
            chosen: &chosen,
            batch: batch as u32,
            room: width as u32,
            topk: topk as u32,
        };
        kernel.run(device, &call)?;
        let made = device.download::<i32>(&chosen)?;
        out.extend(made.chunks_exact(topk).map(|row| row.iter().filter_map(|e| u32::try_from(*e).ok()).collect()));
    }
    Ok(out)
}
