//! `indexer-hadamard`: the rotation of index queries and keys, on or off.
//!
//! Contract: with `rotate=off` queries and keys are quantised as they come out of rope; with `rotate=on` they are rotated
//! first. The rotation is orthogonal: it changes no score by itself, only what the quantiser sees (spec 2.8 D7).

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, PatchOption, Risk, power_of_two_head};

pub(super) static PATCH: Patch = Patch {
    name: "indexer-hadamard",
    about: "index queries and keys with or without the Hadamard rotation",
    phases: BOTH,
    ops: &[Op::IndexPool, Op::IndexQuery],
    risk: Risk::Medium,
    claims: &[Claim {
        error: 2.5e-1,
        metric: "rel rms of FP4 scores against those of the other rotation",
        source: "two independent FP4 quantisations of both operands",
        given: &[],
    }],
    env_aliases: &["vLLM's indexer has no rotation; SGLang's has one"],
    conflicts: &[],
    options: &[PatchOption { name: "rotate", values: "on, off", default: "off" }],
    apply: |options, rules| {
        rules.index.hadamard = options.word("rotate", &[("on", true), ("off", false)])?;
        Ok(())
    },
    check: power_of_two_head,
    ..BASE
};
