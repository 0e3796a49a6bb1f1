//! The two shapes that `new_model` makes, and their config.json.

use serde_json::{Value, json};

/// Which shape to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Geometry {
    /// Window 128, ratios 4 and 128 as Flash, 6 layers and an MTP block: for audits of real conversations.
    #[default]
    Default,
    /// Window 16, ratios 4 and 16, top 8 entries: every boundary is crossed within some hundred tokens.
    Mini,
}

/// In which format the routed experts are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Experts {
    /// E2M1 codes with a power-of-two scale for 32 columns, as released.
    #[default]
    Mxfp4,
    /// E2M1 codes with an E4M3 scale for 16 columns and one f32 scale a matrix (w1 and w3 have the same). Of such a
    /// checkpoint golden is these bytes dequantised, not the values that they were made from.
    Nvfp4,
}

impl Experts {
    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mxfp4 => "mxfp4",
            Self::Nvfp4 => "nvfp4",
        }
    }

    /// The format of a word on the command line.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Mxfp4, Self::Nvfp4].into_iter().find(|e| e.name() == name)
    }
}

impl Geometry {
    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Mini => "mini",
        }
    }

    /// The geometry of a word on the command line.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Default, Self::Mini].into_iter().find(|g| g.name() == name)
    }

    pub(super) fn shape(self) -> Shape {
        let flash_like = Shape {
            vocab: 512,
            hidden: 128,
            kinds: vec![Kind::Sliding, Kind::Csa, Kind::Hca, Kind::Csa, Kind::Hca, Kind::Csa],
            mtp: 1,
            hash_layers: 2,
            csa_ratio: 4,
            hca_ratio: 128,
            heads: 4,
            head_dim: 96,
            rope_dim: 32,
            q_lora: 128,
            o_groups: 2,
            o_lora: 64,
            experts: 8,
            experts_per_token: 3,
            moe_inter: 128,
            window: 128,
            index_heads: 16,
            index_dim: 64,
            index_topk: 16,
            hc: 4,
            routed_scale: 1.5,
            swiglu_limit: 2.0,
        };
        match self {
            Self::Default => flash_like,
            Self::Mini => Shape {
                kinds: vec![Kind::Sliding, Kind::Csa, Kind::Hca, Kind::Csa],
                hash_layers: 1,
                hca_ratio: 16,
                window: 16,
                index_dim: 32,
                index_topk: 8,
                ..flash_like
            },
        }
    }
}

/// What a layer keeps besides its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Sliding,
    Csa,
    Hca,
}

/// Every size that the tensor table and config.json need. Names as spec section 1, shortened.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) vocab: usize,
    pub(super) hidden: usize,
    pub(super) kinds: Vec<Kind>,
    pub(super) mtp: usize,
    pub(super) hash_layers: usize,
    pub(super) csa_ratio: usize,
    pub(super) hca_ratio: usize,
    pub(super) heads: usize,
    pub(super) head_dim: usize,
    pub(super) rope_dim: usize,
    pub(super) q_lora: usize,
    pub(super) o_groups: usize,
    pub(super) o_lora: usize,
    pub(super) experts: usize,
    pub(super) experts_per_token: usize,
    pub(super) moe_inter: usize,
    pub(super) window: usize,
    pub(super) index_heads: usize,
    pub(super) index_dim: usize,
    pub(super) index_topk: usize,
    pub(super) hc: usize,
    pub(super) routed_scale: f64,
    pub(super) swiglu_limit: f64,
}

/// config.json in the released spelling. `compress_ratios` names the kinds (0, 4, 128); where the ratios are others,
/// `compress_rates` gives them (spec section 1).
pub(super) fn config_json(s: &Shape) -> Vec<u8> {
    let kind = |k: &Kind| match k {
        Kind::Sliding => 0,
        Kind::Csa => 4,
        Kind::Hca => 128,
    };
    let ratios: Vec<u32> = s.kinds.iter().map(kind).chain(std::iter::repeat_n(0, s.mtp)).collect();
    // In three parts: one macro call cannot hold so many keys.
    let mut config = json!({
        "architectures": ["DeepseekV4ForCausalLM"],
        "model_type": "deepseek_v4",
        "torch_dtype": "bfloat16",
        "vocab_size": s.vocab,
        "hidden_size": s.hidden,
        "moe_intermediate_size": s.moe_inter,
        "num_hidden_layers": s.kinds.len(),
        "num_attention_heads": s.heads,
        "num_key_value_heads": 1,
        "head_dim": s.head_dim,
        "qk_rope_head_dim": s.rope_dim,
        "q_lora_rank": s.q_lora,
        "o_lora_rank": s.o_lora,
        "o_groups": s.o_groups,
        "n_routed_experts": s.experts,
        "n_shared_experts": 1,
        "num_experts_per_tok": s.experts_per_token,
        "num_hash_layers": s.hash_layers,
        "scoring_func": "sqrtsoftplus",
        "topk_method": "noaux_tc",
        "norm_topk_prob": true,
        "routed_scaling_factor": s.routed_scale,
        "swiglu_limit": s.swiglu_limit,
        "compress_ratios": ratios,
    });
    let attention = json!({
        "sliding_window": s.window,
        "compress_rope_theta": 160000,
        "rope_theta": 10000,
        "rope_scaling": {
            "type": "yarn",
            "rope_type": "yarn",
            "factor": 16,
            "beta_fast": 32,
            "beta_slow": 1,
            "original_max_position_embeddings": 65536,
        },
        "max_position_embeddings": 1048576,
        "index_n_heads": s.index_heads,
        "index_head_dim": s.index_dim,
        "index_topk": s.index_topk,
        "hc_mult": s.hc,
        "hc_sinkhorn_iters": 20,
        "hc_eps": 1e-6,
        "rms_norm_eps": 1e-6,
        "num_nextn_predict_layers": s.mtp,
    });
    let rest = json!({
        "hidden_act": "silu",
        "attention_bias": false,
        "attention_dropout": 0.0,
        "tie_word_embeddings": false,
        "bos_token_id": super::BOS,
        "eos_token_id": super::EOS,
        "pad_token_id": super::PAD,
        "initializer_range": 0.02,
        "use_cache": true,
        "expert_dtype": "fp4",
        "quantization_config": {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "scale_fmt": "ue8m0",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
        },
    });
    if let (Value::Object(all), Value::Object(attention), Value::Object(rest)) = (&mut config, attention, rest) {
        all.extend(attention);
        all.extend(rest);
    }
    if (s.csa_ratio, s.hca_ratio) != (4, 128) {
        let rates = json!({ "compressed_sparse_attention": s.csa_ratio, "heavily_compressed_attention": s.hca_ratio });
        insert_after(&mut config, "compress_ratios", "compress_rates", rates);
    }
    let mut text = serde_json::to_string_pretty(&config).unwrap_or_default();
    text.push('\n');
    text.into_bytes()
}

/// Puts a key behind another one, so that the file reads well.
fn insert_after(object: &mut Value, after: &str, key: &str, value: Value) {
    if let Value::Object(map) = object {
        let at = map.keys().position(|k| k == after).map_or(map.len(), |i| i + 1);
        map.shift_insert(at, key.to_owned(), value);
    }
}
