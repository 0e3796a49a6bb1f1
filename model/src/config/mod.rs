//! config.json as facts: every field of spec section 1, with both spellings read into one form.

mod check;
mod fields;
mod keys;
mod quant;
pub(crate) mod read;
mod rope;
mod schedule;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::Result;

/// What a layer's attention keeps besides the sliding window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LayerKind {
    /// Sliding window only (ratio 0).
    Sliding,
    /// Compressed sparse attention: overlapping windows of `ratio` tokens, an indexer selects entries.
    Csa {
        /// Tokens an entry stands for (4 in Flash).
        ratio: usize,
    },
    /// Heavily compressed attention: every visible entry of `ratio` tokens.
    Hca {
        /// Tokens an entry stands for (128 in Flash).
        ratio: usize,
    },
}

impl LayerKind {
    /// Tokens an entry stands for; `None` for a sliding layer.
    pub fn ratio(self) -> Option<usize> {
        match self {
            Self::Sliding => None,
            Self::Csa { ratio } | Self::Hca { ratio } => Some(ratio),
        }
    }

    /// True for CSA: the layer has an indexer and overlapping windows.
    pub fn has_indexer(self) -> bool {
        matches!(self, Self::Csa { .. })
    }

    /// Pooled series of the compressor: 2 where windows overlap (CSA), 1 without overlap (HCA), 0 without compressor.
    pub fn series(self) -> usize {
        match self {
            Self::Sliding => 0,
            Self::Csa { .. } => 2,
            Self::Hca { .. } => 1,
        }
    }
}

impl fmt::Display for LayerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sliding => f.write_str("sliding"),
            Self::Csa { ratio } => write!(f, "CSA ratio {ratio}"),
            Self::Hca { ratio } => write!(f, "HCA ratio {ratio}"),
        }
    }
}

/// How routed experts are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExpertDtype {
    /// Packed FP4 (MXFP4, or NVFP4 where the tensors say so).
    Fp4,
    /// FP8 in blocks, like the other linears (Base checkpoints).
    Fp8,
}

/// YaRN parameters of the compressed layers' rope.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    /// Interpolation factor (16).
    pub factor: f64,
    /// Fast boundary in rotations (32).
    pub beta_fast: f64,
    /// Slow boundary in rotations (1).
    pub beta_slow: f64,
    /// Training length (65536).
    pub original_max_position_embeddings: f64,
}

/// A model's config in one form. Names are those of config.json in the released checkpoints.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// V: size of embedding and head.
    pub vocab_size: usize,
    /// D.
    pub hidden_size: usize,
    /// Kind of each layer; its length is num_hidden_layers.
    pub layers: Vec<LayerKind>,
    /// Kind of each MTP block; its length is num_nextn_predict_layers.
    pub mtp: Vec<LayerKind>,
    /// H.
    pub num_attention_heads: usize,
    /// hd.
    pub head_dim: usize,
    /// rd: the last rd dims of a head are rotated.
    pub qk_rope_head_dim: usize,
    /// R.
    pub q_lora_rank: usize,
    /// G.
    pub o_groups: usize,
    /// Rank of each output group.
    pub o_lora_rank: usize,
    /// W: raw keys a query sees, itself included.
    pub sliding_window: usize,
    /// Hi.
    pub index_n_heads: usize,
    /// di.
    pub index_head_dim: usize,
    /// Entries selected a query.
    pub index_topk: usize,
    /// E.
    pub n_routed_experts: usize,
    /// Shared experts (their inner size is n_shared_experts * moe_intermediate_size).
    pub n_shared_experts: usize,
    /// K.
    pub num_experts_per_tok: usize,
    /// I.
    pub moe_intermediate_size: usize,
    /// Layers 0..n route by token id.
    pub num_hash_layers: usize,
    /// Factor on the normalised routing weights.
    pub routed_scaling_factor: f64,
    /// L: gate is clamped above, up on both sides.
    pub swiglu_limit: f64,
    /// Streams.
    pub hc_mult: usize,
    /// Sinkhorn iterations (20).
    pub hc_sinkhorn_iters: usize,
    /// Epsilon of the mHC coefficients.
    pub hc_eps: f64,
    /// Epsilon of every RMS norm, mHC's included.
    pub rms_norm_eps: f64,
    /// Rope base of sliding layers and MTP.
    pub rope_theta: f64,
    /// Rope base of compressed layers.
    pub compress_rope_theta: f64,
    /// YaRN of compressed layers.
    pub yarn: Yarn,
    /// Longest context the model was made for.
    pub max_position_embeddings: usize,
    /// Begin of sentence.
    pub bos_token_id: u32,
    /// End of sentence.
    pub eos_token_id: u32,
    /// How routed experts are stored.
    pub expert_dtype: ExpertDtype,
    /// Rows and columns that share one FP8 weight scale ([128,128]).
    pub weight_block_size: [usize; 2],
}

