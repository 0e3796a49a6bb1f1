//! Stock profiles: the low-precision path without speed patches, as data.

use std::fmt;
use std::str::FromStr;

use karat_model::{Error, Result};

use super::numerics::{
    Attend, IndexFormat, IndexRule, IndexScore, KvFormat, Numerics, Parts, Product, QueryNorm, RouteWeight, Scaling,
    Store, Swiglu,
};

/// A stock profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stock {
    /// f32 everywhere, nothing quantised: the control, which golden must agree with.
    None,
    /// The official code's storage points: the QAT mode of the spec.
    Official,
    /// SGLang with its default switches.
    Sglang,
    /// SGLang as it falls back on sm_120.
    SglangSm120,
    /// vLLM with its default indexer.
    Vllm,
}

/// A profile as data.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// Rules of every phase.
    pub numerics: Numerics,
    /// Where each rule comes from, by the rows of spec section 8.
    pub rows: &'static [Row],
}

/// One row of the disagreements of spec section 8, as a profile takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Number of the row.
    pub d: u8,
    /// What the profile does.
    pub rule: &'static str,
    /// Why.
    pub basis: Basis,
}

/// Why a profile has a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The spec says so of this engine.
    Spec,
    /// The spec says nothing of this engine: the official rule.
    Assumed,
}

impl Basis {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spec => "spec",
            Self::Assumed => "assumed",
        }
    }
}

use Basis::{Assumed, Spec};

const fn row(d: u8, rule: &'static str, basis: Basis) -> Row {
    Row { d, rule, basis }
}

const NONE: Profile = Profile {
    name: "none",
    about: "f32 everywhere, nothing quantised: the control",
    numerics: Numerics {
        store: Store::F32,
        hc: Product::F32,
        dense: Product::F32,
        wo_a: Product::F32,
        experts: Product::F32,
        qkv_a: Parts::WHOLE,
        reduce: Parts::WHOLE,
        compress: Product::F32,
        compress_store: Store::F32,
        compress_state: Store::F32,
        index_weights: Product::F32,
        router: Product::F32,
        router_store: Store::F32,
        scaling: Scaling::TOPK,
        route_weight: RouteWeight::BeforeDown,
        lm_head: Product::F32,
        logits_store: Store::F32,
        query_norm: QueryNorm::Fused,
        kv: KvFormat::Stored,
        index: IndexRule { hadamard: false, format: IndexFormat::Stored, score: IndexScore::F32 },
        attend: Attend::Fused { p: Store::F32 },
        act_floor: 1e-4,
        swiglu: Swiglu { fused: false, shared: true },
    },
    rows: &[],
};

const OFFICIAL: Profile = Profile {
    name: "official",
    about: "the official code: bf16 storage, FP8 linears and KV, FP4 experts and indexer with Hadamard",
    numerics: Numerics {
        store: Store::Bf16,
        dense: Product::FP8,
        wo_a: Product::Bf16,
        experts: Product::FP8,
        index_weights: Product::Bf16,
        query_norm: QueryNorm::Bf16Chain,
        kv: KvFormat::Q8 { block: 64, floor: 1e-4, source: Store::Bf16 },
        index: IndexRule { hadamard: true, format: IndexFormat::Q4 { block: 32 }, score: IndexScore::Bf16Chain },
        attend: Attend::Fused { p: Store::Bf16 },
        ..NONE.numerics
    },
    rows: &[
        row(1, "mHC post and comb in f32, one rounding", Spec),
        row(2, "per-head query norm as a bf16 chain", Spec),
        row(3, "KV quantised from bf16", Spec),
        row(4, "KV block maximum floored at 1e-4", Spec),
        row(5, "cos and sin in f32", Spec),
        row(6, "compressor product and pooling in f32", Spec),
        row(7, "indexer FP4 with Hadamard, bf16 scores", Spec),
        row(8, "one softmax over window and entries, P in bf16", Spec),
        row(9, "wo_a in bf16", Spec),
        row(10, "the shared expert clamps", Spec),
        row(11, "router in f32, weight before w2", Spec),
        row(12, "experts' activations FP8 in blocks of 128", Spec),
        row(13, "lm head in f32", Spec),
        row(14, "KV really rounded through FP8", Spec),
    ],
};

