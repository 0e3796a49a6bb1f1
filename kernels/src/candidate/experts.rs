//! Routed experts: all of a layer's codes on the device, as they are stored.

use std::sync::Arc;

use karat_model::checkpoint::{Encoding, Weight};
use karat_model::{Error, Result};
use karat_optimized::Routed;

use super::SLAB;
use super::operands::{bits, cut, fill, scales_in_e4m3, values};
use super::rows::POISON;
use crate::cuda::{Buffer, Device, Matrix, Moe, MoeCall, MoePart};

/// A layer's experts on the device.
struct Stored {
    nvfp4: bool,
    /// Gate, up, down.
    matrices: [Matrix; 3],
}

/// Sizes as the kernel has them: whole slabs.
struct Sizes {
    tokens: usize,
    width: usize,
    inner: usize,
    to_width: usize,
    to_inner: usize,
}

impl Sizes {
    fn of(it: &Routed<'_>) -> Self {
        let config = it.checkpoint.config();
        let (width, inner) = (config.hidden_size, config.moe_intermediate_size);
        let [to_width, to_inner] = [width, inner].map(|n| n.next_multiple_of(SLAB));
        Self { tokens: it.x.len() / width, width, inner, to_width, to_inner }
    }
}

/// Activations `[S,K,I]`.
pub(super) fn up(device: &Device, kernel: &Moe, it: Routed<'_>) -> Result<Vec<f32>> {
    let s = Sizes::of(&it);
    let act = device.alloc(it.idx.len() * s.to_inner * 2, POISON)?;
    run(device, kernel, it, &s, MoePart::Up, &act, None)?;
    Ok(cut(&values(&device.download::<u16>(&act)?), (1, s.to_inner), (1, s.inner)))
}

/// Sum over the experts `[S,D]`.
pub(super) fn down(device: &Device, kernel: &Moe, it: Routed<'_>, act: &[f32]) -> Result<Vec<f32>> {
    let s = Sizes::of(&it);
    let act = device.upload(&fill(&bits(act), (1, s.inner), (1, s.to_inner)))?;
    let sum = device.alloc(s.tokens * s.to_width * 4, POISON)?;
    run(device, kernel, it, &s, MoePart::Down, &act, Some(&sum))?;
    Ok(cut(&device.download::<f32>(&sum)?, (1, s.to_width), (1, s.width)))
}

fn run(
    device: &Device,
    kernel: &Moe,
    it: Routed<'_>,
    s: &Sizes,
    part: MoePart,
    act: &Buffer,
    sum: Option<&Buffer>,
) -> Result<()> {
    let config = it.checkpoint.config();
    let held = it.held.get(|| Ok(Arc::new(stored(device, &it, s)?)))?;
    let other = || Error::input(format!("{}: the device keeps something else of these experts", it.prefix));
    let stored = held.downcast_ref::<Stored>().filter(|stored| stored.nvfp4 == it.grouped.nvfp4).ok_or_else(other)?;
    let slots = it.idx.len();
    let experts = config.n_routed_experts;
    let room = if sum.is_some() { 0 } else { s.tokens * s.to_width * 4 };
    let nowhere = device.alloc(room, POISON)?;
    let call = MoeCall {
        x: &device.upload(&fill(&bits(it.x), (1, s.width), (1, s.to_width)))?,
        expert: &device.upload(it.idx)?,
        weight: &device.upload(it.wt)?,
        matrices: &stored.matrices,
        count: &device.alloc(experts * 4, POISON)?,
        list: &device.alloc(experts * slots * 4, POISON)?,
        act,
        out: &device.alloc(slots * s.to_width * 2, POISON)?,
        sum: sum.unwrap_or(&nowhere),
        tokens: s.tokens as u32,
        picks: it.k as u32,
        experts: experts as u32,
        width: s.to_width as u32,
        inner: s.to_inner as u32,
        limit: config.swiglu_limit as f32,
    };
    kernel.run_part(device, &call, part)?;
    device.wait()
}

/// Uploads every expert's codes, filled up with the code of zero.
fn stored(device: &Device, it: &Routed<'_>, s: &Sizes) -> Result<Stored> {
    let (nvfp4, experts) = (it.grouped.nvfp4, it.checkpoint.config().n_routed_experts);
    let block = if nvfp4 { 16 } else { 32 };
    let load = |which: &str, rows: (usize, usize), cols: (usize, usize)| -> Result<Matrix> {
        let codes = device.alloc(experts * rows.1 * cols.1 / 2, 0)?;
        let scales = device.alloc(experts * rows.1 * cols.1 / block, 0)?;
        let mut globals = Vec::with_capacity(experts);
        for e in 0..experts {
            let name = format!("{}.{e}.{which}", it.prefix);
            let weight = it.checkpoint.linear(&name)?;
            let of = |bytes: &[u8], each: usize| fill(bytes, (rows.0, cols.0 / each), (rows.1, cols.1 / each));
            let (own, global) = scales_of(&weight, nvfp4)?;
            device.write(&codes, e * rows.1 * cols.1 / 2, &of(weight.data.bytes, 2))?;
            device.write(&scales, e * rows.1 * cols.1 / block, &of(&own, block))?;
            globals.push(global);
        }
        device.settle()?;
        Ok(Matrix { codes, scales, global: device.upload(&globals)? })
    };
    let (d, i) = ((s.width, s.to_width), (s.inner, s.to_inner));
    Ok(Stored { nvfp4, matrices: [load("w1", i, d)?, load("w3", i, d)?, load("w2", d, i)?] })
}

/// A matrix's block scales in the kernel's format, and the factor that they share.
fn scales_of(weight: &Weight<'_>, nvfp4: bool) -> Result<(Vec<u8>, f32)> {
    let missing = || Error::input("the experts of a kernel have block scales").at(&weight.name);
    let scale = weight.scale.as_ref().ok_or_else(missing)?;
    match (weight.encoding, nvfp4) {
        (Encoding::Mxfp4, false) => Ok((scale.bytes.to_vec(), 1.0)),
        (Encoding::Mxfp4, true) => scales_in_e4m3(scale.bytes, &weight.name),
        (Encoding::Nvfp4, true) => {
            let global = weight.global_scale.as_ref().and_then(|raw| raw.bytes.first_chunk::<4>());
            Ok((scale.bytes.to_vec(), global.map_or(1.0, |bytes| f32::from_le_bytes(*bytes))))
        }
        (found, _) => {
            let error = Error::input("the kernel does not read this format of experts").at(&weight.name);
            Err(error.expected(if nvfp4 { "NVFP4 or MXFP4" } else { "MXFP4" }).found(format!("{found:?}")))
        }
    }
}
