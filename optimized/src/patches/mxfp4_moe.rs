//! `mxfp4-moe`: routed experts by an MXFP4 kernel.
//!
//! Contract: `act=bf16` (w4a16) multiplies the dequantised weight, exact in bf16, with activations rounded to bf16.
//! `act=mxfp8` (w4a8) quantises activations to E4M3 with a power-of-two scale for 32 channels, `act=fp8` for 128 channels
//! as the official code (spec 2.12, D12).

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, PatchOption, Risk};
use crate::plan::{ActCodes, Coded, Product, WeightCodes};

pub(super) static PATCH: Patch = Patch {
    name: "mxfp4-moe",
    about: "routed experts with MXFP4 weights and bf16 or FP8 activations",
    phases: BOTH,
    ops: &[Op::Experts],
    risk: Risk::Medium,
    claims: &[
        Claim {
            error: 2.4e-3,
            metric: "rel-L2 of an expert's output",
            source: "two bf16 roundings",
            given: &[("act", &["bf16"])],
        },
        Claim {
            error: 3.6e-2,
            metric: "rel-L2 of an expert's output",
            source: "two E4M3 roundings",
            given: &[("act", &["mxfp8", "fp8"])],
        },
    ],
    env_aliases: &["--moe-runner-backend triton, marlin", "SGLANG_DSV4_FP4_EXPERTS"],
    conflicts: &["nvfp4-moe", "fp4-to-fp8-experts"],
    options: &[PatchOption { name: "act", values: "bf16, mxfp8, fp8", default: "bf16" }],
    apply: |options, rules| {
        let coded = |act| Product::Coded(Coded { weight: WeightCodes::Stored, act });
        let words = [("bf16", Product::Bf16), ("mxfp8", coded(ActCodes::Mxfp8)), ("fp8", coded(ActCodes::Q8))];
        rules.experts = options.word("act", &words)?;
        Ok(())
    },
    ..BASE
};
