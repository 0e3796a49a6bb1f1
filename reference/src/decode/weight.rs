//! A stored weight to f32 values, row by row (this page) or panel by panel (`panel`).
//!
//! FP8: `w[n,k] = e4m3(code[n,k]) * scale[n div block_rows, k div block_cols]`, scales E8M0, F32 or BF16.
//! MXFP4: `w[n,k] = e2m1(nibble) * e8m0(scale[n, k div 32])`; the low nibble of a byte is the even column.
//! NVFP4: `w[n,k] = (e2m1(nibble) * e4m3(scale[n, k div 16])) * scale_2`, scale_2 an F32 scalar.
//! All products are f32; they are exact except with F32 scales, where they round once. Source: spec section 4.

use std::ops::Range;
use std::sync::LazyLock;

use karat_model::checkpoint::{Dtype, Encoding, RawTensor, Weight};
use karat_model::{Error, Result};

use super::codes::{bf16, e2m1, e4m3, e8m0};
use crate::linalg::Real;

/// The value of an FP8 code under its block scale.
pub fn fp8_value(code: u8, scale: f32) -> f32 {
    e4m3(code) * scale
}

/// The value of an NVFP4 code under its block scale (an E4M3 code) and the global scale.
pub fn nvfp4_value(code: u8, scale: u8, global: f32) -> f32 {
    (e2m1(code) * e4m3(scale)) * global
}

static E4M3: LazyLock<[f32; 256]> = LazyLock::new(|| std::array::from_fn(|code| e4m3(code as u8)));
/// Both values of a byte, the low nibble first.
static E2M1: LazyLock<[[f32; 2]; 256]> =
    LazyLock::new(|| std::array::from_fn(|byte| [e2m1(byte as u8), e2m1(byte as u8 >> 4)]));

/// Decodes the rows of one weight.
pub struct Decoder<'a> {
    pub(super) weight: Weight<'a>,
    /// Scales as f32, row-major; empty for plain values.
    scales: Vec<f32>,
    scale_columns: usize,
    pub(super) global: f32,
}

impl<'a> Decoder<'a> {
    /// Checks that the bytes are as many as the shapes say and decodes the scales.
    pub fn new(weight: Weight<'a>) -> Result<Self> {
        let (rows, cols) = (weight.rows, weight.cols);
        let (data_bytes, scale_shape) = match weight.encoding {
            Encoding::Plain => (rows * cols * width(&weight.data)?, None),
            Encoding::Fp8Block { block: [r, c] } => (rows * cols, Some((rows.div_ceil(r), cols.div_ceil(c)))),
            Encoding::Mxfp4 => (rows * cols.div_ceil(2), Some((rows, cols.div_ceil(32)))),
            Encoding::Nvfp4 => (rows * cols.div_ceil(2), Some((rows, cols.div_ceil(16)))),
        };
        if weight.data.bytes.len() != data_bytes {
            return Err(wrong(&weight.data, format!("{data_bytes} bytes for {rows} x {cols} values")));
        }
        let mut scales = Vec::new();
        if let Some((r, c)) = scale_shape {
            let Some(scale) = &weight.scale else {
                return Err(Error::input("a quantised weight without its scales").at(&weight.name));
            };
            scales = floats(scale)?;
            if scales.len() != r * c {
                return Err(wrong(scale, format!("{r} x {c} scales")));
            }
        }
        let global = match &weight.global_scale {
            Some(g) => *floats(g)?.first().ok_or_else(|| wrong(g, "one value".into()))?,
            None => 1.0,
        };
        let scale_columns = scale_shape.map_or(0, |s| s.1);
        Ok(Self { weight, scales, scale_columns, global })
    }

    /// Output features.
    pub fn rows(&self) -> usize {
        self.weight.rows
    }

    /// Input features.
    pub fn cols(&self) -> usize {
        self.weight.cols
    }

    /// Canonical name, for messages.
    pub fn name(&self) -> &str {
        &self.weight.name
    }

