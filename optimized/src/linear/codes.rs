//! The codes and scales of a weight: as stored, or converted.

use std::borrow::Cow;

use karat_model::checkpoint::{Dtype, Encoding, Weight};
use karat_model::{Error, Result};
use rayon::prelude::*;

use super::decode::{TASK, packed, values};
use crate::arith::{Panels, Scaled, e4m3};
use crate::plan::ACT_BLOCK;
use crate::quant::{E4M3_MAX, largest, power_of_two_at_least};

/// Values with one scale for each block of a row; `block` 0: values without scales.
pub(super) struct Codes {
    values: Vec<f32>,
    /// `[rows, ceil(cols / block)]`.
    scales: Vec<f32>,
    block: usize,
    /// What all values are multiplied by on top: NVFP4's second scale, else 1.
    factor: f32,
}

/// A row with zeros up to `width`.
pub(super) fn pad(row: &[f32], width: usize) -> impl Iterator<Item = f32> {
    row.iter().copied().chain(std::iter::repeat_n(0.0, width - row.len()))
}

impl Codes {
    /// Values without scales.
    pub(super) fn plain(values: Vec<f32>) -> Self {
        Self { values, scales: Vec::new(), block: 0, factor: 1.0 }
    }

    /// True when the weight is stored as codes with scales.
    pub(super) fn scaled(&self) -> bool {
        self.block > 0
    }

    /// What a product's sums are multiplied by where it leaves this out of the weight.
    pub(super) fn factor(&self) -> f32 {
        self.factor
    }

    /// Codes and scales as stored.
    pub(super) fn decode(weight: &Weight<'_>) -> Result<Self> {
        let (rows, cols) = (weight.rows, weight.cols);
        let scale = || weight.scale.as_ref().ok_or_else(|| Error::input("weight has no scales").at(&weight.name));
        let codes = match weight.data.dtype {
            Dtype::Packed4 => packed(weight.data.bytes),
            _ => values(&weight.data)?,
        };
        let mut factor = 1.0;
        let (scales, block) = match weight.encoding {
            Encoding::Plain => (Vec::new(), 0),
            Encoding::Fp8Block { block: [block_rows, block_cols] } => {
                let (blocks, stored) = (cols.div_ceil(block_cols), values(scale()?)?);
                let spread = (0..rows).flat_map(|r| {
                    let at = r / block_rows * blocks;
                    stored[at..at + blocks].iter().copied()
                });
                (spread.collect(), block_cols)
            }
            Encoding::Mxfp4 => (values(scale()?)?, 32),
            Encoding::Nvfp4 => {
                if let Some(raw) = &weight.global_scale {
                    factor = values(raw)?[0];
                }
                (values(scale()?)?, 16)
            }
        };
        Ok(Self { values: codes, scales, block, factor })
    }

