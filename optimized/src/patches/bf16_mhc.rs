//! `bf16-mhc`: the mHC mixing product as a bf16 GEMM.
//!
//! Contract: f and fn are rounded to bf16, products are exact, accumulation and result are f32; the rms factor, sigmoid
//! and Sinkhorn stay f32 (spec 2.3, section 6). f is stored in bf16 anyway, so under a bf16 stock only fn is rounded.

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, Risk};
use crate::plan::Product;

pub(super) static PATCH: Patch = Patch {
    name: "bf16-mhc",
    about: "mHC mixing GEMM with bf16 operands and f32 accumulation",
    phases: BOTH,
    ops: &[Op::HcAttnPre, Op::HcFfnPre],
    risk: Risk::High,
    claims: &[
        Claim {
            error: 4e-3,
            metric: "relative error of an element",
            source: "deployment notes: \"0.4 % an element, 2.6 % over 43 layers\"",
            given: &[],
        },
        Claim {
            error: 1.7e-3,
            metric: "rel-L2 of the mixes",
            source: "spec section 6, measured on random data",
            given: &[],
        },
    ],
    env_aliases: &["hc_pre bf16 linear (unconditional one-line patch of deepseek_v4.py)"],
    conflicts: &["tf32-mhc", "exact-split-mhc"],
    apply: |_, rules| {
        rules.hc = Product::Bf16;
        Ok(())
    },
    ..BASE
};
