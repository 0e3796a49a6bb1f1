//! Kernels that take rows as they are: mHC coefficients and the compressors' products.

use std::sync::Arc;

use karat_model::{Error, Result};
use karat_optimized::{Mix, Projecting, Store};

use super::operands::{bits, terms, values, weight_bits};
use crate::cuda::{Buffer, CompressCall, Compressor, Device, Mhc, MhcCall};

/// What nothing has written yet: not a number, in every type of float.
pub(super) const POISON: u8 = 0xff;

/// Coefficients `[S,24]`.
pub(super) fn mix(device: &Device, kernel: &Mhc, it: Mix<'_>) -> Result<Vec<f32>> {
    let width = it.weight.len() / it.base.len().max(1);
    let tokens = it.x.len() / width.max(1);
    let splits = kernel.splits(device, tokens as u32, width as u32);
    let room = |n: usize| device.alloc(4 * n, POISON);
    let call = MhcCall {
        x: &device.upload(&bits(it.x))?,
        fn_terms: &device.upload(&terms(it.weight, usize::from(it.terms)))?,
        fn_f32: &device.upload(it.weight)?,
        base: &device.upload(it.base)?,
        scale: &device.upload(it.scale)?,
        partial: &room(splits as usize * tokens * 32)?,
        mixes: &room(tokens * 24)?,
        sumsq: &room(tokens)?,
        coefficients: &room(tokens * 24)?,
        tokens: tokens as u32,
        width: width as u32,
        splits,
        iterations: it.iterations as u32,
    };
    kernel.run(device, &call)?;
    device.download(call.coefficients)
}

/// Rows and gate scores `[S,columns]` each.
pub(super) fn project(device: &Device, kernel: &Compressor, it: Projecting<'_>) -> Result<(Vec<f32>, Vec<f32>)> {
    let width = it.checkpoint.config().hidden_size;
    let (tokens, columns) = (it.x.len() / width, it.columns);
    let held = it.held.get(|| {
        let mut w = Vec::with_capacity(2 * columns * width);
        for name in ["wkv", "wgate"] {
            w.extend(weight_bits(&it.checkpoint.linear(&format!("{}.{name}", it.prefix))?.data)?);
        }
        Ok(Arc::new(device.upload(&w)?))
    })?;
    let other = || Error::input(format!("{}: the device keeps something else of it", it.prefix));
    let nothing = device.alloc(columns * 4, 0)?;
    let row_bytes = if it.rows == Store::Bf16 { 2 } else { 4 };
    let rows = device.alloc(tokens * 2 * columns * row_bytes, POISON)?;
    let call = CompressCall {
        x: &device.upload(&bits(it.x))?,
        w: held.downcast_ref::<Buffer>().ok_or_else(other)?,
        ape: &nothing,
        norm: &nothing,
        turns: &nothing,
        rows: &rows,
        pooled: &nothing,
        scale: &nothing,
        entries: &nothing,
        tokens: tokens as u32,
        width: width as u32,
        dims: columns as u32,
        overlap: false,
        ratio: 1,
        rope: 0,
        base: 0,
        first_token: 0,
        first_window: 0,
        windows: 0,
    };
    kernel.run(device, &call)?;
    let all = match it.rows {
        Store::Bf16 => values(&device.download::<u16>(&rows)?),
        Store::F32 => device.download::<f32>(&rows)?,
    };
    let half = |from: usize| all.chunks_exact(2 * columns).flat_map(|r| r[from..from + columns].to_vec()).collect();
    Ok((half(0), half(columns)))
}
