//! The block as data: which op reads and writes which taps. Both paths follow it; the audit walks it.

use crate::Tap;
use crate::Tap as T;

/// The two halves of a block and its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Hyper-connection mixing around a branch.
    Mix,
    /// Attention branch.
    Attention,
    /// Feed-forward branch.
    FeedForward,
    /// Final head.
    Head,
}

/// An op of the block, in the order in which a block runs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// mHC coefficients and collapse before attention (spec 2.2, 2.3).
    HcAttnPre,
    /// attn_norm (2.4).
    AttnNorm,
    /// wq_a and q_norm (2.5).
    QueryDown,
    /// wq_b, per-head norm, rope (2.5, 2.6).
    QueryUp,
    /// wkv, kv_norm, rope (2.5, 2.6).
    KeyValue,
    /// Main compressor projections (2.7).
    CompressProject,
    /// Main compressor pooling, norm, rope (2.7).
    CompressPool,
    /// The indexer's compressor projections (2.7, 2.8).
    IndexProject,
    /// The indexer's compressor pooling: index keys (2.7, 2.8).
    IndexPool,
    /// Index queries (2.8).
    IndexQuery,
    /// Index head weights (2.8).
    IndexWeights,
    /// Index scores (2.8).
    IndexScore,
    /// Top-k selection; for HCA the visible entries (2.8).
    Select,
    /// Sink attention over window and entries (2.9).
    Attend,
    /// Inverse rope and wo_a (2.10).
    OutputDown,
    /// wo_b (2.10).
    OutputUp,
    /// mHC combine after attention (2.2).
    HcAttnPost,
    /// mHC coefficients and collapse before the experts (2.2, 2.3).
    HcFfnPre,
    /// ffn_norm (2.4).
    FfnNorm,
    /// Router logits, selection, weights (2.11).
    Route,
    /// Routed experts (2.11).
    Experts,
    /// Shared expert (2.11).
    SharedExpert,
    /// Routed plus shared (2.11).
    CombineExperts,
    /// mHC combine after the experts (2.2).
    HcFfnPost,
    /// Hyper-connection head collapse (2.13).
    HeadCollapse,
    /// Final norm and logits (2.13).
    HeadLogits,
}

/// An op as data.
#[derive(Debug, Clone, Copy)]
pub struct OpSpec {
    /// Which op.
    pub op: Op,
    /// Name in reports.
    pub name: &'static str,
    /// Which part of the block.
    pub part: Part,
    /// Taps it reads. `Tap::Out` stands for the streams that enter the block.
    pub reads: &'static [Tap],
    /// Taps it writes.
    pub writes: &'static [Tap],
}

macro_rules! graph {
    ($($op:ident $name:literal $part:ident [$($r:ident)*] -> [$($w:ident)*];)+) => {
        /// The graph of a block and the head, in op order. An op whose taps a layer kind lacks is absent there.
        pub(crate) const GRAPH: &[OpSpec] = &[$(OpSpec {
            op: Op::$op, name: $name, part: Part::$part, reads: &[$(T::$r),*], writes: &[$(T::$w),*],
        },)+];
    };
}

graph! {
    HcAttnPre "hc_attn.pre" Mix [Out] -> [HcAttnPre HcAttnPost HcAttnComb HcAttnCollapsed];
    AttnNorm "attn.norm" Attention [HcAttnCollapsed] -> [AttnIn];
    QueryDown "attn.query_down" Attention [AttnIn] -> [AttnQr];
    QueryUp "attn.query_up" Attention [AttnQr] -> [AttnQ];
    KeyValue "attn.key_value" Attention [AttnIn] -> [AttnKv];
    CompressProject "attn.compress_project" Attention [AttnIn] -> [AttnKvp AttnGateScore];
    CompressPool "attn.compress_pool" Attention [AttnKvp AttnGateScore] -> [AttnCkv];
    IndexProject "attn.index_project" Attention [AttnIn] -> [AttnIndexKvp AttnIndexGateScore];
    IndexPool "attn.index_pool" Attention [AttnIndexKvp AttnIndexGateScore] -> [AttnIndexK];
    IndexQuery "attn.index_query" Attention [AttnQr] -> [AttnIndexQ];
    IndexWeights "attn.index_weights" Attention [AttnIn] -> [AttnIndexW];
    IndexScore "attn.index_score" Attention [AttnIndexQ AttnIndexK AttnIndexW] -> [AttnIndexScore];
    Select "attn.select" Attention [AttnIndexScore] -> [AttnSelected];
    Attend "attn.attend" Attention [AttnQ AttnKv AttnCkv AttnSelected] -> [AttnO AttnLse];
    OutputDown "attn.output_down" Attention [AttnO] -> [AttnOa];
    OutputUp "attn.output_up" Attention [AttnOa] -> [AttnOut];
    HcAttnPost "hc_attn.post" Mix [Out HcAttnPost HcAttnComb AttnOut] -> [HcAttnOut];
    HcFfnPre "hc_ffn.pre" Mix [HcAttnOut] -> [HcFfnPre HcFfnPost HcFfnComb HcFfnCollapsed];
    FfnNorm "ffn.norm" FeedForward [HcFfnCollapsed] -> [FfnIn];
    Route "ffn.route" FeedForward [FfnIn] -> [FfnRouterLogits FfnIdx FfnWt];
    Experts "ffn.experts" FeedForward [FfnIn FfnIdx FfnWt] -> [FfnExpertAct FfnRouted];
    SharedExpert "ffn.shared_expert" FeedForward [FfnIn] -> [FfnShared];
    CombineExperts "ffn.combine" FeedForward [FfnRouted FfnShared] -> [FfnOut];
    HcFfnPost "hc_ffn.post" Mix [HcAttnOut HcFfnPost HcFfnComb FfnOut] -> [Out];
    HeadCollapse "head.collapse" Head [HFinal] -> [HeadCollapsed];
    HeadLogits "head.logits" Head [HeadCollapsed] -> [Logits];
}

impl OpSpec {
    /// The graph in op order.
    pub fn graph() -> &'static [OpSpec] {
        GRAPH
    }

    /// The op that writes this tap.
    pub fn writer_of(tap: Tap) -> Option<&'static OpSpec> {
        GRAPH.iter().find(|spec| spec.writes.contains(&tap))
    }
}

impl Op {
    /// The op's row of the graph.
    pub fn spec(self) -> &'static OpSpec {
        GRAPH.iter().find(|spec| spec.op == self).expect("every op has a row: see the seam's tests")
    }
}
