//! `nvfp4-moe`: routed experts by an NVFP4 kernel.
//!
//! Contract: `act=bf16` (w4a16) multiplies E2M1 codes by their E4M3 scales, exact in bf16 (6 significant bits), with activations
//! rounded to bf16, and the f32 sum by the matrix's second scale, as kernels do (`kernels/cuda/optimized/grouped_fp4.cu`).
//! `act=fp4` (w4a4) quantises the activations to E2M1 with an E4M3 scale for 16 channels and one f32 scale a row, and
//! sums blocks of 16 in f32; the weight's second scale is behind that sum too. The weight keeps its stored codes: golden of an
//! NVFP4 checkpoint is its dequantised bytes (spec 2.12, D12).

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, PatchOption, Risk};
use crate::plan::{ActCodes, Coded, Product, WeightCodes};

pub(super) static PATCH: Patch = Patch {
    name: "nvfp4-moe",
    about: "routed experts with FP4 weights and bf16 or NVFP4 activations",
    phases: BOTH,
    ops: &[Op::Experts],
    risk: Risk::High,
    claims: &[
        Claim {
            error: 2.4e-3,
            metric: "rel-L2 of an expert's output",
            source: "two bf16 roundings",
            given: &[("act", &["bf16"])],
        },
        Claim {
            error: 1.3e-1,
            metric: "rel-L2 of an expert's output",
            source: "two NVFP4 roundings of 9.5e-2",
            given: &[("act", &["fp4"])],
        },
    ],
    env_aliases: &["--moe-runner-backend flashinfer_trtllm, flashinfer_cutlass, cutedsl"],
    conflicts: &["mxfp4-moe", "fp4-to-fp8-experts"],
    options: &[PatchOption { name: "act", values: "bf16, fp4", default: "bf16" }],
    apply: |options, rules| {
        let fp4 = Product::Coded(Coded { weight: WeightCodes::Stored, act: ActCodes::Nvfp4 });
        rules.experts = options.word("act", &[("bf16", Product::Bf16), ("fp4", fp4)])?;
        Ok(())
    },
    ..BASE
};
