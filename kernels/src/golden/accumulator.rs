//! How a tensor core adds, as far as it is known of a chip, and what that bounds: the error of a product of the exact-split tier.

use serde::{Deserialize, Serialize};

use crate::mma::{Declared, Form};

/// What one step of a tensor core does with the products of bf16 values and an f32 sum: each product is exact; products and sum
/// lose what lies under the last bit that is kept; they are added; the result is an f32. All of it truncates toward zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Products that are added to the sum at once.
    pub products: u32,
    /// The last bit that is kept stands for 2^-kept, where the largest addend's first bit stands for 1.
    pub kept: u32,
}

/// What the bound follows from where nothing else is known.
pub const DECLARED: Model = Model { products: 16, kept: 25 };

/// Of K between two emptyings of the sum: `STEP` of `cuda/reference/golden_split.cu`.
pub(super) const STEP: usize = 64;

/// Longest K of the exact-split tier.
pub const LONGEST: usize = 1 << 16;

/// What was probed of a chip (`mma.toml`); `None`: the declared model stands for it, and whoever reports says so.
pub fn accumulator(arch: &str) -> Option<Model> {
    let found = Declared::of(arch).ok().filter(|it| it.probed)?;
    let model = found.model(Form::Bf16).filter(|model| !model.accumulator_last)?;
    Some(Model { products: model.products_a_step() as u32, kept: model.bits })
}

/// Most that a product over `k` is from exact, in parts of the sum over K of |x| |w|, beside [`least`].
///
/// With X that sum over 64 of K, the first term of x is at most (1 + 2^-8) |x|, the second 2^-8 |x|, the third 2^-17 |x|. A step
/// loses less than `products + 1` last bits and one of the f32, each in parts of at most the sum of everything added so far:
/// X 2^-17 in the steps of the third term, X (2^-8 + 2^-17) in those of the second, X (1 + 2^-7 + 2^-17) in those of the first.
/// What leaves a tensor core is added as a pair of f32, which loses at most 2^-48 for each pair of emptyings, and rounded once.
pub fn bound(model: Model, k: usize) -> f64 {
    let two = |e: i32| 2f64.powi(e);
    let steps = (STEP as f64 / f64::from(model.products)).ceil();
    let step = f64::from(model.products + 1) * two(-(model.kept as i32)) + two(-23);
    let third = two(-17);
    let second = two(-8) + third;
    let all = 1.0 + two(-7) + third;
    let emptied = k.div_ceil(STEP) as f64;
    steps * step * (third + second + all) + (emptied * emptied * two(-48) + two(-24)) * 1.01 * all
}

/// What may be lost under the least normal f32 besides: a tensor core may take subnormal products and sums for zero.
pub fn least(k: usize) -> f64 {
    4.0 * k as f64 * f64::from(f32::MIN_POSITIVE)
}

/// The stated bound of the tier on a chip: [`bound`] for every K that it takes.
pub fn stated(arch: &str) -> f64 {
    bound(accumulator(arch).unwrap_or(DECLARED), LONGEST)
}
