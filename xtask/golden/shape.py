"""Shapes of the golden model, under the field names of config.json (spec section 1)."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Shape:
    """Every size of the forward pass. Ratios: one per layer, then one per MTP block (0, 4 = CSA, 128 = HCA)."""

    vocab: int = 768
    hidden: int = 256
    ratios: tuple = (0, 0, 4, 128, 4, 128, 4, 0)
    mtp: int = 1
    heads: int = 8
    head_dim: int = 96
    rope_dim: int = 32
    q_lora: int = 128
    o_groups: int = 2
    o_lora: int = 128
    window: int = 64
    experts: int = 5
    top_k: int = 2
    inter: int = 128
    hash_layers: int = 3
    route_scale: float = 1.5
    swiglu_limit: float = 2.5
    index_heads: int = 16
    index_dim: int = 64
    index_topk: int = 32
    hc: int = 4
    hc_iters: int = 20
    hc_eps: float = 1e-6
    eps: float = 1e-6
    rope_theta: float = 10000.0
    compress_theta: float = 160000.0
    yarn: dict = field(default_factory=lambda: dict(factor=16, beta_fast=32, beta_slow=1, original=65536))
    max_positions: int = 1048576

    @property
    def layers(self):
        """Number of layers before the MTP block."""
        return len(self.ratios) - self.mtp

    def to_config(self):
        """config.json in the released spelling."""
        return {
            "architectures": ["DeepseekV4ForCausalLM"],
            "model_type": "deepseek_v4",
            "torch_dtype": "bfloat16",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "moe_intermediate_size": self.inter,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": 1,
            "head_dim": self.head_dim,
            "qk_rope_head_dim": self.rope_dim,
            "q_lora_rank": self.q_lora,
            "o_lora_rank": self.o_lora,
            "o_groups": self.o_groups,
            "n_routed_experts": self.experts,
            "n_shared_experts": 1,
            "num_experts_per_tok": self.top_k,
            "num_hash_layers": self.hash_layers,
            "scoring_func": "sqrtsoftplus",
            "topk_method": "noaux_tc",
            "norm_topk_prob": True,
            "routed_scaling_factor": self.route_scale,
            "swiglu_limit": self.swiglu_limit,
            "compress_ratios": list(self.ratios),
            "sliding_window": self.window,
            "compress_rope_theta": int(self.compress_theta),
            "rope_theta": int(self.rope_theta),
            "rope_scaling": {
                "type": "yarn",
                "rope_type": "yarn",
                "factor": self.yarn["factor"],
                "beta_fast": self.yarn["beta_fast"],
                "beta_slow": self.yarn["beta_slow"],
                "original_max_position_embeddings": self.yarn["original"],
            },
            "max_position_embeddings": self.max_positions,
            "index_n_heads": self.index_heads,
            "index_head_dim": self.index_dim,
            "index_topk": self.index_topk,
            "hc_mult": self.hc,
            "hc_sinkhorn_iters": self.hc_iters,
            "hc_eps": self.hc_eps,
            "rms_norm_eps": self.eps,
            "num_nextn_predict_layers": self.mtp,
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "tie_word_embeddings": False,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "pad_token_id": 2,
            "initializer_range": 0.02,
            "use_cache": True,
            "expert_dtype": "fp4",
            "quantization_config": {
                "quant_method": "fp8",
                "fmt": "e4m3",
                "scale_fmt": "ue8m0",
                "activation_scheme": "dynamic",
                "weight_block_size": [128, 128],
            },
        }

    @staticmethod
    def from_config(c):
        """The shape of a config.json in the released spelling."""
        scaling = c["rope_scaling"]
        mtp = c["num_nextn_predict_layers"]
        return Shape(
            vocab=c["vocab_size"],
            hidden=c["hidden_size"],
            ratios=tuple(c["compress_ratios"][: c["num_hidden_layers"] + mtp]),
            mtp=mtp,
            heads=c["num_attention_heads"],
            head_dim=c["head_dim"],
            rope_dim=c["qk_rope_head_dim"],
            q_lora=c["q_lora_rank"],
            o_groups=c["o_groups"],
            o_lora=c["o_lora_rank"],
            window=c["sliding_window"],
            experts=c["n_routed_experts"],
            top_k=c["num_experts_per_tok"],
            inter=c["moe_intermediate_size"],
            hash_layers=c["num_hash_layers"],
            route_scale=c["routed_scaling_factor"],
            swiglu_limit=c["swiglu_limit"],
            index_heads=c["index_n_heads"],
            index_dim=c["index_head_dim"],
            index_topk=c["index_topk"],
            hc=c["hc_mult"],
            hc_iters=c["hc_sinkhorn_iters"],
            hc_eps=c["hc_eps"],
            eps=c["rms_norm_eps"],
            rope_theta=float(c["rope_theta"]),
            compress_theta=float(c["compress_rope_theta"]),
            yarn=dict(
                factor=scaling["factor"],
                beta_fast=scaling["beta_fast"],
                beta_slow=scaling["beta_slow"],
                original=scaling["original_max_position_embeddings"],
            ),
            max_positions=c["max_position_embeddings"],
        )