    /// The weight: code * scale, and the factor, which rounds once.
    pub(super) fn dense(&self, cols: usize) -> Cow<'_, [f32]> {
        let mut out = self.within(cols);
        if self.factor != 1.0 {
            out.to_mut().iter_mut().for_each(|v| *v *= self.factor);
        }
        out
    }

    /// code * scale without the factor. Exact for packed codes: E2M1 by E4M3 has at most 6 significant bits, which bf16 holds too.
    pub(super) fn within(&self, cols: usize) -> Cow<'_, [f32]> {
        if self.block == 0 {
            return Cow::Borrowed(&self.values);
        }
        let blocks = cols.div_ceil(self.block);
        let mut out = vec![0.0; self.values.len()];
        let codes = self.values.par_chunks_exact(cols).zip(self.scales.par_chunks_exact(blocks));
        out.par_chunks_exact_mut(cols).zip(codes).with_min_len((TASK / cols).max(1)).for_each(
            |(row, (codes, scales))| {
                for ((out, codes), s) in row.chunks_mut(self.block).zip(codes.chunks(self.block)).zip(scales) {
                    out.iter_mut().zip(codes).for_each(|(v, code)| *v = code * s);
                }
            },
        );
        Cow::Owned(out)
    }

    /// The stored codes as products read them.
    pub(super) fn stored(&self, cols: usize) -> Result<Panels> {
        let is_aligned =
            cols.is_multiple_of(ACT_BLOCK) && self.block <= ACT_BLOCK && ACT_BLOCK.is_multiple_of(self.block);
        Ok(if is_aligned { self.pack(cols) } else { self.aligned(cols)?.pack(cols) })
    }

    /// The same codes with a block that divides the activation block, rows padded to whole activation blocks.
    fn aligned(&self, cols: usize) -> Result<Self> {
        let width = cols.next_multiple_of(ACT_BLOCK);
        let values = self.values.chunks_exact(cols).flat_map(|row| pad(row, width)).collect();
        let (old, block) = (cols.div_ceil(self.block), self.block.min(ACT_BLOCK));
        if !ACT_BLOCK.is_multiple_of(block) || !self.block.is_multiple_of(block) {
            return Err(Error::usage("a product of codes needs weight blocks that line up with the activation block")
                .expected(format!("columns a weight block divides or is a multiple of {ACT_BLOCK}"))
                .found(self.block));
        }
        let per = self.block / block;
        let scales = self.scales.chunks_exact(old);
        let scales = scales.flat_map(|row| (0..width / block).map(move |b| row.get(b / per).copied().unwrap_or(0.0)));
        Ok(Self { values, scales: scales.collect(), block, factor: self.factor })
    }

    /// E4M3 codes with one power-of-two scale for each 128 x 128 block: what a converter to an FP8 checkpoint writes.
    pub(super) fn fp8_blocks(dense: &[f32], cols: usize) -> Self {
        let width = cols.next_multiple_of(ACT_BLOCK);
        let (rows, blocks) = (dense.len() / cols, width / ACT_BLOCK);
        let mut values: Vec<f32> = dense.chunks_exact(cols).flat_map(|row| pad(row, width)).collect();
        let mut scales = vec![0.0; rows * blocks];
        for (band, scales) in values.chunks_mut(ACT_BLOCK * width).zip(scales.chunks_mut(ACT_BLOCK * blocks)) {
            for b in 0..blocks {
                let columns = b * ACT_BLOCK..(b + 1) * ACT_BLOCK;
                let top = band.chunks_exact(width).fold(f32::MIN_POSITIVE, |a, row| largest(&row[columns.clone()], a));
                let scale = power_of_two_at_least(top * (1.0 / E4M3_MAX));
                for (row, scales) in band.chunks_exact_mut(width).zip(scales.chunks_exact_mut(blocks)) {
                    scales[b] = scale;
                    row[columns.clone()].iter_mut().for_each(|v| *v = e4m3((*v / scale).clamp(-E4M3_MAX, E4M3_MAX)));
                }
            }
        }
        Self { values, scales, block: ACT_BLOCK, factor: 1.0 }
    }

    /// E4M3 codes with one f32 scale a row: max / 448.
    pub(super) fn fp8_rows(dense: &[f32], cols: usize) -> Self {
        let mut values = dense.to_vec();
        let scales = values.chunks_exact_mut(cols).map(|row| {
            let scale = largest(row, f32::MIN_POSITIVE) / E4M3_MAX;
            row.iter_mut().for_each(|v| *v = e4m3((*v / scale).clamp(-E4M3_MAX, E4M3_MAX)));
            scale
        });
        let scales = scales.collect();
        Self { values, scales, block: cols, factor: 1.0 }
    }

    /// Packed for products; the rows of `self` may be wider than `cols`.
    pub(super) fn pack(&self, cols: usize) -> Panels {
        let width = if self.block >= cols { cols.max(self.block) } else { cols.next_multiple_of(ACT_BLOCK) };
        Panels::pack_scaled(Scaled { codes: &self.values, scales: &self.scales, block: self.block }, width)
    }
}