impl fmt::Display for ExpertDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fp4 => "fp4",
            Self::Fp8 => "fp8",
        })
    }
}

impl Config {
    /// Reads the bytes of a config.json in either spelling (`compress_ratios`, or `layer_types` with
    /// `compress_rates` and `rope_parameters`).
    ///
    /// # Errors
    /// Not JSON; a field missing, unknown, out of range or of the wrong type; two spellings that disagree; a value
    /// this architecture doesn't have. The message names the field and what to try.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        read::read("config.json", bytes).map(|r| r.config)
    }

    /// Every field as name and text, in a fixed order: for summaries and comparisons.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let kinds = |list: &[LayerKind]| {
            let words = list.iter().map(|k| match k {
                LayerKind::Sliding => "0".to_string(),
                LayerKind::Csa { ratio } => format!("csa{ratio}"),
                LayerKind::Hca { ratio } => format!("hca{ratio}"),
            });
            format!("[{}]", words.collect::<Vec<_>>().join(","))
        };
        let [rows, cols] = self.weight_block_size;
        vec![
            ("vocab_size", self.vocab_size.to_string()),
            ("hidden_size", self.hidden_size.to_string()),
            ("num_hidden_layers", self.layers.len().to_string()),
            ("num_nextn_predict_layers", self.mtp.len().to_string()),
            ("layers", kinds(&self.layers)),
            ("mtp", kinds(&self.mtp)),
            ("num_attention_heads", self.num_attention_heads.to_string()),
            ("head_dim", self.head_dim.to_string()),
            ("qk_rope_head_dim", self.qk_rope_head_dim.to_string()),
            ("q_lora_rank", self.q_lora_rank.to_string()),
            ("o_groups", self.o_groups.to_string()),
            ("o_lora_rank", self.o_lora_rank.to_string()),
            ("sliding_window", self.sliding_window.to_string()),
            ("index_n_heads", self.index_n_heads.to_string()),
            ("index_head_dim", self.index_head_dim.to_string()),
            ("index_topk", self.index_topk.to_string()),
            ("n_routed_experts", self.n_routed_experts.to_string()),
            ("n_shared_experts", self.n_shared_experts.to_string()),
            ("num_experts_per_tok", self.num_experts_per_tok.to_string()),
            ("moe_intermediate_size", self.moe_intermediate_size.to_string()),
            ("num_hash_layers", self.num_hash_layers.to_string()),
            ("routed_scaling_factor", self.routed_scaling_factor.to_string()),
            ("swiglu_limit", self.swiglu_limit.to_string()),
            ("hc_mult", self.hc_mult.to_string()),
            ("hc_sinkhorn_iters", self.hc_sinkhorn_iters.to_string()),
            ("hc_eps", self.hc_eps.to_string()),
            ("rms_norm_eps", self.rms_norm_eps.to_string()),
            ("rope_theta", self.rope_theta.to_string()),
            ("compress_rope_theta", self.compress_rope_theta.to_string()),
            ("yarn_factor", self.yarn.factor.to_string()),
            ("yarn_beta_fast", self.yarn.beta_fast.to_string()),
            ("yarn_beta_slow", self.yarn.beta_slow.to_string()),
            ("yarn_original_max_position_embeddings", self.yarn.original_max_position_embeddings.to_string()),
            ("max_position_embeddings", self.max_position_embeddings.to_string()),
            ("bos_token_id", self.bos_token_id.to_string()),
            ("eos_token_id", self.eos_token_id.to_string()),
            ("expert_dtype", self.expert_dtype.to_string()),
            ("weight_block_size", format!("[{rows},{cols}]")),
        ]
    }

    /// num_hidden_layers.
    pub fn num_hidden_layers(&self) -> usize {
        self.layers.len()
    }

    /// Dims of a head that are not rotated.
    pub fn nope_head_dim(&self) -> usize {
        self.head_dim - self.qk_rope_head_dim
    }

    /// Inner size of the shared expert.
    pub fn shared_intermediate_size(&self) -> usize {
        self.n_shared_experts * self.moe_intermediate_size
    }

    /// True when layer `l` routes by token id. MTP blocks (`l >= num_hidden_layers`) never do.
    pub fn is_hash_layer(&self, l: usize) -> bool {
        l < self.num_hash_layers
    }
}
