//! `bf16-compressor-state`: what a compressor carries from step to step, in bf16.
//!
//! Contract: rows and scores that wait for their window, and the overlap rows of the last window, are rounded to bf16 at
//! the end of every step (spec section 3); a window that completes inside one prefill step never sees the rounding. So
//! chunked, decoded and cold runs of the same ids differ.

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, Risk};
use crate::plan::Store;

pub(super) static PATCH: Patch = Patch {
    name: "bf16-compressor-state",
    about: "compressor state (pending and overlap rows) carried in bf16",
    phases: BOTH,
    ops: &[Op::CompressPool, Op::IndexPool],
    risk: Risk::Medium,
    claims: &[Claim {
        error: 2.4e-3,
        metric: "rel-L2 of an entry",
        source: "bf16 rounding of rows and scores",
        given: &[],
    }],
    env_aliases: &["bf16 c4/c128 state pools"],
    conflicts: &[],
    apply: |_, rules| {
        rules.compress_state = Store::Bf16;
        Ok(())
    },
    ..BASE
};
