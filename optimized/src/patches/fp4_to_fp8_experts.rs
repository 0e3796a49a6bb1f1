//! `fp4-to-fp8-experts`: the routed experts' FP4 weights converted to FP8.
//!
//! Contract: dequantised weights as E4M3 codes with one power-of-two scale for each 128 x 128 block, then the official
//! FP8 product. E4M3 holds every E2M1 value times a power of two within 2^-6 to 2^8 of its scale, so the conversion loses
//! nothing unless the scales inside one block lie further apart; the sums run over 128 columns in place of 32.

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, Risk};
use crate::plan::{ActCodes, Coded, Product, WeightCodes};

pub(super) static PATCH: Patch = Patch {
    name: "fp4-to-fp8-experts",
    about: "routed experts converted from FP4 to FP8 with 128 x 128 scales",
    phases: BOTH,
    ops: &[Op::Experts],
    risk: Risk::Low,
    claims: &[Claim {
        error: 3.6e-2,
        metric: "rel-L2 of an expert's output",
        source: "two E4M3 roundings of the activations, as the official product",
        given: &[],
    }],
    env_aliases: &["SGLANG_DSV4_FP4_DEQUANT", "convert.py --expert-dtype fp8"],
    conflicts: &["nvfp4-moe", "mxfp4-moe"],
    apply: |_, rules| {
        rules.experts = Product::Coded(Coded { weight: WeightCodes::Fp8Blocks, act: ActCodes::Q8 });
        Ok(())
    },
    ..BASE
};
