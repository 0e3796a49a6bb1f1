# What each op computes, in float64 torch: the parts that a repro script is put together from. `t` holds operands and
# weights by name, `C` constants of the config, `P` the positions of the rows. Sections of the spec stand in the seam's graph.
# --- norm(
def norm(x, weight=None):
    y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + C["rms_norm_eps"])
    return y if weight is None else y * weight
# --- rope(
def rope(x, positions, back=False):  # x [n, heads, width]; the last dims in interleaved pairs
    angle = (positions.float()[:, None] * t("weight.inv_freq").float()).double()[:, None]
    cos, sin, rd = angle.cos(), -angle.sin() if back else angle.sin(), 2 * angle.shape[-1]
    y, even, odd = x.clone(), x[..., -rd::2], x[..., 1 - rd :: 2]
    y[..., -rd::2], y[..., 1 - rd :: 2] = even * cos - odd * sin, even * sin + odd * cos
    return y
# --- hadamard(
def hadamard(x):  # the rows that the audited path shows rotated
    h = torch.ones(1, 1, dtype=torch.float64)
    while h.shape[0] < x.shape[-1]:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
    is_rotated = t("rotated").bool().reshape(-1, *[1] * (x.dim() - 1))
    return torch.where(is_rotated, x @ h / math.sqrt(x.shape[-1]), x)
# --- swiglu(
def swiglu(x, w1, w3):
    gate, up = x @ w1.T, x @ w3.T
    return torch.nn.functional.silu(gate.clamp(max=C["swiglu_limit"])) * up.clamp(-C["swiglu_limit"], C["swiglu_limit"])
# --- pool(
def pool(kvp, score):  # r rows to one entry; the overlapping form also pools the first columns of the window before
    r, width = C["ratio"], t("weight.norm").numel()
    n, columns = kvp.shape[0] // r, kvp.shape[1]
    kvp = kvp[: n * r].reshape(n, r, columns)
    z = score[: n * r].reshape(n, r, columns) + t("weight.ape")
    if columns == 2 * width:
        before = lambda v, empty: torch.cat([torch.full((1, r, width), empty).double(), v[:-1, :, :width]])
        kvp = torch.cat([before(kvp, 0.0), kvp[..., width:]], 1)
        z = torch.cat([before(z, -math.inf), z[..., width:]], 1)
    entries = norm((z.softmax(1) * kvp).sum(1), t("weight.norm"))
    return rope(entries[:, None], torch.arange(n) * r)[:, 0]
# --- mix_in(
def mix_in(h):  # [n, hc, D] to pre, post, comb and the collapsed row
    hc, eps, f = C["hc_mult"], C["hc_eps"], h.flatten(1)
    m = (f @ t("weight.fn").T) * torch.rsqrt((f * f).mean(-1, keepdim=True) + C["rms_norm_eps"])
    scale, base = t("weight.scale"), t("weight.base")
    pre = (m[:, :hc] * scale[0] + base[:hc]).sigmoid() + eps
    post = 2 * (m[:, hc : 2 * hc] * scale[1] + base[hc : 2 * hc]).sigmoid()
    comb = (m[:, 2 * hc :] * scale[2] + base[2 * hc :]).reshape(-1, hc, hc).softmax(-1) + eps
    comb = comb / (comb.sum(1, keepdim=True) + eps)
    for _ in range(C["hc_sinkhorn_iters"] - 1):
        comb = comb / (comb.sum(2, keepdim=True) + eps)
        comb = comb / (comb.sum(1, keepdim=True) + eps)
    return pre, post, comb, (pre[..., None] * h).sum(1)
# --- mix_out(
def mix_out(h, post, comb, y):
    return post[..., None] * y[:, None] + torch.einsum("njk,njd->nkd", comb, h)
