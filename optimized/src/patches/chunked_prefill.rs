//! `chunked-prefill`: prompts in pieces.
//!
//! Contract: a prefill step holds at most `size` tokens; every piece reads the state that the one before it left. It
//! rounds nothing by itself: with exact state no bit changes, whatever changes is the state's doing.

use karat_seam::{Op, Phase};

use super::{BASE, Claim, Patch, PatchOption, Risk};

pub(super) static PATCH: Patch = Patch {
    name: "chunked-prefill",
    about: "prefill cut into steps of at most `size` tokens",
    phases: &[Phase::Prefill],
    ops: &[Op::CompressPool, Op::IndexPool, Op::Attend],
    risk: Risk::Low,
    claims: &[Claim { error: 1e-6, metric: "rel-L2 of every tap", source: "it rounds nothing", given: &[] }],
    env_aliases: &["--chunked-prefill-size"],
    conflicts: &[],
    options: &[PatchOption { name: "size", values: "1 to 1048576 tokens", default: "8192" }],
    apply: |_, _| Ok(()),
    exact: true,
    chunk: Some(|options| options.number("size", 1..=1 << 20)),
    ..BASE
};
