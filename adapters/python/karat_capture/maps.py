"""Which module's output is which tap: (pattern of the module's name, part of a tuple or None, tap, how the rows lie).

A pattern is a regular expression of the whole name; `{0}` in a tap is its first group, the layer's number. `how` is one of
  rows      [B,S,...] or [S,...]: axis 0 becomes the position
  flat      the same, everything after the position in one axis
"""

import torch

_L = r"model\.layers\.(\d+)"

# transformers' DeepseekV4ForCausalLM (5.24).
TRANSFORMERS = (
    (r"model\.embed_tokens", None, "embed", "rows"),
    (_L + r"\.attn_hc", 0, "layers.{0}.hc_attn.post", "rows"),
    (_L + r"\.attn_hc", 1, "layers.{0}.hc_attn.comb", "rows"),
    (_L + r"\.attn_hc", 2, "layers.{0}.hc_attn.collapsed", "rows"),
    (_L + r"\.input_layernorm", None, "layers.{0}.attn.in", "rows"),
    (_L + r"\.self_attn\.q_a_norm", None, "layers.{0}.attn.qr", "rows"),
    (_L + r"\.self_attn\.compressor\.kv_proj", None, "layers.{0}.attn.kvp", "rows"),
    (_L + r"\.self_attn\.compressor\.gate_proj", None, "layers.{0}.attn.gate_score", "rows"),
    (_L + r"\.self_attn\.compressor\.indexer\.kv_proj", None, "layers.{0}.attn.index_kvp", "rows"),
    (_L + r"\.self_attn\.compressor\.indexer\.gate_proj", None, "layers.{0}.attn.index_gate_score", "rows"),
    (_L + r"\.self_attn\.o_a_proj", None, "layers.{0}.attn.oa", "flat"),
    (_L + r"\.self_attn", 0, "layers.{0}.attn.out", "rows"),
    (_L + r"\.ffn_hc", 0, "layers.{0}.hc_ffn.post", "rows"),
    (_L + r"\.ffn_hc", 1, "layers.{0}.hc_ffn.comb", "rows"),
    (_L + r"\.ffn_hc", 2, "layers.{0}.hc_ffn.collapsed", "rows"),
    (_L + r"\.post_attention_layernorm", None, "layers.{0}.ffn.in", "rows"),
    (_L + r"\.mlp\.gate", 0, "layers.{0}.ffn.router_logits", "rows"),
    (_L + r"\.mlp\.gate", 1, "layers.{0}.ffn.wt", "rows"),
    (_L + r"\.mlp\.gate", 2, "layers.{0}.ffn.idx", "rows"),
    (_L + r"\.mlp\.experts", None, "layers.{0}.ffn.routed", "rows"),
    (_L + r"\.mlp\.shared_experts", None, "layers.{0}.ffn.shared", "rows"),
    (_L + r"\.mlp", None, "layers.{0}.ffn.out", "rows"),
    (_L, None, "layers.{0}.out", "rows"),
    (r"model\.hc_head", None, "head.collapsed", "rows"),
    (r"lm_head", None, "logits", "rows"),
)


_D = r"layers\.(\d+)"

# The Transformer of DeepSeek's bundled inference/model.py, whose modules have the names of the checkpoint's tensors. Not run here:
# names that don't fit are in Capture.unmatched.
DEEPSEEK = (
    (r"embed", None, "embed", "rows"),
    (_D + r"\.attn_norm", None, "layers.{0}.attn.in", "rows"),
    (_D + r"\.attn\.q_norm", None, "layers.{0}.attn.qr", "rows"),
    (_D + r"\.attn\.compressor\.wkv", None, "layers.{0}.attn.kvp", "rows"),
    (_D + r"\.attn\.compressor\.wgate", None, "layers.{0}.attn.gate_score", "rows"),
    (_D + r"\.attn\.indexer\.compressor\.wkv", None, "layers.{0}.attn.index_kvp", "rows"),
    (_D + r"\.attn\.indexer\.compressor\.wgate", None, "layers.{0}.attn.index_gate_score", "rows"),
    (_D + r"\.attn", None, "layers.{0}.attn.out", "rows"),
    (_D + r"\.ffn_norm", None, "layers.{0}.ffn.in", "rows"),
    (_D + r"\.ffn\.shared_experts", None, "layers.{0}.ffn.shared", "rows"),
    (_D + r"\.ffn", None, "layers.{0}.ffn.out", "rows"),
    (_D, None, "layers.{0}.out", "rows"),
)


class TransformersPages:
    """KV pages out of transformers' DeepseekV4 caches, for Capture(pages=...): window rows as far as any step had them, entries,
    index keys. `cache_of(sequence)` gives the cache that the sequence's steps use; call it after each step, from the first on."""

    def __init__(self, cache_of):
        self.cache_of, self.rows = cache_of, {}

    def __call__(self, sequence):
        taps = {}
        for number, layer in enumerate(self.cache_of(sequence).layers):
            keys, end = layer.keys[0, 0], layer.get_seq_length()
            rows = self.rows.setdefault((sequence, number), {})
            rows.update((end - len(keys) + i, row.clone()) for i, row in enumerate(keys))
            held = sorted(rows)
            taps[f"layers.{number}.win"] = torch.stack([rows[p] for p in held])
            taps[f"layers.{number}.win_pos"] = torch.tensor(held, dtype=torch.int64)
            for name, tap in (("compressor", "ckv"), ("indexer", "index_k")):
                entries = getattr(layer, "compressed_kv", {}).get(name)
                if entries is not None:
                    taps[f"layers.{number}.{tap}"] = entries[0]
        return taps
