//! `fp4-indexer`: decode index scores from FP4 queries and keys.
//!
//! Contract: index queries and keys as E2M1 codes with a power-of-two scale for 32 dims, f32 products and sums, f32
//! logits (spec 2.8 D7). The official code has the same formats but scores in bf16.

use karat_seam::{Op, Phase};

use super::{BASE, Claim, Patch, PatchOption, Risk, power_of_two_head};
use crate::plan::{IndexFormat, IndexRule, IndexScore};

pub(super) static PATCH: Patch = Patch {
    name: "fp4-indexer",
    about: "decode index scores from FP4 queries and keys, f32 logits",
    phases: &[Phase::Decode],
    ops: &[Op::IndexPool, Op::IndexQuery, Op::IndexScore],
    risk: Risk::High,
    claims: &[Claim {
        error: 1.8e-1,
        metric: "rel rms of the scores",
        source: "spec 2.8, measured on random data",
        given: &[],
    }],
    env_aliases: &["--enable-deepseek-v4-fp4-indexer"],
    conflicts: &["fp8-indexer", "bf16-indexer"],
    options: &[PatchOption { name: "hadamard", values: "on, off", default: "on" }],
    apply: |options, rules| {
        let hadamard = options.word("hadamard", &[("on", true), ("off", false)])?;
        rules.index = IndexRule { hadamard, format: IndexFormat::Q4 { block: 32 }, score: IndexScore::F32 };
        Ok(())
    },
    check: power_of_two_head,
    ..BASE
};
