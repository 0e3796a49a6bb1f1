//! Speed patches as kernels: what another processor computes in the place of their contracts.
//!
//! A path hands a kernel the operands that the contract would have taken, op by op, and goes on with what comes back. Which
//! op comes next, what a visitor sees and what a sequence carries stay here. A patch that no kernel stands for, with these
//! options, this stock profile or this model, runs as its contract, and [`Standing`] says why.

mod accumulation;
mod choice;
mod run;

use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use karat_model::{Checkpoint, Result};

pub use accumulation::Accumulation;
pub(crate) use choice::{Chosen, choose};
pub(crate) use run::ByKernel;

use crate::plan::{SplitK, Store};

/// A kernel with the numerics that a plan asks of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// mHC coefficients with fn as this many bf16 terms (spec 2.3).
    Mix {
        /// 1 to 3.
        terms: u8,
    },
    /// Split-K attention (spec 2.9).
    Attend(SplitK),
    /// Index scores from E4M3 codes, and the exact selection by them (spec 2.8).
    Index {
        /// Each q.k is rounded to bf16 before relu.
        bf16_product: bool,
    },
    /// Routed experts with FP4 codes and bf16 activations (spec 2.11).
    Experts(Grouped),
    /// The compressors' products (spec 2.7).
    Project {
        /// Format of rows and gate scores.
        rows: Store,
    },
}

/// Numerics of the routed experts' kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grouped {
    /// E4M3 scales for 16 columns and one f32 scale a matrix; else E8M0 scales for 32.
    pub nvfp4: bool,
    /// Gate and up are clamped as f32 sums.
    pub fused_clamp: bool,
}

/// How a patch of a plan runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Name of the patch.
    pub patch: &'static str,
    /// Its kernel in the phases in which it acts; what stands in the way of one otherwise.
    pub kernel: std::result::Result<Kernel, String>,
}

/// What a processor keeps of a layer's weights, made at their first use.
#[derive(Debug, Default)]
pub struct Held(OnceLock<Arc<dyn Any + Send + Sync>>);

impl Held {
    /// What is kept, or what `make` gives.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get(&self, make: impl FnOnce() -> Result<Arc<dyn Any + Send + Sync>>) -> Result<Arc<dyn Any + Send + Sync>> {
        if let Some(kept) = self.0.get() {
            return Ok(kept.clone());
        }
        let fresh = make()?;
        Ok(self.0.get_or_init(|| fresh).clone())
    }
}

/// Operands of [`Kernels::mix`].
#[derive(Debug, Clone, Copy)]
pub struct Mix<'a> {
    /// Streams `[S, hc*D]`, stored in bf16.
    pub x: &'a [f32],
    /// fn `[(2+hc)*hc, hc*D]`.
    pub weight: &'a [f32],
    /// `[(2+hc)*hc]`.
    pub base: &'a [f32],
    /// `[3]`.
    pub scale: &'a [f32],
    /// bf16 terms of fn.
    pub terms: u8,
    /// Streams: hc.
    pub hc: usize,
    /// Sinkhorn iterations.
    pub iterations: usize,
}

/// Operands of [`Kernels::attend`].
#[derive(Debug, Clone, Copy)]
pub struct Attending<'a> {
    /// `[S,H,hd]`, stored in bf16.
    pub q: &'a [f32],
    /// `[n,hd]`: keys of every query, one query after the other, each window by position, then entries by index.
    pub keys: &'a [f32],
    /// `[S+1]`: where each query's keys begin.
    pub from: &'a [usize],
    /// `[H]`.
    pub sink: &'a [f32],
    /// hd.
    pub width: usize,
    /// Splits, tile and partials.
    pub rule: SplitK,
}

