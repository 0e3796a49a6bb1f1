"""The mini model that peers and golden are timed on: transformers' DeepseekV4ForCausalLM in float32 on the CPU, random weights.

Weights and tokens are drawn with numpy's PCG64 in the order of sorted names, independently of torch's generator, so every
machine has the same ones. `python mini.py DIR` writes the checkpoint (transformers' names, float32).
"""

import json
import os
import sys

import numpy as np
import torch
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

VOCAB = 1024
LONGEST = 8192


def settings():
    """Arguments of DeepseekV4Config: 12 layers (0, 0, then CSA 4 and HCA 16 in turn), hidden 256, 16 experts."""
    ratios = [0, 0] + [4 if i % 2 == 0 else 128 for i in range(10)]
    yarn = {"rope_type": "yarn", "factor": 16.0, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 4096}
    return dict(
        vocab_size=VOCAB, hidden_size=256, moe_intermediate_size=128, num_hidden_layers=12, num_attention_heads=8,
        num_key_value_heads=1, head_dim=64, q_lora_rank=128, qk_rope_head_dim=16, num_experts_per_tok=2,
        n_routed_experts=16, n_shared_experts=1, scoring_func="sqrtsoftplus", routed_scaling_factor=1.5,
        max_position_embeddings=65536, rope_theta=10000.0, compress_rope_theta=160000.0, compress_ratios=ratios,
        compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 16}, hc_mult=4,
        hc_sinkhorn_iters=20, hc_eps=1e-6, num_hash_layers=3, swiglu_limit=10.0, sliding_window=64, o_groups=2,
        o_lora_rank=64, index_n_heads=4, index_head_dim=32, index_topk=32, rms_norm_eps=1e-6,
        num_nextn_predict_layers=0, rope_parameters=yarn,
    )


def scale(name, shape):
    """Standard deviation of a tensor's values; None for one that is constant."""
    if name.endswith("e_score_correction_bias"):
        return 0.02
    if name.endswith(("sinks", "position_bias", "_hc.base", "hc_base")):
        return 0.5
    if name.endswith(("_hc.scale", "hc_scale")):
        return None
    if "embed_tokens" in name:
        return 1.0
    return 1.0 / shape[-1] ** 0.5


def build(seed=20261129):
    """The model with its weights."""
    config = DeepseekV4Config(**settings())
    config._attn_implementation = "eager"
    model = DeepseekV4ForCausalLM(config).float().eval()
    draw = np.random.Generator(np.random.PCG64(seed))
    tensors = dict(model.named_parameters())
    tensors.update({n: b for n, b in model.named_buffers() if "inv_freq" not in n})
    with torch.no_grad():
        for name in sorted(tensors):
            t = tensors[name]
            shape = tuple(t.shape)
            if name.endswith("tid2eid"):
                rows = [draw.permutation(config.n_routed_experts)[: config.num_experts_per_tok] for _ in range(shape[0])]
                t.copy_(torch.from_numpy(np.stack(rows)))
                continue
            values = draw.standard_normal(shape, dtype=np.float32)
            factor = scale(name, shape)
            if factor is None:
                values = np.full(shape, 0.5, np.float32)
            elif "norm" in name and len(shape) == 1:
                values = 1.0 + 0.1 * values
            else:
                values = values * factor
            t.copy_(torch.from_numpy(values.astype(np.float32)))
    return model


def tokens(n, seed=7):
    """The first n ids of the prompt."""
    return np.random.Generator(np.random.PCG64(seed)).integers(2, VOCAB, size=LONGEST, dtype=np.int64)[:n]


def save(folder):
    """Writes config.json, model.safetensors and prompt.json."""
    from safetensors.torch import save_file

    model = build()
    os.makedirs(folder, exist_ok=True)
    state = {n: p.detach().contiguous() for n, p in model.state_dict().items() if "inv_freq" not in n}
    save_file(state, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(model.config.to_dict(), f, indent=1, default=str)
    with open(os.path.join(folder, "prompt.json"), "w") as f:
        json.dump(tokens(LONGEST).tolist(), f)


if __name__ == "__main__":
    save(sys.argv[1])
