#!/usr/bin/env python3
"""Logits of transformers' DeepseekV4ForCausalLM on golden/, as a fixture for tests/it/golden_transformers.rs.

    python3 xtask/oracle/transformers_golden.py [golden] [tests/fixtures/golden]

Needs torch 2.15 and transformers 5.24 (CPU is enough). The checkpoint's tensors are dequantised exactly to float32 (the
packers' own table, xtask/golden/quant.py), renamed to transformers' names (spec section 4) and loaded strictly: each
tensor of either side must be used exactly once, mtp.* apart, which transformers has no block for. The ids are those of
torch.safetensors, so all three implementations run the same conversation.

What has to be set so that transformers computes this model and no other (spec sections 1 and 8):
- layer_types and compress_rates, from compress_ratios: its default schedule is another model's (D16);
- mlp_layer_types, from num_hash_layers: the default of three is applied silently;
- rope_parameters with both bases, YaRN on compressed layers only and attention_factor 1.0 (no mscale);
- float32 and the eager attention: with bf16 it rounds mixing weights, cosines, attention logits, compressor and router
  (D1, D2, D5, D6, D8, D11, D13); in float32 these are no differences;
- no cache, so that it is one cold pass; it neither rotates nor quantises the indexer's operands (D7) nor quantises keys
  and values (D3, D4, D14), which is what golden mode is.
"""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "golden"))

import torch
import transformers
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

import checkpoint
from trim import read_gz, write

CSA, HCA = "compressed_sparse_attention", "heavily_compressed_attention"
KINDS = {0: "sliding_attention", 4: CSA, 128: HCA}

# What stands in a name of the checkpoint, and what transformers writes instead; in this order.
LAYER = (
    ("attn.indexer.weights_proj.", "self_attn.compressor.indexer.scorer.weights_proj."),
    ("attn.indexer.wq_b.", "self_attn.compressor.indexer.q_b_proj."),
    ("attn.indexer.compressor.", "self_attn.compressor.indexer."),
    ("attn_norm.", "input_layernorm."),
    ("ffn_norm.", "post_attention_layernorm."),
    ("hc_attn_", "attn_hc."),
    ("hc_ffn_", "ffn_hc."),
    ("attn.attn_sink", "attn.sinks"),
    ("attn.wq_a.", "attn.q_a_proj."),
    ("attn.q_norm.", "attn.q_a_norm."),
    ("attn.wq_b.", "attn.q_b_proj."),
    ("attn.wkv.", "attn.kv_proj."),
    ("attn.wo_a.", "attn.o_a_proj."),
    ("attn.wo_b.", "attn.o_b_proj."),
    ("ffn.gate.bias", "ffn.gate.e_score_correction_bias"),
    ("shared_experts.w1.", "shared_experts.gate_proj."),
    ("shared_experts.w3.", "shared_experts.up_proj."),
    ("shared_experts.w2.", "shared_experts.down_proj."),
    (".attn.", ".self_attn."),
    (".ffn.", ".mlp."),
)
COMPRESSOR = ((".ape", ".position_bias"), (".wkv.", ".kv_proj."), (".wgate.", ".gate_proj."), (".norm.", ".kv_norm."))
TOP = {
    "embed.weight": "model.embed_tokens.weight",
    "head.weight": "lm_head.weight",
    "norm.weight": "model.norm.weight",
    "hc_head_fn": "model.hc_head.hc_fn",
    "hc_head_base": "model.hc_head.hc_base",
    "hc_head_scale": "model.hc_head.hc_scale",
}


