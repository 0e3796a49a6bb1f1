//! `fp8-indexer`: index scores from FP8 codes (decode).
//!
//! Contract: index queries and keys after rope and Hadamard as E4M3 codes with one f32 scale for 128 dims (the whole
//! head where it is smaller); q's scale is folded into the head weight, relu and the weighted sum over heads run in f32
//! on raw code products, the key's scale comes after the sum; logits f32 (spec 2.8 D7). With `product=bf16` each q.k is
//! rounded to bf16 first, as the eager fallback of deployed engines does. The cache is read page by page and a page past
//! the visible keys is not touched; which pages there are changes no bit. Rotation and scale are the engines' choices.

use karat_model::{Config, Error, Result};
use karat_seam::{Op, Phase};

use super::{BASE, Claim, Patch, PatchOption, Risk};
use crate::arith::{Panels, bf16, product_here, vectorised};
use crate::ops::index::relu;
use crate::plan::{IndexFormat, IndexRule, IndexScore};

/// Dims that share a scale.
const BLOCK: usize = 128;

pub(super) static PATCH: Patch = Patch {
    name: "fp8-indexer",
    about: "decode index scores from FP8 queries and keys with Hadamard rotation",
    phases: &[Phase::Decode],
    ops: &[Op::IndexPool, Op::IndexQuery, Op::IndexScore],
    risk: Risk::Medium,
    claims: &[
        Claim { error: 2.3e-3, metric: "relative error of the scores", source: "deployment notes", given: &[] },
        Claim {
            error: 4.5e-2,
            metric: "rel rms of the scores",
            source: "spec 2.8, measured on random data",
            given: &[],
        },
    ],
    env_aliases: &["SGLANG_FP8_PAGED_MQA_LOGITS_TORCH=1 (product=bf16)", "TRITON_INDEXER"],
    conflicts: &["bf16-indexer", "fp4-indexer"],
    options: &[
        PatchOption { name: "product", values: "f32, bf16", default: "f32" },
        PatchOption { name: "page", values: "0 (not paged), 64, 256 keys", default: "64" },
        PatchOption { name: "hadamard", values: "on, off", default: "on" },
        PatchOption { name: "scale", values: "f32, pow2", default: "f32" },
    ],
    apply: |options, rules| {
        let bf16_product = options.word("product", &[("f32", false), ("bf16", true)])?;
        let page = options.word("page", &[("0", 0), ("64", 64), ("256", 256)])?;
        rules.index = IndexRule {
            hadamard: options.word("hadamard", &[("on", true), ("off", false)])?,
            format: IndexFormat::Fp8 { block: BLOCK, pow2: options.word("scale", &[("f32", false), ("pow2", true)])? },
            score: IndexScore::Folded { bf16_product, page },
        };
        Ok(())
    },
    check,
    ..BASE
};

fn check(config: &Config) -> Result<()> {
    let di = config.index_head_dim;
    let indexed = config.layers.iter().any(|kind| kind.has_indexer());
    if indexed && (di > BLOCK || !di.is_power_of_two()) {
        return Err(Error::usage("patch `fp8-indexer` cannot run this model: dims of an index head")
            .expected(format!("a power of two up to {BLOCK}"))
            .found(di));
    }
    Ok(())
}

vectorised! {
    /// Scores of one query (zero on entry) from code products `[Hi,n]`, head weights `[Hi]`, and the scales of its heads
    /// `[Hi]` and of the keys `[n]`.
    pub(crate) fn folded_scores(
        products: &[f32],
        weights: &[f32],
        q_scales: &[f32],
        key_scales: &[f32],
        bf16_product: bool,
        scores: &mut [f32],
    ) {
        for (products, (w, s)) in products.chunks_exact(scores.len()).zip(weights.iter().zip(q_scales)) {
            let folded = w * s;
            for (sum, p) in scores.iter_mut().zip(products) {
                let p = if bf16_product { bf16(*p) } else { *p };
                *sum = relu(p).mul_add(folded, *sum);
            }
        }
        for (s, key) in scores.iter_mut().zip(key_scales) {
            *s *= key;
        }
    }
}

/// q.k `[Hi, visible]` of one query `q [Hi,di]`, page by page; the first page past the visible keys ends the walk.
pub(crate) fn paged_products(page: usize, q: &[f32], keys: &Panels, visible: usize, out: &mut [f32]) {
    let mut start = 0;
    while start < visible {
        let end = visible.min(start + page);
        let mut part = vec![0.0; out.len() / visible * (end - start)];
        product_here(q, keys, start..end, &mut part);
        for (row, part) in out.chunks_exact_mut(visible).zip(part.chunks_exact(end - start)) {
            row[start..end].copy_from_slice(part);
        }
        start = end;
    }
}
