//! `bf16-router`: the router as a bf16 GEMM.
//!
//! Contract: both operands rounded to bf16, f32 accumulation, and with `out=bf16` the logits rounded to bf16 (spec 2.11,
//! D11). Under a bf16 stock the operands are bf16 values already: with `out=f32` it is exact.

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, PatchOption, Risk};
use crate::plan::{Product, Store};

pub(super) static PATCH: Patch = Patch {
    name: "bf16-router",
    about: "router GEMM with bf16 operands and bf16 logits",
    phases: BOTH,
    ops: &[Op::Route],
    risk: Risk::High,
    claims: &[Claim {
        error: 1.7e-3,
        metric: "rel-L2 of the router logits",
        source: "one bf16 rounding (out=bf16)",
        given: &[],
    }],
    env_aliases: &["bf16 router GEMM of transformers and SGLang"],
    conflicts: &[],
    options: &[PatchOption { name: "out", values: "f32, bf16", default: "bf16" }],
    apply: |options, rules| {
        rules.router = Product::Bf16;
        rules.router_store = options.word("out", &[("f32", Store::F32), ("bf16", Store::Bf16)])?;
        Ok(())
    },
    ..BASE
};
