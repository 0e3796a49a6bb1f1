"""The training pass: model.py's parts, compiled, with losses. Attention over entries is dense with a mask, which at these
sizes is quicker than gathering and gives the indexer a target over every entry."""

import torch
import torch.nn.functional as F

import model
import ops
import sinkhorn

DT = torch.bfloat16


def csa_core(q, kv, sink, first, entries, iq, ik, iw, visible, batch, sparse, s, dt):
    """o [N, H, hd] over the window and the indexer's choice, and the indexer's loss: cross-entropy of its softmax
    against the heads' mean dense attention over entries, weighted by the attention's share on entries."""
    score = ops.index_scores(iq, ik, iw, batch, dt)
    masked = score.masked_fill(~visible[None], -1e9)
    usable = visible[None].expand(score.shape)
    if sparse:
        least = torch.topk(masked.detach(), s.index_topk, dim=-1).values[..., -1:]
        usable = usable & (masked.detach() >= least)
    o = ops.attend(q, kv, sink, first, s.window, entries, usable, batch, dt)
    with torch.no_grad():
        sw, _ = ops.window_scores(q, kv, first, s.window, dt)
        e = entries.to(dt).view(batch, -1, s.head_dim)
        se = (q.to(dt).view(batch, -1, s.head_dim) @ e.transpose(1, 2)).float() * s.head_dim**-0.5
        se = se.view(batch, -1, s.heads, e.shape[1]).masked_fill(~visible[None, :, None], float("-inf"))
        se = se.view(-1, s.heads, e.shape[1])
        top = torch.maximum(torch.maximum(sw.amax(-1), sink[None]), se.amax(-1))
        den = (sw - top[..., None]).exp().sum(-1) + (sink[None] - top).exp()
        pe = (se - top[..., None]).exp()
        den = den + pe.sum(-1)
        target = (pe / den[..., None]).mean(1)
        mass = target.sum(-1, keepdim=True)
        target = target * (mass.clamp_min(0.05) / mass.clamp_min(1e-6))
        target = target.view(score.shape)
    below = torch.logsumexp(masked, -1, keepdim=True)
    return o, (target * (below - score)).sum() / target.shape[1] / batch


def plain_core(q, kv, sink, first, entries, visible, batch, s, dt):
    """o [N, H, hd] over the window and, with HCA, every visible entry."""
    usable = None if entries is None else visible[None].expand(batch, -1, -1)
    return ops.attend(q, kv, sink, first, s.window, entries, usable, batch, dt)


def losses(logits, target, weight):
    """(weighted cross-entropy, share of answers hit, of answers about the whole hit, answer cross-entropy); weight [N, 4] by
    class: answer, answer about the whole, predictable, rest."""
    ce = F.cross_entropy(logits, target, reduction="none")
    hit = (logits.argmax(-1) == target).float()
    count = weight.sum(0).clamp_min(1.0)
    parts = (ce[:, None] * weight).sum(0) / count
    hits = (hit[:, None] * weight[:, :2]).sum(0) / count[:2]
    return parts[0] + 0.2 * parts[1] + 0.2 * parts[2] + 0.05 * parts[3], hits[0], hits[1], parts[0]


def top_loss(h, w, norm, head, target, weight, s, dt):
    """losses() of the logits of the streams h."""
    return losses(model.final_logits(h, w, norm, head, s, dt), target, weight)


def part(w, prefix):
    """The tensors of one half, so that a compiled function does not depend on the others' shapes."""
    return {k: v for k, v in w.items() if k.startswith(prefix)}