    /// Its bytes where they lie: codes or values, then scales.
    pub(crate) fn stored(&self) -> impl Iterator<Item = &'a [u8]> {
        [Some(self.weight.data.bytes), self.weight.scale.as_ref().map(|scale| scale.bytes)].into_iter().flatten()
    }

    /// Bytes of inputs `ks` of row `n`; in packed codes `ks` begins at an even input.
    pub(super) fn bytes(&self, n: usize, ks: &Range<usize>) -> &'a [u8] {
        let (stride, range) = match (self.weight.encoding, self.weight.data.dtype) {
            (Encoding::Plain, Dtype::Bf16) => (2 * self.weight.cols, 2 * ks.start..2 * ks.end),
            (Encoding::Plain, _) => (4 * self.weight.cols, 4 * ks.start..4 * ks.end),
            (Encoding::Fp8Block { .. }, _) => (self.weight.cols, ks.clone()),
            (Encoding::Mxfp4 | Encoding::Nvfp4, _) => (self.weight.cols.div_ceil(2), ks.start / 2..ks.end.div_ceil(2)),
        };
        &self.weight.data.bytes[n * stride..(n + 1) * stride][range]
    }

    /// Scales of row `n`; none for plain values.
    pub(super) fn scales_of(&self, n: usize) -> &[f32] {
        let rows = if let Encoding::Fp8Block { block: [r, _] } = self.weight.encoding { r } else { 1 };
        let at = n / rows * self.scale_columns;
        &self.scales[at..at + self.scale_columns]
    }

    /// The lowest of some rows with a value that is NaN or infinite.
    pub(crate) fn bad_row(&self, rows: Range<usize>) -> Option<usize> {
        let mut row = Vec::new();
        rows.filter(|&n| !self.is_surely_finite(n)).find(|&n| {
            row.resize(self.weight.cols, 0f32);
            self.row(n, &mut row);
            !row.iter().all(|v| v.is_finite())
        })
    }

    /// True only where no value of row `n` can be NaN or infinite: told by its codes and scales, without decoding it.
    fn is_surely_finite(&self, n: usize) -> bool {
        let codes = self.bytes(n, &(0..self.weight.cols));
        // Folds, not `all`: they become vector loops.
        let scaled = |most: f32| {
            let scales = self.scales_of(n).iter();
            scales.fold(true, |finite, scale| finite & (most * scale * self.global).is_finite())
        };
        match (self.weight.encoding, self.weight.data.dtype) {
            (Encoding::Plain, Dtype::Bf16) => codes
                .as_chunks::<2>()
                .0
                .iter()
                .fold(true, |finite, b| finite & (u16::from_le_bytes(*b) & 0x7F80 != 0x7F80)),
            (Encoding::Plain, _) => {
                codes.as_chunks::<4>().0.iter().fold(true, |finite, b| finite & f32::from_le_bytes(*b).is_finite())
            }
            (Encoding::Fp8Block { .. }, _) => codes.iter().map(|code| code & 0x7F).max() < Some(0x7F) && scaled(448.0),
            (Encoding::Mxfp4 | Encoding::Nvfp4, _) => scaled(6.0),
        }
    }

    /// Writes row `n` (`cols` values): f32 values, widened exactly where T is f64.
    pub fn row<T: Real>(&self, n: usize, out: &mut [T]) {
        let (bytes, scales) = (self.bytes(n, &(0..self.weight.cols)), self.scales_of(n));
        match self.weight.encoding {
            Encoding::Plain if self.weight.data.dtype == Dtype::Bf16 => {
                for (v, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *v = T::of_f32(bf16(u16::from_le_bytes(*b)));
                }
            }
            Encoding::Plain => {
                for (v, b) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *v = T::of_f32(f32::from_le_bytes(*b));
                }
            }
            Encoding::Fp8Block { block: [_, c] } => {
                let values = &*E4M3;
                for ((out, codes), scale) in out.chunks_mut(c).zip(bytes.chunks(c)).zip(scales) {
                    for (v, &code) in out.iter_mut().zip(codes) {
                        *v = T::of_f32(values[usize::from(code)] * scale);
                    }
                }
            }
            Encoding::Mxfp4 => fp4_row(bytes, out, scales, 32, |v| v),
            Encoding::Nvfp4 => fp4_row(bytes, out, scales, 16, |v| v * self.global),
        }
    }
}

fn fp4_row<T: Real>(bytes: &[u8], out: &mut [T], scales: &[f32], group: usize, of_all: impl Fn(f32) -> f32) {
    let values = &*E2M1;
    for ((out, bytes), scale) in out.chunks_mut(group).zip(bytes.chunks(group / 2)).zip(scales) {
        for (pair, &byte) in out.chunks_mut(2).zip(bytes) {
            let [even, odd] = values[usize::from(byte)];
            pair[0] = T::of_f32(of_all(even * scale));
            if let Some(slot) = pair.get_mut(1) {
                *slot = T::of_f32(of_all(odd * scale));
            }
        }
    }
}

fn width(raw: &RawTensor<'_>) -> Result<usize> {
    match raw.dtype {
        Dtype::Bf16 => Ok(2),
        Dtype::F32 => Ok(4),
        other => Err(wrong(raw, format!("BF16 or F32 values, not {other:?}"))),
    }
}

/// All values of a tensor of floats (F32, BF16) or scales (E8M0, E4M3).
fn floats(raw: &RawTensor<'_>) -> Result<Vec<f32>> {
    Ok(match raw.dtype {
        Dtype::F32 => raw.bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        Dtype::Bf16 => raw.bytes.as_chunks::<2>().0.iter().map(|b| bf16(u16::from_le_bytes(*b))).collect(),
        Dtype::F8E8M0 => raw.bytes.iter().map(|&b| e8m0(b)).collect(),
        Dtype::F8E4M3 => raw.bytes.iter().map(|&b| e4m3(b)).collect(),
        other => return Err(wrong(raw, format!("floating-point values, not {other:?}"))),
    })
}

/// A plain tensor of `count` F32 or BF16 values (norm weights, mHC parameters, sinks, biases, ape).
pub fn plain_f32(raw: &RawTensor<'_>, count: usize) -> Result<Vec<f32>> {
    width(raw)?;
    let values = floats(raw)?;
    if values.len() == count { Ok(values) } else { Err(wrong(raw, format!("{count} values"))) }
}

/// A plain tensor of `count` I64 or I32 indices, each below `limit` (the table of hash routing).
pub fn plain_index(raw: &RawTensor<'_>, count: usize, limit: usize) -> Result<Vec<u32>> {
    let values: Vec<i64> = match raw.dtype {
        Dtype::I64 => raw.bytes.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
        Dtype::I32 => raw.bytes.as_chunks::<4>().0.iter().map(|b| i64::from(i32::from_le_bytes(*b))).collect(),
        other => return Err(wrong(raw, format!("I64 or I32 values, not {other:?}"))),
    };
    if values.len() != count {
        return Err(wrong(raw, format!("{count} values")));
    }
    let index = |v: i64| u32::try_from(v).ok().filter(|&i| (i as usize) < limit);
    values.into_iter().map(|v| index(v).ok_or_else(|| wrong(raw, format!("indices below {limit}")).found(v))).collect()
}

fn wrong(raw: &RawTensor<'_>, expected: String) -> Error {
    let found = format!("{:?} {:?}, {} bytes", raw.dtype, raw.shape, raw.bytes.len());
    Error::input("a tensor does not have the form that the model needs").at(&raw.name).expected(expected).found(found)
}
