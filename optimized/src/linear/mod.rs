//! A linear's weight in the forms that a plan's products need, and the product itself (spec 2.12).

mod bands;
mod codes;
mod decode;
mod reduce;

use std::cell::OnceCell;
use std::ops::Range;

use karat_model::{Checkpoint, Result};
use karat_seam::copied;

pub(crate) use bands::Bands;
pub(crate) use decode::{indices, values};
pub(crate) use reduce::{Adder, add_parts};

use crate::arith::{Panels, Scaled, bf16, product, product_scaled, round_rows, tf32};
use crate::plan::{ActCodes, Numerics, Parts, Product, WeightCodes};
use crate::quant::{fp8_rows, nvfp4_rows, q8_rows};

use codes::Codes;
use decode::each;

/// A resident weight `[rows, cols]`.
pub(crate) struct Linear {
    /// Output features.
    pub rows: usize,
    /// Input features.
    pub cols: usize,
    forms: Vec<(Form, Panels)>,
    /// NVFP4's second scale, which products of stored codes and of bf16 multiply their sums by, as kernels do; else 1.
    factor: f32,
}

/// A form in which a weight is resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    F32,
    Tf32,
    Bf16,
    /// The n-th bf16 term.
    Term(u8),
    Codes(WeightCodes),
}

impl Product {
    /// The forms that a product reads; `coded` says that the weight is stored with scales.
    fn forms(self, coded: bool) -> Vec<Form> {
        match self {
            Self::F32 => vec![Form::F32],
            Self::Tf32 => vec![Form::Tf32],
            Self::Bf16 => vec![Form::Bf16],
            Self::Terms(n) => (0..n).map(Form::Term).collect(),
            Self::Coded(c) if c.weight == WeightCodes::Stored && !coded => vec![Form::Bf16],
            Self::Coded(c) => vec![Form::Codes(c.weight)],
        }
    }

    /// True where the weight's form lacks the factor that all its codes share: it is multiplied in behind the sum.
    fn leaves_factor(self) -> bool {
        match self {
            Self::Bf16 => true,
            Self::Coded(c) => c.weight == WeightCodes::Stored,
            Self::F32 | Self::Tf32 | Self::Terms(_) => false,
        }
    }
}

impl Linear {
    /// Decodes the linear with this canonical name into the forms for `products`.
    pub(crate) fn load(checkpoint: &Checkpoint, name: &str, products: &[Product]) -> Result<Self> {
        let weight = checkpoint.linear(name)?;
        let codes = Codes::decode(&weight)?;
        Self::make(&codes, weight.rows, weight.cols, products).map_err(|e| e.at(name))
    }

    /// A weight that is already in f32 (mHC's fn), in the forms for `products`.
    pub(crate) fn dense(values: Vec<f32>, cols: usize, products: &[Product]) -> Result<Self> {
        let rows = values.len() / cols;
        Self::make(&Codes::plain(values), rows, cols, products)
    }

    fn make(codes: &Codes, rows: usize, cols: usize, products: &[Product]) -> Result<Self> {
        let mut out = Self { rows, cols, forms: Vec::new(), factor: codes.factor() };
        let whole = OnceCell::new();
        let dense = || whole.get_or_init(|| codes.dense(cols));
        for product in products {
            for form in product.forms(codes.scaled()) {
                if out.forms.iter().all(|(f, _)| *f != form) {
                    let panels = match form {
                        Form::F32 => Panels::pack(dense(), cols),
                        Form::Tf32 => Panels::pack(&each(dense(), tf32), cols),
                        Form::Bf16 => {
                            let within = codes.within(cols);
                            Panels::pack(&each(&within, bf16), cols)
                        }
                        Form::Term(n) => Panels::pack(&term(dense(), n), cols),
                        Form::Codes(WeightCodes::Stored) => codes.stored(cols)?,
                        Form::Codes(WeightCodes::Fp8Blocks) => Codes::fp8_blocks(dense(), cols).pack(cols),
                        Form::Codes(WeightCodes::Fp8Rows) => Codes::fp8_rows(dense(), cols).pack(cols),
                    };
                    out.forms.push((form, panels));
                }
            }
        }
        Ok(out)
    }

    fn form(&self, form: Form) -> Option<&Panels> {
        self.forms.iter().find(|(f, _)| *f == form).map(|(_, p)| p)
    }

    fn held(&self, form: Form) -> &Panels {
        self.form(form).expect("a linear is loaded in every form that its plan's rules name")
    }

    /// `x [m, cols]` times the weight: `[m, rows]`, f32, not rounded. `product` must be one that `load` was given.
    pub(crate) fn apply(&self, product: Product, rules: &Numerics, x: &[f32]) -> Vec<f32> {
        self.apply_rows(product, rules, x, 0..self.rows)
    }

    /// As [`Linear::apply`], with some of the weight's rows only.
    pub(crate) fn apply_rows(&self, product: Product, rules: &Numerics, x: &[f32], rows: Range<usize>) -> Vec<f32> {
        let mut sums = self.partial_sums(product, rules, x, rows, 1);
        sums.remove(0)
    }

    /// As [`Linear::apply`], in parts along the columns: each part's sum is stored, and they are added one by one.
    pub(crate) fn apply_parts(&self, product: Product, rules: &Numerics, parts: Parts, x: &[f32]) -> Vec<f32> {
        add_parts(parts, self.partial_sums(product, rules, x, 0..self.rows, parts.count))
    }