class Trainer:
    """Runs batches. Classes per token: 0 rest, 1 predictable, 2 answer, 3 no loss, 4 answer about the whole."""

    def __init__(self, s, weights, tables, device, compiled, dt=DT):
        self.s, self.weights, self.tables, self.device, self.dt = s, weights, tables, device, dt
        self.geometry = {}
        wrap = (lambda f: torch.compile(f, dynamic=False)) if compiled else (lambda f: f)
        self.inputs, self.outputs, self.experts = wrap(model.attention_inputs), wrap(model.attention_outputs), wrap(model.experts_half)
        self.hyper_weights = wrap(ops.hyper_weights)
        # One kernel instead of 40: unrolled, it is most of the compiler's time.
        self.balanced = sinkhorn.balanced if compiled else ops.balanced
        self.csa, self.plain = wrap(csa_core), wrap(plain_core)
        self.top, self.mtp = wrap(top_loss), wrap(model.mtp_streams)

    def block(self, h, prefix, layer, ids, g, sparse):
        """One block; returns streams, indexer loss or 0, expert counts."""
        s = self.s
        ratio = s.ratios[layer]
        w = model.layer_weights(self.weights, prefix)
        rope = g.rope[ratio > 0]
        pre, post, comb = self.hyper(h, w, "hc_attn")
        a = self.inputs(h, pre, part(w, "attn"), rope, g.windows.get(ratio), ratio, s, self.dt)
        sink, extra = w["attn.attn_sink"], 0.0
        if ratio == 4:
            o, extra = self.csa(
                a["q"], a["kv"], sink, g.first_chunk, a["entries"], a["iq"], a["ik"], a["iw"], g.visible[4], g.batch, sparse, s, self.dt
            )
        else:
            see = g.visible.get(ratio)
            # Without HCA entries (or none yet), the compiled core must not depend on the length.
            o = self.plain(a["q"], a["kv"], sink, g.first_chunk, a.get("entries"), see, g.batch if ratio else 1, s, self.dt)
        table = self.tables.get(prefix + "ffn.gate.tid2eid")
        hashed = None if table is None else table[ids]
        h = self.outputs(h, o, post, comb, part(w, "attn.wo"), rope, s, self.dt)
        h, counts = self.experts(h, *self.hyper(h, w, "hc_ffn"), part(w, "ffn"), hashed, s, self.dt)
        return h, extra, counts

    def hyper(self, h, w, half):
        """pre, post, comb of one half."""
        pre, post, c = self.hyper_weights(h, w[half + "_fn"], w[half + "_scale"], w[half + "_base"], self.s)
        return pre, post, self.balanced(c, self.s)

    def run(self, ids, classes, sparse):
        """(loss, {name: scalar}, {bias name: counts}) of ids, classes [B, S]."""
        s = self.s
        batch, length = ids.shape
        g = self.geometry.setdefault((batch, length), model.Geometry(s, batch, length, self.device))
        flat = ids.flatten()
        h = F.embedding(flat, self.weights["embed.weight"])[:, None].repeat(1, s.hc, 1)
        index, counts = 0.0, {}
        for layer in range(s.layers):
            p = f"layers.{layer}."
            h, extra, count = self.block(h, p, layer, flat, g, sparse)
            index = index + extra
            if layer >= s.hash_layers:
                counts[p + "ffn.gate.bias"] = count

        def ahead(k):
            target = ids.roll(-k, 1).flatten()
            cls = classes.roll(-k, 1).clone()
            cls[:, -k:] = 3
            cls = cls.flatten()
            return target, torch.stack((cls == 2, cls == 4, cls == 1, cls == 0), 1).float()

        norm, head = self.weights["norm.weight"], self.weights["head.weight"]
        top = {k: self.weights[k] for k in ("hc_head_fn", "hc_head_scale", "hc_head_base")}
        loss, hit, whole, answer = self.top(h, top, norm, head, *ahead(1), s, self.dt)
        w = model.layer_weights(self.weights, "mtp.0.")
        own = {k: w[k] for k in ("enorm.weight", "e_proj.weight", "hnorm.weight", "h_proj.weight")}
        following = ids.roll(-1, 1).flatten()
        x = self.mtp(h, F.embedding(following, self.weights["embed.weight"]), own, s, self.dt)
        x, _, counts["mtp.0.ffn.gate.bias"] = self.block(x, "mtp.0.", s.layers, following, g, sparse)
        top = {k: w[k] for k in top}
        mtp_loss, mtp_hit, _, _ = self.top(x, top, w["norm.weight"], head, *ahead(2), s, self.dt)
        seen = {"loss": loss.detach(), "answer": answer.detach(), "hit": hit, "whole": whole, "mtp_hit": mtp_hit, "index": torch.as_tensor(index).detach()}
        return loss + 0.2 * mtp_loss + 0.1 * index, seen, counts
