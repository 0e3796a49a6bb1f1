"""Seeded first weights and routing tables."""

import math

import torch

import quant


def table(s, generator):
    """tid2eid [V, K]: distinct experts for every token id, seeded."""
    return torch.stack([torch.randperm(s.experts, generator=generator)[: s.top_k] for _ in range(s.vocab)])


def weights(s, seed):
    """({name: float32 weight, snapped}, {name: tid2eid}) under the checkpoint's names, experts stacked."""
    g = torch.Generator().manual_seed(seed)
    out, tables = {}, {}

    def normal(*shape, std):
        return torch.randn(*shape, generator=g) * std

    def linear(name, m, k, gain=1.0, stack=()):
        out[name] = normal(*stack, m, k, std=gain / math.sqrt(k))

    def hyper(prefix):
        base = torch.cat((normal(8, std=1.0), (2 * torch.eye(4) + normal(4, 4, std=0.3)).flatten()))
        out[prefix + "_fn"] = normal(24, s.hc * s.hidden, std=0.02)
        out[prefix + "_base"] = base
        out[prefix + "_scale"] = torch.full((3,), 0.5)

    def head(prefix):
        out[prefix + "hc_head_fn"] = normal(s.hc, s.hc * s.hidden, std=0.02)
        out[prefix + "hc_head_base"] = normal(s.hc, std=0.5)
        out[prefix + "hc_head_scale"] = torch.full((1,), 0.5)

    def compressor(prefix, r, columns, dim):
        linear(prefix + "wkv.weight", columns, s.hidden)
        linear(prefix + "wgate.weight", columns, s.hidden)
        out[prefix + "ape"] = torch.zeros(r, columns)
        out[prefix + "norm.weight"] = torch.ones(dim)

    quiet = 1 / math.sqrt(2 * len(s.ratios))
    out["embed.weight"] = normal(s.vocab, s.hidden, std=0.5)
    out["head.weight"] = normal(s.vocab, s.hidden, std=0.02)
    out["norm.weight"] = torch.ones(s.hidden)
    head("")
    for layer, ratio in enumerate(s.ratios):
        p = f"layers.{layer}." if layer < s.layers else f"mtp.{layer - s.layers}."
        hyper(p + "hc_attn")
        hyper(p + "hc_ffn")
        for name, n in (("attn_norm", s.hidden), ("ffn_norm", s.hidden), ("attn.q_norm", s.q_lora), ("attn.kv_norm", s.head_dim)):
            out[p + name + ".weight"] = torch.ones(n)
        a = p + "attn."
        out[a + "attn_sink"] = torch.zeros(s.heads)
        linear(a + "wq_a.weight", s.q_lora, s.hidden)
        linear(a + "wq_b.weight", s.heads * s.head_dim, s.q_lora)
        linear(a + "wkv.weight", s.head_dim, s.hidden)
        linear(a + "wo_a.weight", s.o_groups * s.o_lora, s.heads // s.o_groups * s.head_dim)
        linear(a + "wo_b.weight", s.hidden, s.o_groups * s.o_lora, quiet)
        if ratio == 4:
            compressor(a + "compressor.", 4, 2 * s.head_dim, s.head_dim)
            compressor(a + "indexer.compressor.", 4, 2 * s.index_dim, s.index_dim)
            linear(a + "indexer.wq_b.weight", s.index_heads * s.index_dim, s.q_lora)
            linear(a + "indexer.weights_proj.weight", s.index_heads, s.hidden)
        elif ratio:
            compressor(a + "compressor.", ratio, s.head_dim, s.head_dim)
        f = p + "ffn."
        linear(f + "gate.weight", s.experts, s.hidden)
        if layer < s.hash_layers:
            tables[f + "gate.tid2eid"] = table(s, g)
        else:
            out[f + "gate.bias"] = torch.zeros(s.experts)
        for name, m, k, gain in (("w1", s.inter, s.hidden, 1.0), ("w3", s.inter, s.hidden, 1.0), ("w2", s.hidden, s.inter, quiet)):
            linear(f + f"experts.{name}.weight", m, k, gain, (s.experts,))
            linear(f + f"shared_experts.{name}.weight", m, k, gain)
        if layer >= s.layers:
            linear(p + "e_proj.weight", s.hidden, s.hidden)
            linear(p + "h_proj.weight", s.hidden, s.hidden)
            for name in ("enorm", "hnorm", "norm"):
                out[p + name + ".weight"] = torch.ones(s.hidden)
            head(p)
    return {k: quant.snap(quant.kind(k), w) for k, w in out.items()}, tables
