//! A linear's weight as f32 values, some rows at a time, whatever its encoding.

use super::{bf16, block, e4m3, e8m0};
use crate::checkpoint::{Dtype, Encoding, RawTensor, Weight};

/// Decodes rows `first..first + out.len() / cols` into `out` (`[rows, cols]`, row-major).
///
/// # Panics
/// If the rows are outside the weight or `out` isn't whole rows.
pub fn decode_rows(w: &Weight<'_>, first: usize, out: &mut [f32]) {
    let cols = w.cols;
    assert!(out.len().is_multiple_of(cols), "whole rows");
    let rows = out.len() / cols;
    assert!(first + rows <= w.rows, "rows inside the weight");
    for (r, out) in out.chunks_exact_mut(cols).enumerate() {
        row(w, first + r, out);
    }
}

fn row(w: &Weight<'_>, r: usize, out: &mut [f32]) {
    let stride = w.data.bytes.len() / w.rows;
    let codes = &w.data.bytes[r * stride..(r + 1) * stride];
    match (w.encoding, &w.scale) {
        (Encoding::Plain, _) => plain(w.data.dtype, codes, out),
        (Encoding::Fp8Block { block: [br, bc] }, Some(scale)) => {
            let per_row = w.cols.div_ceil(bc);
            for (b, (out, codes)) in out.chunks_mut(bc).zip(codes.chunks(bc)).enumerate() {
                let s = scale_at(scale, r / br * per_row + b);
                for (y, &code) in out.iter_mut().zip(codes) {
                    *y = e4m3::decode(code) * s;
                }
            }
        }
        (Encoding::Mxfp4, Some(scale)) => block::mxfp4_row(codes, scale_row(scale, w.rows, r), out),
        (Encoding::Nvfp4, Some(scale)) => {
            let global = w.global_scale.as_ref().map_or(1.0, |g| scale_at(g, 0));
            block::nvfp4_row(codes, scale_row(scale, w.rows, r), global, out);
        }
        (_, None) => unreachable!("the checkpoint reader gives no quantised weight without scales"),
    }
}

fn scale_row<'a>(scale: &RawTensor<'a>, rows: usize, r: usize) -> &'a [u8] {
    let stride = scale.bytes.len() / rows;
    &scale.bytes[r * stride..(r + 1) * stride]
}

fn plain(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    if dtype == Dtype::Bf16 {
        for (y, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *y = bf16::decode(u16::from_le_bytes(*b));
        }
    } else {
        for (y, b) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *y = f32::from_le_bytes(*b);
        }
    }
}

/// Element `i` of a scale tensor (E8M0, E4M3, BF16 or F32) as f32.
///
/// # Panics
/// If there is no such element, or the dtype is none of a scale.
pub fn scale_at(scale: &RawTensor<'_>, i: usize) -> f32 {
    match scale.dtype {
        Dtype::F8E8M0 => e8m0::decode(scale.bytes[i]),
        Dtype::F8E4M3 => e4m3::decode(scale.bytes[i]),
        Dtype::Bf16 => bf16::decode(u16::from_le_bytes(scale.bytes.as_chunks::<2>().0[i])),
        Dtype::F32 => f32::from_le_bytes(scale.bytes.as_chunks::<4>().0[i]),
        other => panic!("{other:?} is no dtype of a scale"),
    }
}
