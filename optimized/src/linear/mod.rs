//! A linear's weight in the forms that a plan's products need, and the product itself (spec 2.12).

mod decode;

use std::borrow::Cow;

use karat_model::checkpoint::{Dtype, Encoding, Weight};
use karat_model::{Checkpoint, Error, Result};

pub(crate) use decode::{indices, values};

use crate::arith::{self, Panels, Scaled, product_scaled, round_rows};
use crate::plan::{ACT_BLOCK, Numerics, Product};
use crate::quant::q8_rows;

/// A resident weight `[rows, cols]`.
pub(crate) struct Linear {
    /// Output features.
    pub rows: usize,
    /// Input features.
    pub cols: usize,
    f32: Option<Panels>,
    bf16: Option<Panels>,
    codes: Option<Panels>,
}

struct Codes {
    values: Vec<f32>,
    /// `[rows, cols / block]`.
    scales: Vec<f32>,
    block: usize,
}

impl Linear {
    /// Decodes the linear with this canonical name into the forms for `products`.
    pub(crate) fn load(checkpoint: &Checkpoint, name: &str, products: &[Product]) -> Result<Self> {
        let weight = checkpoint.linear(name)?;
        let codes = Codes::decode(&weight)?;
        let mut out = Self { rows: weight.rows, cols: weight.cols, f32: None, bf16: None, codes: None };
        let dense = codes.dense(weight.cols);
        for product in products {
            match product {
                Product::F32 => out.f32 = Some(Panels::pack(&dense, weight.cols)),
                // A weight without codes has no FP8 form: it is multiplied as bf16.
                Product::Fp8 if codes.block > 0 => {}
                Product::Bf16 | Product::Fp8 => {
                    let mut rounded = dense.to_vec();
                    round_rows(true, &mut rounded);
                    out.bf16 = Some(Panels::pack(&rounded, weight.cols));
                }
            }
        }
        if products.contains(&Product::Fp8) && codes.block > 0 {
            let codes = codes.with_block_of(weight.cols).map_err(|e| e.at(name))?;
            let scaled = Scaled { codes: &codes.values, scales: &codes.scales, block: codes.block };
            out.codes = Some(Panels::pack_scaled(scaled, weight.cols));
        }
        Ok(out)
    }

    /// A weight that is already in f32 (mHC's fn), in the forms for `products`.
    pub(crate) fn dense(values: &[f32], cols: usize, products: &[Product]) -> Self {
        let mut out = Self { rows: values.len() / cols, cols, f32: None, bf16: None, codes: None };
        if products.iter().any(|p| *p != Product::F32) {
            let mut rounded = values.to_vec();
            round_rows(true, &mut rounded);
            out.bf16 = Some(Panels::pack(&rounded, cols));
        }
        out.f32 = Some(Panels::pack(values, cols));
        out
    }

    /// `x [m, cols]` times the weight: `[m, rows]`, f32, not rounded. `product` must be one that `load` was given.
    pub(crate) fn apply(&self, product: Product, rules: &Numerics, x: &[f32]) -> Vec<f32> {
        self.apply_rows(product, rules, x, 0..self.rows)
    }

    /// As [`Linear::apply`], with some of the weight's rows only.
    pub(crate) fn apply_rows(
        &self,
        product: Product,
        rules: &Numerics,
        x: &[f32],
        rows: std::ops::Range<usize>,
    ) -> Vec<f32> {
        let mut out = vec![0.0; x.len() / self.cols * rows.len()];
        let held = "a linear is loaded in every form that its plan's rules name";
        match (product, &self.codes) {
            (Product::Fp8, Some(codes)) => {
                let (x_codes, x_scales) = q8_rows(x, ACT_BLOCK, rules.act_floor);
                let x = Scaled { codes: &x_codes, scales: &x_scales, block: ACT_BLOCK };
                product_scaled(x, codes, rows, &mut out);
            }
            (Product::F32, _) => arith::product(x, self.f32.as_ref().expect(held), rows, &mut out),
            (Product::Bf16 | Product::Fp8, _) => {
                let mut rounded = x.to_vec();
                round_rows(true, &mut rounded);
                arith::product(&rounded, self.bf16.as_ref().expect(held), rows, &mut out);
            }
        }
        out
    }
}

impl Codes {
    /// Codes and scales as stored; `block` 0 means: values without scales.
    fn decode(weight: &Weight<'_>) -> Result<Self> {
        let (rows, cols) = (weight.rows, weight.cols);
        let scale = || weight.scale.as_ref().ok_or_else(|| Error::input("weight has no scales").at(&weight.name));
        let codes = match weight.data.dtype {
            Dtype::Packed4 => decode::packed(weight.data.bytes),
            _ => values(&weight.data)?,
        };
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
                let global = match &weight.global_scale {
                    Some(raw) => values(raw)?[0],
                    None => 1.0,
                };
                (values(scale()?)?.into_iter().map(|s| s * global).collect(), 16)
            }
        };
        Ok(Self { values: codes, scales, block })
    }

    /// code * scale, exactly where the scale is a power of two.
    fn dense(&self, cols: usize) -> Cow<'_, [f32]> {
        if self.block == 0 {
            return Cow::Borrowed(&self.values);
        }
        let blocks = cols.div_ceil(self.block);
        let mut out = self.values.clone();
        for (row, scales) in out.chunks_exact_mut(cols).zip(self.scales.chunks_exact(blocks)) {
            for (part, s) in row.chunks_mut(self.block).zip(scales) {
                for v in part.iter_mut() {
                    *v *= s;
                }
            }
        }
        Cow::Owned(out)
    }

    /// The same codes with a block that divides the activation block.
    fn with_block_of(self, cols: usize) -> Result<Self> {
        if self.block > 0 && ACT_BLOCK.is_multiple_of(self.block) && self.block.is_multiple_of(8) {
            return Ok(self);
        }
        if !self.block.is_multiple_of(ACT_BLOCK) {
            return Err(Error::usage("an FP8 product needs weight blocks that line up with the activation block")
                .expected(format!("columns a weight block divides or is a multiple of {ACT_BLOCK}"))
                .found(self.block));
        }
        let (old, blocks) = (cols.div_ceil(self.block), cols / ACT_BLOCK);
        let rows = self.values.len() / cols;
        let per = self.block / ACT_BLOCK;
        let scales =
            (0..rows).flat_map(|r| (0..blocks).map(move |b| (r, b))).map(|(r, b)| self.scales[r * old + b / per]);
        let scales = scales.collect();
        Ok(Self { scales, block: ACT_BLOCK, ..self })
    }
}

#[cfg(test)]
mod tests;
