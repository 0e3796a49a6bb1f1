//! `fused-qkv-a`: wq_a and wkv in one kernel.
//!
//! Contract: the two weights stand side by side and the sum over the input is split along K; the parts are added in f32.
//! Nothing is rounded that stock doesn't round: only the order of additions differs (spec section 6).

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, PatchOption, Risk};
use crate::plan::{Order, Parts, Store};

pub(super) static PATCH: Patch = Patch {
    name: "fused-qkv-a",
    about: "wq_a and wkv in one split-K GEMM: another order of additions",
    phases: BOTH,
    ops: &[Op::QueryDown, Op::KeyValue],
    risk: Risk::Low,
    claims: &[Claim {
        error: 1e-6,
        metric: "rel-L2 of both outputs before they are stored",
        source: "f32 accumulation in another order",
        given: &[],
    }],
    env_aliases: &["SGLANG_OPT_FUSE_WQA_WKV"],
    conflicts: &[],
    options: &[PatchOption { name: "splits", values: "2 to 16", default: "2" }],
    apply: |options, rules| {
        rules.qkv_a = Parts { count: options.number("splits", 2..=16)?, store: Store::F32, order: Order::Ascending };
        Ok(())
    },
    ..BASE
};
