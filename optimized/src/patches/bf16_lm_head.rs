//! `bf16-lm-head`: the final GEMM in bf16.
//!
//! Contract: both operands rounded to bf16, f32 accumulation, logits rounded to bf16 unless `out=f32` (spec 2.13, D13).

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, PatchOption, Risk};
use crate::plan::{Product, Store};

pub(super) static PATCH: Patch = Patch {
    name: "bf16-lm-head",
    about: "lm head with bf16 operands and bf16 logits",
    phases: BOTH,
    ops: &[Op::HeadLogits],
    risk: Risk::Low,
    claims: &[Claim {
        error: 2.4e-3,
        metric: "rel-L2 of the logits",
        source: "a bf16 GEMM and one rounding",
        given: &[],
    }],
    env_aliases: &["(default without --enable-fp32-lm-head)"],
    conflicts: &["fp8-lm-head"],
    options: &[PatchOption { name: "out", values: "f32, bf16", default: "bf16" }],
    apply: |options, rules| {
        rules.lm_head = Product::Bf16;
        rules.logits_store = options.word("out", &[("f32", Store::F32), ("bf16", Store::Bf16)])?;
        Ok(())
    },
    ..BASE
};
