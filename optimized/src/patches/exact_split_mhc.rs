//! `exact-split-mhc`: the mHC mixing product on bf16 tensor cores with fn as a sum of bf16 terms.
//!
//! Contract: fn = hi + mid + lo, each the bf16 rounding of what the terms before it leave (three hold an f32 exactly);
//! f is rounded to bf16, in which the streams are stored; one f32 sum for each term, the smallest first. With three terms
//! every product is exact and only the order of the sums differs from f32: the safe replacement of `bf16-mhc`.

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, PatchOption, Risk};
use crate::plan::Product;

pub(super) static PATCH: Patch = Patch {
    name: "exact-split-mhc",
    about: "mHC mixing GEMM with fn as up to three bf16 terms, f32 accumulation",
    phases: BOTH,
    ops: &[Op::HcAttnPre, Op::HcFfnPre],
    risk: Risk::Low,
    claims: &[
        Claim {
            error: 1e-6,
            metric: "rel-L2 of the mixes",
            source: "products are exact; what is left is f32 accumulation",
            given: &[("terms", &["3"])],
        },
        Claim {
            error: 2.5e-6,
            metric: "rel-L2 of the mixes",
            source: "simulated on random data",
            given: &[("terms", &["2"])],
        },
        Claim {
            error: 1.7e-3,
            metric: "rel-L2 of the mixes",
            source: "one term is the weight in bf16",
            given: &[("terms", &["1"])],
        },
    ],
    env_aliases: &["(none yet: proposed in place of the bf16 hc_pre patch)"],
    conflicts: &["bf16-mhc", "tf32-mhc"],
    options: &[PatchOption { name: "terms", values: "1 to 3", default: "3" }],
    apply: |options, rules| {
        rules.hc = Product::Terms(options.number("terms", 1..=3)? as u8);
        Ok(())
    },
    ..BASE
};
