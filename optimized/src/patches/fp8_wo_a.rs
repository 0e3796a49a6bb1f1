//! `fp8-wo-a`: the first output projection as an FP8 GEMM.
//!
//! Contract: attention output as E4M3 codes with a power-of-two scale for 128 channels against wo_a's stored codes, sums
//! of a block in f32, scaled and added (spec 2.10, D9); a group narrower than whole blocks is padded with zeros. The
//! weight is stored in FP8, so only the activations lose bits.

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, Risk};
use crate::plan::Product;

pub(super) static PATCH: Patch = Patch {
    name: "fp8-wo-a",
    about: "wo_a as an FP8 GEMM: attention output quantised in blocks of 128",
    phases: BOTH,
    ops: &[Op::OutputDown],
    risk: Risk::Medium,
    claims: &[
        Claim {
            error: 2.5e-2,
            metric: "activation noise of an element",
            source: "spec section 6, estimated",
            given: &[],
        },
        Claim {
            error: 2.7e-2,
            metric: "rel-L2 of the group outputs",
            source: "one E4M3 rounding with power-of-two scales",
            given: &[],
        },
    ],
    env_aliases: &["SGLANG_OPT_FP8_WO_A_GEMM (1 by default)"],
    conflicts: &[],
    apply: |_, rules| {
        rules.wo_a = Product::FP8;
        Ok(())
    },
    ..BASE
};
