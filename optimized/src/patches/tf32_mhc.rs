//! `tf32-mhc`: the mHC mixing product on TF32 tensor cores.
//!
//! Contract: f and fn are rounded to TF32 (10 mantissa bits, ties away), accumulation and result are f32; f is stored in
//! bf16 anyway, so under a bf16 stock only fn loses bits (spec 2.3, section 6).

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, Risk};
use crate::plan::Product;

pub(super) static PATCH: Patch = Patch {
    name: "tf32-mhc",
    about: "mHC mixing GEMM with TF32 operands and f32 accumulation",
    phases: BOTH,
    ops: &[Op::HcAttnPre, Op::HcFfnPre],
    risk: Risk::Medium,
    claims: &[Claim {
        error: 2.3e-4,
        metric: "rel-L2 of the mixes",
        source: "spec section 6, measured on random data",
        given: &[],
    }],
    env_aliases: &["SGLANG_OPT_DEEPGEMM_HC_PRENORM (on by default)"],
    conflicts: &["bf16-mhc", "exact-split-mhc"],
    apply: |_, rules| {
        rules.hc = Product::Tf32;
        Ok(())
    },
    ..BASE
};
