//! `bf16-indexer`: decode index scores from bf16 queries and keys.
//!
//! Contract: index queries and keys rounded to bf16, f32 products and sums (spec 2.8 D7). Smaller than FP8; the rotation
//! is kept or left out.

use karat_seam::{Op, Phase};

use super::{BASE, Claim, Patch, PatchOption, Risk, power_of_two_head};
use crate::plan::{IndexFormat, IndexRule, IndexScore};

pub(super) static PATCH: Patch = Patch {
    name: "bf16-indexer",
    about: "decode index scores from bf16 queries and keys, f32 logits",
    phases: &[Phase::Decode],
    ops: &[Op::IndexPool, Op::IndexQuery, Op::IndexScore],
    risk: Risk::Low,
    claims: &[Claim { error: 2.4e-3, metric: "rel rms of the scores", source: "two bf16 roundings", given: &[] }],
    env_aliases: &["bf16 indexer of the deployment notes"],
    conflicts: &["fp8-indexer", "fp4-indexer"],
    options: &[PatchOption { name: "hadamard", values: "on, off", default: "off" }],
    apply: |options, rules| {
        let hadamard = options.word("hadamard", &[("on", true), ("off", false)])?;
        rules.index = IndexRule { hadamard, format: IndexFormat::Bf16, score: IndexScore::F32 };
        Ok(())
    },
    check: power_of_two_head,
    ..BASE
};