const SGLANG: Profile = Profile {
    name: "sglang",
    about: "SGLang's default switches: TF32 mHC, FP8 wo_a, FP8 indexer with Hadamard, bf16 router and head",
    numerics: Numerics {
        hc: Product::Tf32,
        wo_a: Product::FP8,
        compress: Product::Bf16,
        router: Product::Bf16,
        scaling: Scaling { topk: false, hash_topk: false, combine: true },
        route_weight: RouteWeight::AfterDown,
        lm_head: Product::Bf16,
        logits_store: Store::Bf16,
        query_norm: QueryNorm::Fused,
        kv: KvFormat::Q8 { block: 64, floor: 1e-8, source: Store::F32 },
        index: IndexRule {
            hadamard: true,
            format: IndexFormat::Fp8 { block: 128, pow2: false },
            score: IndexScore::Folded { bf16_product: false, page: 0 },
        },
        ..OFFICIAL.numerics
    },
    rows: &[
        row(1, "mHC post and comb in f32, one rounding", Spec),
        row(2, "per-head query norm fused with rope in f32", Spec),
        row(3, "KV quantised from f32 registers", Spec),
        row(4, "KV block maximum floored at 1e-8", Spec),
        row(5, "cos and sin in f32", Assumed),
        row(6, "compressor product of bf16 operands to f32, pooling in f32", Spec),
        row(7, "indexer FP8 with Hadamard, one f32 scale a key, f32 logits", Spec),
        row(8, "one softmax over window and entries (FlashMLA), P in bf16", Spec),
        row(9, "wo_a in FP8", Spec),
        row(10, "the shared expert clamps, as newer releases", Spec),
        row(
            11,
            "router product of bf16 operands to f32; weight after w2; the sum's epsilon, not established, is 0",
            Spec,
        ),
        row(12, "experts' activations FP8 in blocks of 128", Assumed),
        row(13, "lm head in bf16", Spec),
        row(14, "KV really rounded through FP8", Assumed),
    ],
};

const SGLANG_SM120: Profile = Profile {
    name: "sglang-sm120",
    about: "SGLang as it falls back on sm_120: eager f32 mHC, attention in two parts, bf16 index products",
    numerics: Numerics {
        hc: Product::F32,
        index: IndexRule { score: IndexScore::Folded { bf16_product: true, page: 0 }, ..SGLANG.numerics.index },
        attend: Attend::Parted { p: Store::Bf16, partials: Store::Bf16 },
        ..SGLANG.numerics
    },
    rows: &[
        SGLANG.rows[0],
        SGLANG.rows[1],
        SGLANG.rows[2],
        SGLANG.rows[3],
        SGLANG.rows[4],
        SGLANG.rows[5],
        row(7, "indexer FP8 with Hadamard, one f32 scale a key, each q.k rounded to bf16 (torch)", Spec),
        row(8, "window and entries as two attentions with bf16 outputs, merged by log-sum-exp, then the sink", Spec),
        SGLANG.rows[8],
        SGLANG.rows[9],
        SGLANG.rows[10],
        SGLANG.rows[11],
        SGLANG.rows[12],
        SGLANG.rows[13],
    ],
};

const VLLM: Profile = Profile {
    name: "vllm",
    about: "vLLM's default: FP8 indexer with power-of-two scales and no Hadamard, f32 router",
    numerics: Numerics {
        route_weight: RouteWeight::AfterDown,
        query_norm: QueryNorm::Fused,
        index: IndexRule {
            hadamard: false,
            format: IndexFormat::Fp8 { block: 128, pow2: true },
            score: IndexScore::Folded { bf16_product: false, page: 0 },
        },
        ..OFFICIAL.numerics
    },
    rows: &[
        row(1, "mHC post and comb in f32, one rounding", Assumed),
        row(2, "per-head query norm fused with rope in f32", Spec),
        row(3, "KV quantised from bf16", Assumed),
        row(4, "KV block maximum floored at 1e-4", Assumed),
        row(5, "cos and sin in f32, no mscale", Spec),
        row(6, "pooling in f32, rounded to bf16 before quantisation; product in f32", Assumed),
        row(7, "indexer FP8 with power-of-two scales folded into the weights, no Hadamard", Spec),
        row(8, "one softmax over window and entries, P in bf16", Assumed),
        row(9, "wo_a in bf16", Assumed),
        row(10, "the shared expert clamps", Spec),
        row(11, "router in f32; weight after w2", Spec),
        row(12, "experts' activations FP8 in blocks of 128", Assumed),
        row(13, "lm head in f32", Assumed),
        row(14, "KV really rounded through FP8", Assumed),
    ],
};

impl Stock {
    /// Every profile.
    pub const ALL: &'static [Stock] = &[Stock::None, Stock::Official, Stock::Sglang, Stock::SglangSm120, Stock::Vllm];

    /// The profile's data.
    pub fn profile(self) -> &'static Profile {
        match self {
            Self::None => &NONE,
            Self::Official => &OFFICIAL,
            Self::Sglang => &SGLANG,
            Self::SglangSm120 => &SGLANG_SM120,
            Self::Vllm => &VLLM,
        }
    }

    /// Rules that the spec doesn't say of this engine.
    pub fn assumed(self) -> impl Iterator<Item = &'static Row> {
        self.profile().rows.iter().filter(|r| r.basis != Basis::Spec)
    }

    /// Name on the command line and in reports.
    pub fn name(self) -> &'static str {
        self.profile().name
    }
}

impl fmt::Display for Stock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Stock {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|s| s.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|s| s.name()).collect();
            Error::usage("unknown stock profile").at("--stock").expected(names.join(", ")).found(text)
        })
    }
}
