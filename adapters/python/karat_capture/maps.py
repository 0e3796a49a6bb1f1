"""Which module's output is which tap: (pattern of the module's name, part of a tuple or None, tap, how the rows lie).

A pattern is a regular expression of the whole name; `{0}` in a tap is its first group, the layer's number. `how` is one of
  rows      [B,S,...] or [S,...]: axis 0 becomes the position
  flat      the same, everything after the position in one axis
"""

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
