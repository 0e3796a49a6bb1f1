//! Speed patches: each a descriptor and a contract, one file each.
//!
//! A contract is an emulation that rounds exactly where the kernel rounds. A patch edits the numeric rules of the phases
//! in which its kernel runs; ops outside its list and phases outside its list keep every bit.

mod bf16_compressor_state;
mod bf16_gemm;
mod bf16_indexer;
mod bf16_lm_head;
mod bf16_mhc;
mod bf16_router;
mod chunked_prefill;
mod exact_split_mhc;
mod fp4_indexer;
mod fp4_to_fp8_experts;
mod fp8_indexer;
mod fp8_kv;
mod fp8_lm_head;
mod fp8_q_sparse_mla;
mod fp8_wo_a;
mod fused_qkv_a;
mod indexer_hadamard;
mod mma_sparse_mla;
mod mxfp4_moe;
mod nvfp4_moe;
mod routed_scaling_in_topk;
mod swiglu_clamp;
mod tf32_mhc;
mod tp_allreduce;

use std::collections::BTreeMap;

use karat_model::{Config, Error, Result};
use karat_seam::{Op, Phase};

use crate::plan::Numerics;

pub(crate) use fp8_indexer::{folded_scores, paged_products};
pub(crate) use fp8_q_sparse_mla::{Fp8Q, attend_fp8};
pub(crate) use mma_sparse_mla::attend_split;

/// How much a patch can hurt when its arithmetic is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// Rounding of the stored format's own size.
    Low,
    /// Larger than one storage rounding, or it moves a decision.
    Medium,
    /// It moves many decisions or grows with depth.
    High,
}

impl Risk {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// An option and the values of it that something is about.
pub type Given = (&'static str, &'static [&'static str]);

/// An error that somebody claims for a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claim {
    /// The number.
    pub error: f64,
    /// What it measures.
    pub metric: &'static str,
    /// Who says so, and where.
    pub source: &'static str,
    /// Options that must all have one of these values; empty where the claim is about the patch whatever its options.
    pub given: &'static [Given],
}

/// One choice that a kernel leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatchOption {
    /// Name before `=`.
    pub name: &'static str,
    /// Values it takes, for messages: words, or a range of numbers.
    pub values: &'static str,
    /// Value when not given.
    pub default: &'static str,
}

/// A speed patch.
#[derive(Debug)]
pub struct Patch {
    /// Name on the command line and in reports.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// Phases in which its kernel runs.
    pub phases: &'static [Phase],
    /// Ops whose results it changes by itself.
    pub ops: &'static [Op],
    /// How much it can hurt.
    pub risk: Risk,
    /// Errors claimed for it.
    pub claims: &'static [Claim],
    /// Environment names and switches under which deployments know it.
    pub env_aliases: &'static [&'static str],
    /// Patches that it can't run beside, by name.
    pub conflicts: &'static [&'static str],
    /// Choices.
    pub options: &'static [PatchOption],
    /// It rounds nothing: with exact state it changes no bit, only the schedule.
    pub exact: bool,
    /// Most tokens of a prefill step, where the patch cuts prompts.
    pub(crate) chunk: Option<fn(&Options) -> Result<usize>>,
    /// Edits the rules of one phase.
    pub(crate) apply: fn(&Options, &mut Numerics) -> Result<()>,
    /// Refuses a model that the kernel can't run.
    pub(crate) check: fn(&Config) -> Result<()>,
}

impl Patch {
    /// The largest error that is claimed for the patch as `request` asks for it (`NAME:option=value:...`); options that
    /// it doesn't name have their defaults.
    pub fn claimed_error(&self, request: &str) -> f64 {
        let options = Request::parse(request).map(|r| r.options.given).unwrap_or_default();
        let value = |name: &str| options.get(name).map(|(value, _)| value.as_str());
        let holds = |claim: &&Claim| {
            claim.given.iter().all(|(name, values)| value(name).is_none_or(|value| values.contains(&value)))
        };
        self.claims.iter().filter(holds).map(|claim| claim.error).fold(0.0, f64::max)
    }
}

/// Every patch, in the order of the block's ops.
static REGISTRY: &[&Patch] = &[
    &bf16_mhc::PATCH,
    &tf32_mhc::PATCH,
    &exact_split_mhc::PATCH,
    &fused_qkv_a::PATCH,
    &fp8_kv::PATCH,
    &bf16_gemm::PATCH,
    &bf16_compressor_state::PATCH,
    &fp8_indexer::PATCH,
    &bf16_indexer::PATCH,
    &fp4_indexer::PATCH,
    &indexer_hadamard::PATCH,
    &mma_sparse_mla::PATCH,
    &fp8_q_sparse_mla::PATCH,
    &fp8_wo_a::PATCH,
    &bf16_router::PATCH,
    &routed_scaling_in_topk::PATCH,
    &nvfp4_moe::PATCH,
    &mxfp4_moe::PATCH,
    &fp4_to_fp8_experts::PATCH,
    &swiglu_clamp::PATCH,
    &tp_allreduce::PATCH,
    &bf16_lm_head::PATCH,
    &fp8_lm_head::PATCH,
    &chunked_prefill::PATCH,
];

