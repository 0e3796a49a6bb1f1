//! `swiglu-clamp`: where and on what the SwiGLU clamp works.
//!
//! Contract: `place=fused` clamps gate and up as f32 accumulators in the GEMM's epilogue, so that they are never rounded
//! to bf16; `place=after` clamps the stored values, as the official code. `shared=off` leaves the shared expert
//! unclamped, as older releases did (spec 2.11, D10).

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, PatchOption, Risk};
use crate::plan::Swiglu;

pub(super) static PATCH: Patch = Patch {
    name: "swiglu-clamp",
    about: "SwiGLU clamp fused into the GEMM's epilogue; shared expert clamped or not",
    phases: BOTH,
    ops: &[Op::Experts, Op::SharedExpert],
    risk: Risk::Medium,
    claims: &[Claim {
        error: 2.4e-3,
        metric: "rel-L2 of an expert's output",
        source: "two bf16 roundings less",
        given: &[("place", &["fused"])],
    }],
    env_aliases: &["SGLANG_OPT_SWIGLU_CLAMP_FUSION", "gemm1_clamp_limit"],
    conflicts: &[],
    options: &[
        PatchOption { name: "place", values: "fused, after", default: "fused" },
        PatchOption { name: "shared", values: "on, off", default: "on" },
    ],
    apply: |options, rules| {
        rules.swiglu = Swiglu {
            fused: options.word("place", &[("fused", true), ("after", false)])?,
            shared: options.word("shared", &[("on", true), ("off", false)])?,
        };
        Ok(())
    },
    ..BASE
};
