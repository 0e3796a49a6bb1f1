//! `bf16-gemm`: the compressor's f32 linears as bf16 GEMMs.
//!
//! Contract: both operands rounded to bf16, f32 accumulation, and with `out=bf16` (what a bf16 linear returns) the rows
//! and gate scores rounded to bf16 before pooling (spec 2.7, D6). The released weights are bf16 values and the input is
//! stored in bf16, so the operands lose nothing: that is the claim "lossless", and with `out=f32` it holds. The rounded
//! output is what it leaves out.

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, PatchOption, Risk};
use crate::plan::{Product, Store};

pub(super) static PATCH: Patch = Patch {
    name: "bf16-gemm",
    about: "compressor GEMMs with bf16 operands, f32 accumulation and bf16 output",
    phases: BOTH,
    ops: &[Op::CompressProject, Op::IndexProject],
    risk: Risk::Medium,
    claims: &[
        Claim { error: 0.0, metric: "\"lossless\"", source: "deployment notes", given: &[] },
        Claim {
            error: 1.7e-3,
            metric: "rel-L2 of rows and gate scores",
            source: "one bf16 rounding",
            given: &[("out", &["bf16"])],
        },
    ],
    env_aliases: &["bf16 F.linear in place of fp32 F.linear (claimed to be lossless)"],
    conflicts: &[],
    options: &[PatchOption { name: "out", values: "f32, bf16", default: "bf16" }],
    apply: |options, rules| {
        rules.compress = Product::Bf16;
        rules.compress_store = options.word("out", &[("f32", Store::F32), ("bf16", Store::Bf16)])?;
        Ok(())
    },
    ..BASE
};
