//! A linear's weight that is decoded a band of rows at a time, while it is multiplied: the whole of it would leave every cache.

use karat_model::checkpoint::{Encoding, RawTensor, Weight};
use karat_model::{Checkpoint, Result};

use super::Linear;
use super::codes::Codes;
use crate::plan::{ACT_BLOCK, Product};

/// A weight, not yet decoded.
pub(crate) struct Bands<'a> {
    weight: Weight<'a>,
    /// Rows of a band: whole blocks of the weight's own scales, and of those of a conversion.
    rows: usize,
}

impl<'a> Bands<'a> {
    /// The linear with this canonical name.
    pub(crate) fn open(checkpoint: &'a Checkpoint, name: &str) -> Result<Self> {
        let weight = checkpoint.linear(name)?;
        let rows = match weight.encoding {
            Encoding::Fp8Block { block: [rows, _] } if !ACT_BLOCK.is_multiple_of(rows) => rows * ACT_BLOCK,
            _ => ACT_BLOCK,
        };
        Ok(Self { weight, rows })
    }

    /// Input features.
    pub(crate) fn cols(&self) -> usize {
        self.weight.cols
    }

    /// How many bands there are; at least one.
    pub(crate) fn count(&self) -> usize {
        self.weight.rows.div_ceil(self.rows).max(1)
    }

    /// First row of a band.
    pub(crate) fn first(&self, band: usize) -> usize {
        band * self.rows
    }

    /// Decodes a band into the forms for `products`: the rows of the whole weight in these forms, bit for bit.
    pub(crate) fn load(&self, band: usize, products: &[Product]) -> Result<Linear> {
        let of = &self.weight;
        let (first, last) = (band * self.rows, ((band + 1) * self.rows).min(of.rows));
        let scale_rows = match of.encoding {
            Encoding::Fp8Block { block: [rows, _] } => rows,
            _ => 1,
        };
        let weight = Weight {
            name: of.name.clone(),
            rows: last - first,
            data: cut(&of.data, of.rows, first, last),
            scale: of
                .scale
                .as_ref()
                .map(|scale| cut(scale, of.rows.div_ceil(scale_rows), first / scale_rows, last.div_ceil(scale_rows))),
            global_scale: of.global_scale.clone(),
            input_scale: of.input_scale.clone(),
            ..*of
        };
        let codes = Codes::decode(&weight)?;
        Linear::make(&codes, weight.rows, weight.cols, products).map_err(|e| e.at(&of.name))
    }
}

/// Rows `first..last` of a tensor of `rows` rows.
fn cut<'a>(tensor: &RawTensor<'a>, rows: usize, first: usize, last: usize) -> RawTensor<'a> {
    let width = tensor.bytes.len() / rows.max(1);
    let shape = std::iter::once(last - first).chain(tensor.shape.iter().skip(1).copied()).collect();
    RawTensor { name: tensor.name.clone(), shape, bytes: &tensor.bytes[first * width..last * width], ..*tensor }
}

#[cfg(test)]
mod tests {
    use karat_model::new::{Experts, Geometry, new_model_with};

    use super::*;
    use crate::plan::{ActCodes, Coded, Stock, WeightCodes};

    /// Bands beside the whole weight, in every form, of stored FP4, NVFP4 and FP8 codes and of plain values; the vocabulary of the
    /// table and the rows of the gate are no whole bands.
    #[test]
    fn bands_are_the_rows_of_the_whole_weight() {
        let coded = |weight, act| Product::Coded(Coded { weight, act });
        let products = [
            Product::F32,
            Product::Tf32,
            Product::Bf16,
            Product::Terms(2),
            coded(WeightCodes::Stored, ActCodes::Q8),
            coded(WeightCodes::Fp8Blocks, ActCodes::Q8),
            coded(WeightCodes::Fp8Rows, ActCodes::Fp8Rows),
        ];
        let rules = Stock::Official.profile().numerics;
        for experts in [Experts::Mxfp4, Experts::Nvfp4] {
            let made = new_model_with(Geometry::Default, 5, experts);
            let checkpoint = Checkpoint::from_memory("made", made).unwrap();
            let names = [
                "layers.1.ffn.experts.2.w1",
                "layers.1.ffn.experts.2.w2",
                "layers.1.attn.wq_b",
                "layers.1.ffn.gate",
                "head",
            ];
            let mut counts = Vec::new();
            for name in names {
                let whole = Linear::load(&checkpoint, name, &products).unwrap();
                let bands = Bands::open(&checkpoint, name).unwrap();
                assert_eq!(bands.cols(), whole.cols);
                counts.push(bands.count());
                let x: Vec<f32> = (0..3 * whole.cols).map(|i| ((i * 7919 % 1013) as f32 - 506.0) / 377.0).collect();
                for product in products {
                    let right = whole.apply(product, &rules, &x);
                    for band in 0..bands.count() {
                        let part = bands.load(band, &[product]).unwrap();
                        let (first, n) = (bands.first(band), part.rows);
                        let operand = part.operand(product, &rules, &x);
                        let found = part.product(product, &operand, 0..n);
                        for (found, right) in found.chunks_exact(n).zip(right.chunks_exact(whole.rows)) {
                            assert_eq!(found, &right[first..first + n], "{name}, band {band}, {product:?}");
                        }
                    }
                }
            }
            assert!(counts.iter().any(|n| *n > 2), "{counts:?}");
        }
    }
}
