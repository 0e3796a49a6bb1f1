//! `fp8-kv`: the FP8 record of the KV cache.
//!
//! Contract: `layout=584` is 448 E4M3 bytes with power-of-two scales for 64 channels, 64 rotated bf16 dims, 7 scale bytes
//! and padding; it quantises the f32 value of the fused norm, with the block maximum floored at 1e-8 (D3, D4), or the
//! stored bf16 value (`source=bf16`: the official order). `layout=512` is one E4M3 byte a dim with scale 1, the rotated
//! dims too (spec 2.5).

use karat_model::{Config, Error, Result};
use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, PatchOption, Risk};
use crate::plan::{KvFormat, Store};

pub(super) static PATCH: Patch = Patch {
    name: "fp8-kv",
    about: "KV rows and entries as FP8 records of 584 or 512 bytes",
    phases: BOTH,
    ops: &[Op::KeyValue, Op::CompressPool],
    risk: Risk::Medium,
    claims: &[
        Claim {
            error: 2.7e-2,
            metric: "rel-L2 of a KV row",
            source: "one E4M3 rounding with power-of-two scales",
            given: &[("layout", &["584"])],
        },
        Claim {
            error: 2.7e-2,
            metric: "rel-L2 of a KV row",
            source: "one E4M3 rounding without scales",
            given: &[("layout", &["512"])],
        },
    ],
    env_aliases: &["SGLANG_DSV4_USE_BF16_KV_QUANT_SOURCE=1 (source=bf16)", "--kv-cache-dtype fp8_e4m3 (layout=512)"],
    conflicts: &[],
    options: &[
        PatchOption { name: "layout", values: "584, 512", default: "584" },
        PatchOption { name: "source", values: "f32, bf16", default: "f32" },
    ],
    apply: |options, rules| {
        let source = options.word("source", &[("f32", Store::F32), ("bf16", Store::Bf16)])?;
        let floor = if source == Store::F32 { 1e-8 } else { 1e-4 };
        let record = KvFormat::Q8 { block: 64, floor, source };
        rules.kv = options.word("layout", &[("584", record), ("512", KvFormat::Uniform)])?;
        Ok(())
    },
    check: whole_blocks,
    ..BASE
};

fn whole_blocks(config: &Config) -> Result<()> {
    if config.nope_head_dim().is_multiple_of(64) {
        return Ok(());
    }
    Err(Error::usage("patch `fp8-kv` cannot run this model: unrotated dims of a KV row")
        .expected("a multiple of 64")
        .found(config.nope_head_dim()))
}