/// Operands of [`Kernels::index_scores`].
#[derive(Debug, Clone, Copy)]
pub struct Scoring<'a> {
    /// Codes of the queries `[S,Hi,di]`: values of E4M3.
    pub q: &'a [f32],
    /// `[S,Hi]`.
    pub q_scales: &'a [f32],
    /// Head weights `[S,Hi]`.
    pub weights: &'a [f32],
    /// Codes of the keys `[T,di]`.
    pub keys: &'a [f32],
    /// `[T]`.
    pub key_scales: &'a [f32],
    /// Keys that each query sees `[S]`.
    pub visible: &'a [usize],
    /// Hi.
    pub heads: usize,
    /// Keys in a page of the cache; 0: as many as the kernel likes.
    pub page: usize,
    /// Each q.k is rounded to bf16.
    pub bf16_product: bool,
}

/// Operands of [`Kernels::experts_up`] and [`Kernels::experts_down`].
#[derive(Debug, Clone, Copy)]
pub struct Routed<'a> {
    /// `[S,D]`, stored in bf16.
    pub x: &'a [f32],
    /// Experts `[S*K]`.
    pub idx: &'a [u32],
    /// Routing weights `[S*K]`, multiplied in before the down projection.
    pub wt: &'a [f32],
    /// K.
    pub k: usize,
    /// Where the weights are.
    pub checkpoint: &'a Checkpoint,
    /// Prefix of the experts' names: `layers.3.ffn.experts`.
    pub prefix: &'a str,
    /// What the processor keeps of them.
    pub held: &'a Held,
    /// Scales and clamp.
    pub grouped: Grouped,
}

/// Operands of [`Kernels::project`].
#[derive(Debug, Clone, Copy)]
pub struct Projecting<'a> {
    /// `[S,D]`, stored in bf16.
    pub x: &'a [f32],
    /// Where the weights are.
    pub checkpoint: &'a Checkpoint,
    /// Prefix of `wkv` and `wgate`: `layers.3.attn.compressor`.
    pub prefix: &'a str,
    /// What the processor keeps of them.
    pub held: &'a Held,
    /// Columns of a row.
    pub columns: usize,
    /// Format of rows and gate scores.
    pub rows: Store,
}

/// Computes ops of speed patches. Every slice is row-major f32; values that are stored in bf16 or in codes are exactly those.
///
/// # Errors
/// All ops: sizes that the kernel cannot take, a device that failed, or memory that was full.
pub trait Kernels: Debug + Send + Sync {
    /// Where it runs, for people: the device's name.
    fn name(&self) -> String;
    /// What its results follow from: which kernels, compiled for what. Enters a path's identity.
    fn identity(&self) -> String;
    /// How its device adds up products.
    fn accumulation(&self) -> Accumulation {
        Accumulation::default()
    }
    /// What keeps a kernel from running a model; `None`: nothing.
    fn lacks(&self, kernel: Kernel, checkpoint: &Checkpoint) -> Option<String>;
    /// Coefficients pre, post, comb of each row: `[S, (2+hc)*hc]`.
    fn mix(&self, it: Mix<'_>) -> Result<Vec<f32>>;
    /// (output `[S,H,hd]` stored in bf16, natural log of the denominator plus max with the sink `[S,H]`).
    fn attend(&self, it: Attending<'_>) -> Result<(Vec<f32>, Vec<f32>)>;
    /// `[S,T]`; -inf where a query doesn't see the key.
    fn index_scores(&self, it: Scoring<'_>) -> Result<Vec<f32>>;
    /// The `topk` best of the first `visible` scores of each row of `scores [S,T]`, ascending by index.
    fn select(&self, scores: &[f32], visible: &[usize], topk: usize) -> Result<Vec<Vec<u32>>>;
    /// Activations of the chosen experts with the routing weight: `[S,K,I]`.
    fn experts_up(&self, it: Routed<'_>) -> Result<Vec<f32>>;
    /// Sum over the chosen experts from activations `[S,K,I]`: `[S,D]`.
    fn experts_down(&self, it: Routed<'_>, act: &[f32]) -> Result<Vec<f32>>;
    /// Rows and gate scores of a compressor: `[S,columns]` each.
    fn project(&self, it: Projecting<'_>) -> Result<(Vec<f32>, Vec<f32>)>;
}
