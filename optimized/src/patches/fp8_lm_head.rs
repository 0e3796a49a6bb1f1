//! `fp8-lm-head`: the final GEMM in FP8.
//!
//! Contract: the head as E4M3 codes with one f32 scale for each token of the vocabulary, the activations with one f32
//! scale a row; f32 logits (spec section 6).

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, Risk};
use crate::plan::{ActCodes, Coded, Product, WeightCodes};

pub(super) static PATCH: Patch = Patch {
    name: "fp8-lm-head",
    about: "lm head in FP8 with one scale a row on both sides",
    phases: BOTH,
    ops: &[Op::HeadLogits],
    risk: Risk::High,
    claims: &[
        Claim { error: 3.7e-2, metric: "rel-L2 of the logits", source: "two E4M3 roundings", given: &[] },
        Claim { error: 1e-2, metric: "logits", source: "spec section 6, estimated", given: &[] },
    ],
    env_aliases: &["SGLANG_LM_HEAD_FP8"],
    conflicts: &["bf16-lm-head"],
    apply: |_, rules| {
        rules.lm_head = Product::Coded(Coded { weight: WeightCodes::Fp8Rows, act: ActCodes::Fp8Rows });
        Ok(())
    },
    ..BASE
};