/// Patches that an audit runs when none are named: those of the deployment that this project began with. The others are
/// named one by one.
pub const DEFAULT_PATCHES: [&str; 3] = ["bf16-mhc", "fp8-indexer", "mma-sparse-mla"];

const BOTH: &[Phase] = &[Phase::Prefill, Phase::Decode];

/// What most descriptors leave as it is.
const BASE: Patch = Patch {
    name: "",
    about: "",
    phases: BOTH,
    ops: &[],
    risk: Risk::Low,
    claims: &[],
    env_aliases: &[],
    conflicts: &[],
    options: &[],
    exact: false,
    chunk: None,
    apply: |_, _| Ok(()),
    check: any_model,
};

/// The registry of speed patches.
pub fn patches() -> &'static [&'static Patch] {
    REGISTRY
}

/// Option values of one requested patch.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    patch: &'static str,
    given: BTreeMap<&'static str, (String, &'static PatchOption)>,
}

impl Options {
    fn text(&self, name: &str) -> (&str, &'static PatchOption) {
        let (text, option) = self.given.get(name).expect("parse fills in every option that the descriptor lists");
        (text, option)
    }

    fn bad(&self, option: &PatchOption, found: &str) -> Error {
        Error::usage(format!("bad value for option `{}`", option.name))
            .at(format!("patch {}", self.patch))
            .expected(option.values)
            .found(found)
    }

    /// The value for a word option: the one beside the word that was given.
    pub(crate) fn word<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<T> {
        let (text, option) = self.text(name);
        words.iter().find(|(w, _)| *w == text).map(|(_, v)| *v).ok_or_else(|| self.bad(option, text))
    }

    /// A whole number in a range.
    pub(crate) fn number(&self, name: &str, range: std::ops::RangeInclusive<usize>) -> Result<usize> {
        let (text, option) = self.text(name);
        text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| self.bad(option, text))
    }
}

/// A patch that was asked for, with its options.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) patch: &'static Patch,
    pub(crate) options: Options,
}

impl Request {
    /// Reads `NAME:option=value:...`, looks the names up and refuses duplicates and conflicts. Registry order.
    pub(crate) fn parse_all(texts: &[String]) -> Result<Vec<Self>> {
        let mut requests = texts.iter().map(|t| Self::parse(t)).collect::<Result<Vec<_>>>()?;
        requests.sort_by_key(|r| REGISTRY.iter().position(|p| p.name == r.patch.name));
        for (i, a) in requests.iter().enumerate() {
            for b in &requests[i + 1..] {
                if a.patch.name == b.patch.name {
                    return Err(Error::usage("patch is named twice").at(format!("patch {}", a.patch.name)));
                }
                if a.patch.conflicts.contains(&b.patch.name) || b.patch.conflicts.contains(&a.patch.name) {
                    return Err(Error::usage(format!("patches `{}` and `{}` conflict", a.patch.name, b.patch.name))
                        .at("--patches")
                        .hint("both replace the same kernel: ask for one of them"));
                }
            }
        }
        Ok(requests)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default().trim();
        let patch = REGISTRY.iter().copied().find(|p| p.name == name).ok_or_else(|| {
            let names: Vec<&str> = REGISTRY.iter().map(|p| p.name).collect();
            Error::usage("unknown speed patch").at("--patches").expected(names.join(", ")).found(name)
        })?;
        let mut given: BTreeMap<_, _> = patch.options.iter().map(|o| (o.name, (o.default.to_string(), o))).collect();
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let Some(option) = patch.options.iter().find(|o| o.name == key.trim()) else {
                let names: Vec<&str> = patch.options.iter().map(|o| o.name).collect();
                let expected = if names.is_empty() { "no options".to_string() } else { names.join(", ") };
                return Err(Error::usage("unknown option").at(format!("patch {name}")).expected(expected).found(key));
            };
            given.insert(option.name, (value.trim().to_string(), option));
        }
        Ok(Self { patch, options: Options { patch: patch.name, given } })
    }
}

/// For patches whose index heads may be rotated.
fn power_of_two_head(config: &Config) -> Result<()> {
    let di = config.index_head_dim;
    let indexed = config.layers.iter().any(|kind| kind.has_indexer());
    if indexed && !(di.is_power_of_two() && di.is_multiple_of(32)) {
        return Err(Error::usage("an indexer patch cannot run this model: dims of an index head")
            .expected("a power of two, 32 at least")
            .found(di));
    }
    Ok(())
}

/// For patches that run any model.
#[expect(clippy::unnecessary_wraps, reason = "the type of Patch::check")]
fn any_model(_: &Config) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests;
