"""transformers' model as a worker: prefill, cached decode steps, and its logits and decisions for the fidelity check."""

import sys

import numpy as np
import torch

import mini
import protocol

THREADS = int(sys.argv[1])
torch.set_num_threads(THREADS)
MODEL = mini.build()


def ids(n):
    return torch.from_numpy(mini.tokens(int(n)))[None]


def forward(n):
    """One cold pass over n ids, logits of every position."""
    with torch.inference_mode():
        return {**protocol.timed(lambda: MODEL(ids(n), use_cache=False)), "peak_mib": protocol.peak_mib()}


def decode(n, steps):
    """Median of single cached steps behind n ids."""
    with torch.inference_mode():
        out = MODEL(ids(n), use_cache=True, logits_to_keep=1)
        took = []
        for _ in range(int(steps)):
            token = out.logits[:, -1].argmax(-1, keepdim=True)
            box = {}
            took.append(protocol.timed(lambda: box.update(out=MODEL(token, cache=out.cache, use_cache=True)))["seconds"])
            out = box["out"]
    return {"seconds": sorted(took)[len(took) // 2]}


def decisions(n, stem):
    """Writes logits (STEM.logits, f32 [n, V]) and every decision: (layer, kind, row, margin, choices) as STEM.choices, one
    row a line of i32 words; margins relative to the largest score of the row, as f32 bits."""
    rows = []

    def keep(kind, layer, scores, k):
        visible = scores > float("-inf")
        top = scores.topk(min(k + 1, scores.shape[-1]), -1)
        largest = scores.masked_fill(~visible, 0).abs().amax(-1).clamp_min(1e-30)
        counted = visible.sum(-1)
        for row in range(scores.shape[0]):
            open_choice = counted[row] > k
            margin = ((top.values[row, k - 1] - top.values[row, k]) / largest[row]).item() if open_choice else float("inf")
            chosen = sorted(top.indices[row, : min(k, int(counted[row]))].tolist())
            head = np.array([layer, kind, row], np.int32)
            rows.append(np.concatenate((head, np.array([margin], np.float32).view(np.int32), np.array(chosen + [-1] * (32 - len(chosen)), np.int32))))

    hooks = []
    for i, layer in enumerate(MODEL.model.layers):
        gate = layer.mlp.gate
        if hasattr(gate, "e_score_correction_bias"):
            scored = lambda m, a, out, i=i: keep(1, i, m.score_fn(out[0]) + m.e_score_correction_bias, m.top_k)
            hooks.append(gate.register_forward_hook(scored))
        indexer = getattr(getattr(layer.self_attn, "compressor", None), "indexer", None)
        if indexer is not None:

            def scores(m, a, out, i=i, k=indexer.index_topk, rate=indexer.compress_rate):
                at = torch.arange(out.shape[1])[:, None]
                future = torch.arange(out.shape[2])[None] >= (at + 1) // rate
                keep(0, i, out[0].masked_fill(future, float("-inf")), k)

            hooks.append(indexer.scorer.register_forward_hook(scores))
    with torch.inference_mode():
        logits = MODEL(ids(n), use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    logits.numpy().astype("<f4").tofile(stem + ".logits")
    np.stack(rows).astype("<i4").tofile(stem + ".choices")
    return {"rows": int(logits.shape[0]), "width": int(logits.shape[1]), "decisions": len(rows)}


protocol.serve({"forward": forward, "decode": decode, "decisions": decisions})
