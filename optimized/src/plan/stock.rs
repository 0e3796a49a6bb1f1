//! Stock profiles: the low-precision path without speed patches, as data.

use std::fmt;
use std::str::FromStr;

use karat_model::{Error, Result};

use super::numerics::{Attend, IndexFormat, IndexRule, IndexScore, KvFormat, Numerics, Product, QueryNorm, Store};

/// A stock profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stock {
    /// f32 everywhere, nothing quantised: the control, which golden must agree with.
    None,
    /// The official code's storage points: the QAT mode of the spec.
    Official,
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
        compress: Product::F32,
        index_weights: Product::F32,
        router: Product::F32,
        lm_head: Product::F32,
        query_norm: QueryNorm::Fused,
        kv: KvFormat::Stored,
        index: IndexRule { hadamard: false, format: IndexFormat::Stored, score: IndexScore::F32 },
        attend: Attend::Fused { p: Store::F32 },
        act_floor: 1e-4,
        shared_clamp: true,
    },
};

const OFFICIAL: Profile = Profile {
    name: "official",
    about: "the official code: bf16 storage, FP8 linears and KV, FP4 experts and indexer with Hadamard",
    numerics: Numerics {
        store: Store::Bf16,
        hc: Product::F32,
        dense: Product::Fp8,
        wo_a: Product::Bf16,
        experts: Product::Fp8,
        compress: Product::F32,
        index_weights: Product::Bf16,
        router: Product::F32,
        lm_head: Product::F32,
        query_norm: QueryNorm::Bf16Chain,
        kv: KvFormat::Q8 { block: 64, floor: 1e-4 },
        index: IndexRule { hadamard: true, format: IndexFormat::Q4 { block: 32 }, score: IndexScore::Bf16Chain },
        attend: Attend::Fused { p: Store::Bf16 },
        act_floor: 1e-4,
        shared_clamp: true,
    },
};

impl Stock {
    /// Every profile.
    pub const ALL: &'static [Stock] = &[Stock::None, Stock::Official];

    /// The profile's data.
    pub fn profile(self) -> &'static Profile {
        match self {
            Self::None => &NONE,
            Self::Official => &OFFICIAL,
        }
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