def config(c):
    """transformers' config of a released config.json."""
    layers = c["num_hidden_layers"]
    kinds = [KINDS[r] for r in c["compress_ratios"][:layers]]
    rope = c["qk_rope_head_dim"] / c["head_dim"]
    yarn = {k: c["rope_scaling"][k] for k in ("rope_type", "factor", "beta_fast", "beta_slow", "original_max_position_embeddings")}
    main = {"rope_type": "default", "rope_theta": c["rope_theta"], "partial_rotary_factor": rope}
    compress = {**yarn, "rope_theta": c["compress_rope_theta"], "partial_rotary_factor": rope, "attention_factor": 1.0}
    same = (
        "vocab_size hidden_size moe_intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim "
        "q_lora_rank o_lora_rank o_groups n_routed_experts n_shared_experts num_experts_per_tok scoring_func norm_topk_prob "
        "routed_scaling_factor swiglu_limit sliding_window max_position_embeddings index_n_heads index_head_dim index_topk "
        "hc_mult hc_sinkhorn_iters hc_eps rms_norm_eps hidden_act attention_bias attention_dropout tie_word_embeddings "
        "bos_token_id eos_token_id pad_token_id"
    )
    hashed = c["num_hash_layers"]
    made = DeepseekV4Config(
        **{k: c[k] for k in same.split()},
        layer_types=kinds,
        mlp_layer_types=["hash_moe"] * hashed + ["moe"] * (layers - hashed),
        compress_rates={CSA: 4, HCA: 128},
        rope_parameters={"main": main, "compress": compress},
        num_nextn_predict_layers=0,
    )
    made._attn_implementation = "eager"
    return made


def renamed(name):
    """transformers' name of a tensor that isn't a routed expert's."""
    if name in TOP:
        return TOP[name]
    for old, new in LAYER:
        name = name.replace(old, new)
    if ".compressor." in name:
        for old, new in COMPRESSOR:
            name = name.replace(old, new)
    return "model." + name


def state(path, experts):
    """transformers' state dict, float32."""
    weights, _ = checkpoint.load(path, experts)
    out = {}
    for name, w in weights.items():
        if name.startswith("mtp."):
            continue
        head, _, one = name.partition(".ffn.experts.")
        if not one:
            out[renamed(name)] = w
        elif one == "w1.weight":
            # Rows of w1 (gate), then of w3 (up).
            out[f"model.{head}.mlp.experts.gate_up_proj"] = torch.cat((w, weights[name.replace("w1", "w3")]), 1)
        elif one == "w2.weight":
            out[f"model.{head}.mlp.experts.down_proj"] = w
    for name, (_, t) in checkpoint.read_raw(path).items():
        if name.endswith("tid2eid") and not name.startswith("mtp."):
            out[renamed(name)] = t
    return out


def sampled(n):
    """Rows to keep whole: the start, both sides of each multiple of 64 (window, HCA and page edges are among them), the end."""
    near = {e + d for e in range(0, n + 1, 64) for d in (-2, -1, 0, 1, 2)} | set(range(6)) | {n - 3, n - 2, n - 1}
    return sorted(r for r in near if 0 <= r < n)


def main(model="golden", out="tests/fixtures/golden"):
    model, out = Path(model), Path(out)
    c = json.loads((model / "config.json").read_text())
    torch.set_num_threads(2)
    net = DeepseekV4ForCausalLM(config(c)).float().eval()
    # Buffers that the rotary module computes are not part of a checkpoint.
    missing, unexpected = net.load_state_dict(state(model / "model.safetensors", c["n_routed_experts"]), strict=False)
    missing = [m for m in missing if not m.endswith("inv_freq")]
    assert not missing and not unexpected, (missing, unexpected)
    _, tensors = read_gz(out / "torch.safetensors.gz")
    ids = torch.frombuffer(bytearray(tensors["ids"][2]), dtype=torch.int64)
    with torch.inference_mode():
        logits = net(ids[None], use_cache=False).logits[0].float()
    top = logits.topk(2, -1)
    rows = torch.tensor(sampled(len(ids)))
    kept = {
        "ids": ids,
        "rows": rows,
        "logits": logits[rows],
        "best": top.indices[:, 0],
        "margin": top.values[:, 0] - top.values[:, 1],
        "logsumexp": logits.double().logsumexp(-1).float(),
    }
    words = {torch.int64: "I64", torch.float32: "F32"}
    meta = {"torch": torch.__version__, "transformers": transformers.__version__, "max": str(logits.abs().max().item())}
    write(out / "transformers.safetensors", meta, {k: (words[t.dtype], list(t.shape), t.contiguous().numpy().tobytes()) for k, t in kept.items()})
    print(json.dumps({**meta, "ids": len(ids), "rows": len(rows)}))


if __name__ == "__main__":
    main(*sys.argv[1:3])
