//! `routed-scaling-in-topk`: who multiplies the routed scaling factor in.
//!
//! Contract: the factor must reach the routed sum exactly once. The `triton` backend multiplies in its combine and leaves
//! the top-k alone, whatever `hash` says; the other backends fold it into the top-k and make the combine a no-op, and
//! there `hash=off` (HashTopK without apply_routed_scaling_factor_on_output) loses it in the layers that route by token
//! id (spec section 6). Folding changes the size of the value that is rounded, not the result.

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, PatchOption, Risk};
use crate::plan::Scaling;

pub(super) static PATCH: Patch = Patch {
    name: "routed-scaling-in-topk",
    about: "routed scaling factor folded into the top-k weights, as the backend expects",
    phases: BOTH,
    ops: &[Op::Experts],
    risk: Risk::High,
    claims: &[Claim {
        error: 2.4e-3,
        metric: "rel-L2 of the routed sum, applied once",
        source: "two bf16 roundings of scaled values",
        given: &[],
    }],
    env_aliases: &["apply_routed_scaling_factor_on_output", "should_fuse_routed_scaling_factor_in_topk"],
    conflicts: &[],
    options: &[
        PatchOption { name: "backend", values: "triton, trtllm, cutlass, marlin, cutedsl", default: "trtllm" },
        PatchOption { name: "hash", values: "on, off", default: "on" },
    ],
    apply: |options, rules| {
        let folds = [("triton", false), ("trtllm", true), ("cutlass", true), ("marlin", true), ("cutedsl", true)];
        let folds = options.word("backend", &folds)?;
        let hash = options.word("hash", &[("on", true), ("off", false)])?;
        rules.scaling = Scaling { topk: folds, hash_topk: folds && hash, combine: !folds };
        Ok(())
    },
    ..BASE
};
