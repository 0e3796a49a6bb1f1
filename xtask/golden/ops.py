"""The operations of spec section 2 on flattened tokens [N, ...]. `dt` is the dtype of the matrix products:
float32 for the exact pass, bfloat16 while training; everything else is float32."""

import math

import torch
import torch.nn.functional as F


def mm(x, w, dt):
    """Linear without bias: x [.., K], w [M, K]; float32 out."""
    return (x.to(dt) @ w.to(dt).t()).float()


def rms(x, w, eps):
    """RMSNorm (spec 2.4)."""
    x = x.float()
    return w * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps))


def inverse_frequencies(s, compressed, device):
    """RoPE frequencies [rope/2], every step rounded to float32 (spec 2.6)."""
    rd = s.rope_dim
    base = s.compress_theta if compressed else s.rope_theta
    e = torch.arange(0, rd, 2, dtype=torch.float32) / rd
    p = torch.tensor([base**x for x in e.double().tolist()], dtype=torch.float64).float()
    inv = 1.0 / p
    if compressed:
        y = s.yarn

        def dim(turns):
            return rd * math.log(y["original"] / (2 * math.pi * turns)) / (2 * math.log(base))

        low = max(math.floor(dim(y["beta_fast"])), 0)
        high = min(math.ceil(dim(y["beta_slow"])), rd - 1)
        span = high - low if high != low else 0.001
        ramp = ((torch.arange(rd // 2, dtype=torch.float32) - low) / span).clamp(0, 1)
        keep = 1.0 - ramp
        inv = inv / y["factor"] * (1.0 - keep) + inv * keep
    return inv.to(device)


def rope_table(inv, positions):
    """cos, sin [n, rope/2] with float32 angles."""
    angle = positions.float()[:, None] * inv[None, :]
    return angle.cos(), angle.sin()


def rope(x, cos, sin):
    """Rotates the interleaved pairs of the last 2*cos.shape[-1] channels of x [N, .., hd]."""
    rd = 2 * cos.shape[-1]
    rest, turned = x[..., :-rd], x[..., -rd:]
    pair = turned.unflatten(-1, (rd // 2, 2))
    even, odd = pair[..., 0], pair[..., 1]
    if x.dim() == 3:
        cos, sin = cos[:, None], sin[:, None]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
    return torch.cat((rest, turned), -1)


def hyper_weights(h, fn, scale, base, s):
    """pre [N, 4], post [N, 4] and the comb matrix [N, 4, 4] before it is balanced, of the streams h [N, 4, D] (spec 2.3)."""
    n = s.hc
    f = h.flatten(1)
    r = torch.rsqrt(f.square().mean(-1, keepdim=True) + s.eps)
    m = (f @ fn.t()) * r
    pre = torch.sigmoid(m[:, :n] * scale[0] + base[:n]) + s.hc_eps
    post = 2 * torch.sigmoid(m[:, n : 2 * n] * scale[1] + base[n : 2 * n])
    c = (m[:, 2 * n :] * scale[2] + base[2 * n :]).unflatten(1, (n, n))
    return pre, post, c.softmax(-1) + s.hc_eps


def balanced(c, s):
    """Sinkhorn: columns, then rows and columns in turn (spec 2.3)."""
    c = c / (c.sum(1, keepdim=True) + s.hc_eps)
    for _ in range(s.hc_iters - 1):
        c = c / (c.sum(2, keepdim=True) + s.hc_eps)
        c = c / (c.sum(1, keepdim=True) + s.hc_eps)
    return c


def collapse(h, pre):
    """x [N, D] = sum_j pre_j h_j."""
    return (pre[:, :, None] * h).sum(1)


def spread(h, y, post, comb):
    """h'_k = post_k y + sum_j comb_jk h_j (spec 2.2)."""
    mixed = (comb[:, :, :, None] * h[:, :, None, :]).sum(1)
    return post[:, :, None] * y[:, None, :] + mixed


def head_mix(h, fn, scale, base, s):
    """The streams' weighted sum before the last norm (spec 2.13)."""
    f = h.flatten(1)
    r = torch.rsqrt(f.square().mean(-1, keepdim=True) + s.eps)
    pre = torch.sigmoid((f @ fn.t()) * r * scale[0] + base) + s.hc_eps
    return collapse(h, pre)


def compress(x, wkv, wgate, ape, norm, first, cos, sin, overlap, s, dt):
    """Entries [N/r, hd] of the normed input x [N, D] (spec 2.7). `first` [N/r] marks a sequence's window 0; cos and sin
    belong to the first token of each window. Sequences are multiples of r long."""
    r = ape.shape[0]
    kv = mm(x, wkv, dt).unflatten(0, (-1, r))
    z = mm(x, wgate, dt).unflatten(0, (-1, r)) + ape
    if overlap:
        hd = ape.shape[1] // 2
        before_kv = kv[..., :hd].roll(1, 0)
        before_z = z[..., :hd].roll(1, 0).masked_fill(first[:, None, None], float("-inf"))
        before_kv = before_kv.masked_fill(first[:, None, None], 0.0)
        kv = torch.cat((before_kv, kv[..., hd:]), 1)
        z = torch.cat((before_z, z[..., hd:]), 1)
    entry = (z.softmax(1) * kv).sum(1)
    return rope(rms(entry, norm, s.eps), cos, sin)


def index_scores(iq, ik, iw, batch, dt):
    """score [B, S, T] = sum_h relu(iq_h . ik) iw_h (spec 2.8), unmasked. iq [N, Hi, di], ik [B*T, di], iw [N, Hi]."""
    heads, dim = iq.shape[1:]
    q = iq.to(dt).view(batch, -1, dim)
    dots = q @ ik.to(dt).view(batch, -1, dim).transpose(1, 2)
    dots = dots.view(batch, -1, heads, dots.shape[-1])
    return (F.relu(dots.float()) * iw.view(batch, -1, heads, 1)).sum(2)


def window_scores(q, kv, first, win, dt):
    """Scores [N, H, 2*win] against this chunk of `win` tokens and the one before, masked; and those keys [C, 2win, hd].
    `first` [C] marks a sequence's chunk 0."""
    heads, hd = q.shape[1:]
    keys = kv.to(dt).view(-1, win, hd)
    keys = torch.cat((keys.roll(1, 0), keys), 1)
    scores = (q.to(dt).view(-1, win * heads, hd) @ keys.transpose(1, 2)).float() * hd**-0.5
    i = torch.arange(win, device=q.device)[:, None]
    j = torch.arange(2 * win, device=q.device)[None, :]
    behind = i + win - j
    ok = (behind >= 0) & (behind < win)
    ok = ok[None] & ~(first[:, None, None] & (j < win)[None])
    scores = scores.view(-1, win, heads, 2 * win).masked_fill(~ok[:, :, None], float("-inf"))
    return scores.view(-1, heads, 2 * win), keys


def attend(q, kv, sink, first, win, entries, usable, batch, dt):
    """Attention output [N, H, hd] before the inverse rotation (spec 2.9): window, entries [B*T, hd] where `usable`
    [B, S, T], and the sink, in one softmax."""
    heads, hd = q.shape[1:]
    sw, keys = window_scores(q, kv, first, win, dt)
    top = torch.maximum(sw.amax(-1), sink[None])
    if entries is not None:
        e = entries.to(dt).view(batch, -1, hd)
        se = (q.to(dt).view(batch, -1, hd) @ e.transpose(1, 2)).float() * hd**-0.5
        se = se.view(batch, -1, heads, e.shape[1]).masked_fill(~usable[:, :, None], float("-inf"))
        se = se.view(-1, heads, e.shape[1])
        top = torch.maximum(top, se.amax(-1))
    top = top.detach()
    pw = (sw - top[..., None]).exp()
    den = pw.sum(-1) + (sink[None] - top).exp()
    out = (pw.to(dt).view(-1, win * heads, 2 * win) @ keys).float().view(-1, heads, hd)
    if entries is not None:
        pe = (se - top[..., None]).exp()
        den = den + pe.sum(-1)
        out = out + (pe.to(dt).view(batch, -1, e.shape[1]) @ e).float().view(-1, heads, hd)
    return out / den[..., None]


def grouped_output(o, wo_a, wo_b, groups, dt):
    """y [N, D] from the heads o [N, H, hd] (spec 2.10)."""
    o = o.to(dt).reshape(o.shape[0], groups, -1)
    w = wo_a.to(dt).view(groups, -1, o.shape[-1])
    z = torch.einsum("ngk,gmk->ngm", o, w).flatten(1)
    return mm(z, wo_b, dt)


def route(x, gate, bias, hashed, s):
    """Weights [N, E] over the experts, zero for those not taken (spec 2.11). `hashed` [N, E] is the table's choice on
    hash layers; elsewhere the top of s + bias, ties to the lower index."""
    score = F.softplus(x.float() @ gate.t()).sqrt()
    if hashed is None:
        order = (score + bias).detach()
        mine, other = order[:, :, None], order[:, None, :]
        index = torch.arange(s.experts, device=x.device)
        lower = index[None, None, :] < index[None, :, None]
        rank = ((other > mine) | ((other == mine) & lower)).sum(-1)
        taken = (rank < s.top_k).float()
    else:
        taken = hashed
    kept = score * taken
    return kept / kept.sum(-1, keepdim=True) * s.route_scale, taken


def experts(x, weights, w1, w3, w2, shared1, shared3, shared2, s, dt):
    """Routed plus shared experts [N, D] (spec 2.11). Every expert runs on every token and the weights pick: at this size
    that is quicker than gathering. w1, w3 [E, I, D]; w2 [E, D, I]."""
    g = mm(x, torch.cat((w1.flatten(0, 1), shared1)), dt)
    u = mm(x, torch.cat((w3.flatten(0, 1), shared3)), dt)
    g = g.clamp(max=s.swiglu_limit)
    u = u.clamp(-s.swiglu_limit, s.swiglu_limit)
    each = torch.cat((weights, torch.ones_like(weights[:, :1])), 1)
    a = (F.silu(g) * u).unflatten(1, (-1, s.inter)) * each[:, :, None]
    down = torch.cat((w2, shared2[None])).transpose(0, 1).flatten(1)
    return mm(a.flatten(1), down, dt)