    /// The same where the parts are those of ranks.
    pub(crate) fn apply_ranks(&self, product: Product, rules: &Numerics, adder: &Adder, x: &[f32]) -> Vec<f32> {
        adder.add(rules.reduce, self.partial_sums(product, rules, x, 0..self.rows, rules.reduce.count))
    }

    /// One sum for each of `count` equal ranges of columns, unrounded. Activations are quantised before they are cut.
    pub(crate) fn partial_sums(
        &self,
        product: Product,
        rules: &Numerics,
        x: &[f32],
        rows: Range<usize>,
        count: usize,
    ) -> Vec<Vec<f32>> {
        let parts = self.operand(product, rules, x).parts(self.cols, count);
        parts.iter().map(|operand| self.product(product, operand, rows.clone())).collect()
    }

    /// The product with an operand that [`Linear::operand`] made: `[m, rows]`, not rounded.
    pub(crate) fn product(&self, product: Product, operand: &Operand, rows: Range<usize>) -> Vec<f32> {
        let mut out = vec![0.0; operand.values.len() / operand.width * rows.len()];
        self.multiply(product, operand, rows, &mut out);
        out
    }

    /// Activations `x [m, cols]` as a product reads them: the same for all rows of a weight.
    pub(crate) fn operand(&self, product: Product, rules: &Numerics, x: &[f32]) -> Operand {
        let plain = |values| Operand { values, scales: Vec::new(), block: 0, width: self.cols };
        let rounded = || {
            let mut x = copied(x);
            round_rows(true, &mut x);
            plain(x)
        };
        let c = match product {
            Product::F32 => return plain(copied(x)),
            Product::Tf32 => return plain(each(x, tf32)),
            Product::Bf16 | Product::Terms(_) => return rounded(),
            Product::Coded(c) => c,
        };
        let Some(panels) = self.form(Form::Codes(c.weight)) else { return rounded() };
        // A row is padded with zeros to whole blocks, as the kernel pads it.
        let (width, block) = (panels.columns(), c.act.block(panels.columns()));
        let padded: Vec<f32>;
        let x = if width == self.cols {
            x
        } else {
            padded = x.chunks_exact(self.cols).flat_map(|row| codes::pad(row, width)).collect();
            &padded
        };
        let (values, scales) = match c.act {
            ActCodes::Q8 | ActCodes::Mxfp8 => q8_rows(x, block, rules.act_floor),
            ActCodes::Fp8Rows => fp8_rows(x, block, rules.act_floor),
            ActCodes::Nvfp4 => nvfp4_rows(x, width),
        };
        Operand { values, scales, block, width }
    }

    fn multiply(&self, how: Product, x: &Operand, rows: Range<usize>, out: &mut [f32]) {
        match how {
            Product::F32 => product(&x.values, self.held(Form::F32), rows, out),
            Product::Tf32 => product(&x.values, self.held(Form::Tf32), rows, out),
            Product::Coded(c) if x.block > 0 => {
                let a = Scaled { codes: &x.values, scales: &x.scales, block: x.block };
                product_scaled(a, self.held(Form::Codes(c.weight)), rows, out);
            }
            Product::Bf16 | Product::Coded(_) => product(&x.values, self.held(Form::Bf16), rows, out),
            Product::Terms(n) => {
                // The smallest term first.
                let mut part = vec![0.0; out.len()];
                for term in (0..n).rev() {
                    product(&x.values, self.held(Form::Term(term)), rows.clone(), &mut part);
                    out.iter_mut().zip(&part).for_each(|(o, p)| *o += p);
                }
            }
        }
        if self.factor != 1.0 && how.leaves_factor() {
            out.iter_mut().for_each(|o| *o *= self.factor);
        }
    }
}

/// The n-th bf16 term: what the terms before it leave, rounded to bf16. The differences are exact in f32.
fn term(values: &[f32], n: u8) -> Vec<f32> {
    let rest = |v: f32| (0..n).fold(v, |rest, _| rest - bf16(rest));
    each(values, |v| bf16(rest(v)))
}

/// Activations as a product reads them.
pub(crate) struct Operand {
    /// `[m, width]` values, or codes where there are scales.
    values: Vec<f32>,
    /// `[m, width / block]`.
    scales: Vec<f32>,
    /// 0: values.
    block: usize,
    width: usize,
}

impl Operand {
    /// One operand for each of `count` equal ranges of `cols` columns.
    pub(crate) fn parts(self, cols: usize, count: usize) -> Vec<Self> {
        if count == 1 {
            return vec![self];
        }
        (0..count).map(|i| self.only(i * cols / count..(i + 1) * cols / count)).collect()
    }

    /// The same with zeros in all other columns.
    fn only(&self, columns: Range<usize>) -> Self {
        let mut values = vec![0.0; self.values.len()];
        for (to, from) in values.chunks_exact_mut(self.width).zip(self.values.chunks_exact(self.width)) {
            to[columns.clone()].copy_from_slice(&from[columns.clone()]);
        }
        Self { values, scales: self.scales.clone(), ..*self }
    }
}

#[cfg(test)]
mod tests;