# --- best(
def best(scores, k):  # the larger first, then the lower index
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :k]
# === hc_attn.pre
pre, post, comb, x = mix_in(t("operand.out"))
return {"hc_attn.pre": pre, "hc_attn.post": post, "hc_attn.comb": comb, "hc_attn.collapsed": x}
# === hc_ffn.pre
pre, post, comb, x = mix_in(t("operand.hc_attn.out"))
return {"hc_ffn.pre": pre, "hc_ffn.post": post, "hc_ffn.comb": comb, "hc_ffn.collapsed": x}
# === attn.norm
return {"attn.in": norm(t("operand.hc_attn.collapsed"), t("weight.norm"))}
# === ffn.norm
return {"ffn.in": norm(t("operand.hc_ffn.collapsed"), t("weight.norm"))}
# === attn.query_down
return {"attn.qr": norm(t("operand.attn.in") @ t("weight.wq_a").T, t("weight.norm"))}
# === attn.query_up
q = (t("operand.attn.qr") @ t("weight.wq_b").T).reshape(len(P), C["heads"], -1)
return {"attn.q": rope(norm(q), P)}
# === attn.key_value
kv = norm(t("operand.attn.in") @ t("weight.wkv").T, t("weight.norm"))
return {"attn.kv": rope(kv[:, None], P)[:, 0]}
# === attn.compress_project
x = t("operand.attn.in")
return {"attn.kvp": x @ t("weight.wkv").T, "attn.gate_score": x @ t("weight.wgate").T}
# === attn.index_project
x = t("operand.attn.in")
return {"attn.index_kvp": x @ t("weight.wkv").T, "attn.index_gate_score": x @ t("weight.wgate").T}
# === attn.compress_pool
return {"attn.ckv": pool(t("operand.attn.kvp"), t("operand.attn.gate_score"))}
# === attn.index_pool
return {"attn.index_k": hadamard(pool(t("operand.attn.index_kvp"), t("operand.attn.index_gate_score")))}
# === attn.index_query
q = (t("operand.attn.qr") @ t("weight.wq_b").T).reshape(len(P), C["index_heads"], -1)
return {"attn.index_q": hadamard(rope(q, P))}
# === attn.index_weights
scale = C["index_head_dim"] ** -0.5 * C["index_heads"] ** -0.5
return {"attn.index_w": t("operand.attn.in") @ t("weight.weights_proj").T * scale}
# === attn.index_score
q, k, w = t("operand.attn.index_q"), t("operand.attn.index_k"), t("operand.attn.index_w")
score = torch.einsum("nhd,td->nht", q, k).relu().mul(w[..., None]).sum(1)
hidden = torch.arange(k.shape[0]) >= ((P + 1) // C["ratio"])[:, None]
return {"attn.index_score": score.masked_fill(hidden, -math.inf)}
# === attn.select
visible = ((P + 1) // C["ratio"]).tolist()
mask = torch.zeros_like(T["expected.attn.selected"])
for row, n in enumerate(visible):
    if "operand.attn.index_score" in T and n > C["index_topk"]:
        mask[row, best(t("operand.attn.index_score")[row, :n], C["index_topk"])] = 1
    else:
        mask[row, :n] = 1
return {"attn.selected": mask}
# === attn.attend
q, window, sink = t("operand.attn.q"), t("operand.attn.kv"), t("weight.sink")
o, lse = torch.empty_like(q), torch.empty(q.shape[:2]).double()
for row, p in enumerate(P.tolist()):
    keys = window[max(0, p + 1 - C["sliding_window"]) : p + 1]
    if "operand.attn.ckv" in T:
        keys = torch.cat([keys, t("operand.attn.ckv")[T["operand.attn.selected"][row].bool()]])
    score = torch.cat([q[row] @ keys.T * C["head_dim"] ** -0.5, sink[:, None]], 1)
    o[row], lse[row] = score.softmax(-1)[:, :-1] @ keys, score.logsumexp(-1)
return {"attn.o": o, "attn.lse": lse}
# === attn.output_down
wo_a = t("weight.wo_a").reshape(C["groups"], -1, t("weight.wo_a").shape[-1])
o = rope(t("operand.attn.o"), P, back=True).reshape(len(P), C["groups"], -1)
return {"attn.oa": torch.einsum("ngi,goi->ngo", o, wo_a).flatten(1)}
# === attn.output_up
return {"attn.out": t("operand.attn.oa") @ t("weight.wo_b").T}
# === hc_attn.post
return {"hc_attn.out": mix_out(*[t("operand." + n) for n in ("out", "hc_attn.post", "hc_attn.comb", "attn.out")])}
# === hc_ffn.post
return {"out": mix_out(*[t("operand." + n) for n in ("hc_attn.out", "hc_ffn.post", "hc_ffn.comb", "ffn.out")])}
# === ffn.route
logits = t("operand.ffn.in") @ t("weight.gate").T
s = torch.nn.functional.softplus(logits, threshold=100.0).sqrt()
hashed = "weight.experts_of_rows" in T
idx = T["weight.experts_of_rows"] if hashed else best(s + t("weight.bias"), T["expected.ffn.idx"].shape[1])
wt = s.gather(1, idx)
return {"ffn.router_logits": logits, "ffn.idx": idx, "ffn.wt": wt / wt.sum(1, keepdim=True) * C["routed_scaling_factor"]}
# === ffn.experts
x, wt = t("operand.ffn.in"), t("operand.ffn.wt")
act = torch.stack([
    torch.stack([w * swiglu(x[row], t(f"weight.{e}.w1"), t(f"weight.{e}.w3")) for e, w in zip(chosen, wt[row])])
    for row, chosen in enumerate(T["operand.ffn.idx"].tolist())
])
down = lambda row, chosen: sum(act[row, slot] @ t(f"weight.{e}.w2").T for slot, e in enumerate(chosen))
routed = torch.stack([down(row, chosen) for row, chosen in enumerate(T["operand.ffn.idx"].tolist())])
return {"ffn.expert_act": act, "ffn.routed": routed}
# === ffn.shared_expert
x = t("operand.ffn.in")
return {"ffn.shared": swiglu(x, t("weight.w1"), t("weight.w3")) @ t("weight.w2").T}
# === ffn.combine
return {"ffn.out": t("operand.ffn.routed") + t("operand.ffn.shared")}
