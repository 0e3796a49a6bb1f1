"""The forward pass of spec section 2, once: exact in float32, or with bfloat16 products for training. Weights are a flat
dict under the checkpoint's names, experts stacked ([E, ..]), always holding values that their format holds exactly."""

import math

import torch

import ops


class Geometry:
    """What depends on the batch's shape alone: rotation tables and edge marks. A sequence's length is a multiple of the
    window and of every ratio."""

    def __init__(self, s, batch, length, device):
        self.batch, self.length = batch, length
        pos = torch.arange(length, device=device)
        self.rope = {}
        for compressed in (False, True):
            cos, sin = ops.rope_table(ops.inverse_frequencies(s, compressed, device), pos)
            self.rope[compressed] = (cos.repeat(batch, 1), sin.repeat(batch, 1))
        self.first_chunk = (torch.arange(length // s.window, device=device) == 0).repeat(batch)
        self.windows, self.visible = {}, {}
        for r in {r for r in s.ratios if r}:
            cos, sin = ops.rope_table(ops.inverse_frequencies(s, True, device), pos[::r])
            first = (torch.arange(length // r, device=device) == 0).repeat(batch)
            self.windows[r] = (first, cos.repeat(batch, 1), sin.repeat(batch, 1))
            count = (pos + 1) // r
            self.visible[r] = torch.arange(length // r, device=device)[None] < count[:, None]


def attention_inputs(h, pre, w, rope, window, ratio, s, dt):
    """Everything of the attention half that a token computes alone."""
    x = ops.rms(ops.collapse(h, pre), w["attn_norm.weight"], s.eps)
    qr = ops.rms(ops.mm(x, w["attn.wq_a.weight"], dt), w["attn.q_norm.weight"], s.eps)
    q = ops.mm(qr, w["attn.wq_b.weight"], dt).unflatten(1, (s.heads, s.head_dim))
    q = q * torch.rsqrt(q.square().mean(-1, keepdim=True) + s.eps)
    q = ops.rope(q, *rope)
    kv = ops.rope(ops.rms(ops.mm(x, w["attn.wkv.weight"], dt), w["attn.kv_norm.weight"], s.eps), *rope)
    out = {"q": q, "kv": kv}
    if ratio:
        first, cos, sin = window
        names = ("wkv.weight", "wgate.weight", "ape", "norm.weight")
        main = [w["attn.compressor." + n] for n in names]
        out["entries"] = ops.compress(x, *main, first, cos, sin, ratio == 4, s, dt)
    if ratio == 4:
        # The indexer learns from its own loss alone: it sees detached inputs.
        x, qr = x.detach(), qr.detach()
        index = [w["attn.indexer.compressor." + n] for n in names]
        out["ik"] = ops.compress(x, *index, first, cos, sin, True, s, dt)
        iq = ops.mm(qr, w["attn.indexer.wq_b.weight"], dt).unflatten(1, (s.index_heads, s.index_dim))
        out["iq"] = ops.rope(iq, *rope)
        out["iw"] = ops.mm(x, w["attn.indexer.weights_proj.weight"], dt) * (s.index_dim**-0.5 * s.index_heads**-0.5)
    return out


def attention_outputs(h, o, post, comb, w, rope, s, dt):
    """The streams after the attention half, from the core's o [N, H, hd]."""
    o = ops.rope(o, rope[0], -rope[1])
    y = ops.grouped_output(o, w["attn.wo_a.weight"], w["attn.wo_b.weight"], s.o_groups, dt)
    return ops.spread(h, y, post, comb)


def experts_half(h, pre, post, comb, w, hashed, s, dt):
    """The streams after the expert half; and how often each expert was taken."""
    x = ops.rms(ops.collapse(h, pre), w["ffn_norm.weight"], s.eps)
    weights, taken = ops.route(x, w["ffn.gate.weight"], w.get("ffn.gate.bias"), hashed, s)
    routed = [w[f"ffn.experts.{n}.weight"] for n in ("w1", "w3", "w2")]
    shared = [w[f"ffn.shared_experts.{n}.weight"] for n in ("w1", "w3", "w2")]
    y = ops.experts(x, weights, *routed, *shared, s, dt)
    return ops.spread(h, y, post, comb), taken.sum(0)


def hyper(h, w, half, s):
    """pre, post, comb of one half ("hc_attn" or "hc_ffn")."""
    pre, post, c = ops.hyper_weights(h, w[half + "_fn"], w[half + "_scale"], w[half + "_base"], s)
    return pre, post, ops.balanced(c, s)


def exact_selection(iq, ik, iw, visible, topk, rows=2048):
    """usable [1, S, T]: the top entries of every query, larger score first, then lower index (spec 2.8), in slices of
    queries so that long contexts fit."""
    out = []
    for at in range(0, iq.shape[0], rows):
        see = visible[at : at + rows]
        score = ops.index_scores(iq[at : at + rows], ik, iw[at : at + rows], 1, iq.dtype)[0]
        score = score.masked_fill(~see, float("-inf"))
        order = score.sort(dim=-1, descending=True, stable=True).indices[:, : min(topk, see.shape[1])]
        out.append(torch.zeros_like(see).scatter(1, order, True) & see)
    return torch.cat(out)[None]


def layer_weights(weights, prefix):
    """The weights under a prefix, without it."""
    return {k[len(prefix) :]: v for k, v in weights.items() if k.startswith(prefix)}


def mtp_streams(h, next_embedding, w, s, dt):
    """The MTP block's input streams (spec 2.14)."""
    e = ops.mm(ops.rms(next_embedding, w["enorm.weight"], s.eps), w["e_proj.weight"], dt)
    g = ops.mm(ops.rms(h, w["hnorm.weight"], s.eps), w["h_proj.weight"], dt)
    return e[:, None] + g


def final_logits(h, w, norm, head, s, dt):
    """Logits [N, V] of the streams (spec 2.13)."""
    x = ops.head_mix(h, w["hc_head_fn"], w["hc_head_scale"], w["hc_head_base"], s)
    return ops.mm(ops.rms(x, norm, s.eps), head, dt)


class Exact:
    """One sequence at a time in float32, with optional taps and ablations: the arithmetic that the model card measures."""

    def __init__(self, s, weights, tables):
        self.s, self.weights, self.tables = s, weights, tables

    @torch.no_grad()
    def run(self, ids, want_mtp=False, taps=None, off=()):
        """Logits [S, V] and, on request, MTP logits [S, V] (the last row's next token is the first id). `off` may hold
        "hca", "csa", "window" (only the token itself stays) and "indexer" (the latest entries are taken)."""
        s, dt, n = self.s, torch.float32, ids.shape[0]
        unit = math.lcm(s.window, *(r for r in s.ratios if r))
        padded = torch.cat((ids, ids.new_full((-n % unit,), 2)))
        g = Geometry(s, 1, padded.shape[0], ids.device)
        h = self.weights["embed.weight"][padded][:, None].repeat(1, s.hc, 1)
        for layer in range(s.layers):
            h = self.block(h, f"layers.{layer}.", layer, padded, g, taps, n, off)
        top = {k: self.weights[k] for k in ("hc_head_fn", "hc_head_scale", "hc_head_base")}
        logits = final_logits(h, top, self.weights["norm.weight"], self.weights["head.weight"], s, dt)[:n]
        if not want_mtp:
            return logits, None
        w = layer_weights(self.weights, "mtp.0.")
        following = padded.roll(-1)
        following[n - 1] = ids[0]
        x = mtp_streams(h, self.weights["embed.weight"][following], w, s, dt)
        x = self.block(x, "mtp.0.", s.layers, following, g, None, n, off)
        return logits, final_logits(x, w, w["norm.weight"], self.weights["head.weight"], s, dt)[:n]

    def block(self, h, prefix, layer, ids, g, taps, n, off):
        """One block (spec 2.2)."""
        s, dt = self.s, torch.float32
        ratio = s.ratios[layer]
        w = layer_weights(self.weights, prefix)
        rope = g.rope[ratio > 0]
        pre, post, comb = hyper(h, w, "hc_attn", s)
        a = attention_inputs(h, pre, w, rope, g.windows.get(ratio), ratio, s, dt)
        entries, usable = a.get("entries"), None
        if (ratio == 128 and "hca" in off) or (ratio == 4 and "csa" in off):
            entries = None
        elif ratio == 4:
            if "indexer" in off:
                count = g.visible[4].sum(1, keepdim=True)
                usable = (g.visible[4] & (torch.arange(entries.shape[0], device=h.device) >= count - s.index_topk))[None]
            else:
                usable = exact_selection(a["iq"], a["ik"], a["iw"], g.visible[4], s.index_topk)
        elif ratio:
            usable = g.visible[ratio][None]
        o = self.core(a, w["attn.attn_sink"], g, entries, usable, 1 if "window" in off else s.window)
        hashed = self.tables[prefix + "ffn.gate.tid2eid"][ids] if prefix + "ffn.gate.tid2eid" in self.tables else None
        h = attention_outputs(h, o, post, comb, w, rope, s, dt)
        out, _ = experts_half(h, *hyper(h, w, "hc_ffn", s), w, hashed, s, dt)
        if taps is not None:
            taps[prefix + "out"] = out[:n]
            taps[prefix + "attn.q"], taps[prefix + "attn.kv"] = a["q"][:n], a["kv"][:n]
            taps[prefix + "attn.o"] = o[:n]
            if ratio:
                taps[prefix + "attn.ckv"] = entries[: n // ratio]
            if ratio == 4:
                taps[prefix + "attn.selected"] = usable[0, :n, : n // 4]
        return out

    def core(self, a, sink, g, entries, usable, window, rows=4096):
        """ops.attend in slices of whole windows, the chunk before each slice kept in view."""
        s, full = self.s, self.s.window
        out = []
        rows = max(rows // full, 1) * full
        for at in range(0, a["q"].shape[0], rows):
            back = full if at else 0
            part = slice(at - back, at + rows)
            see = None if usable is None else usable[:, part]
            first = g.first_chunk[(at - back) // full : (at + rows) // full]
            kv, q = a["kv"][part], a["q"][part]
            if window == full:
                o = ops.attend(q, kv, sink, first, full, entries, see, 1, q.dtype)
            else:
                o = ops.attend(q, kv, sink, torch.ones_like(q[:, 0, 0], dtype=torch.bool), 1, entries, see, 1, q.dtype)
            out.append(o[back:])
        return torch.cat(out)
