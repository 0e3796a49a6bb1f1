"""Measures a checkpoint: python evaluate.py --model DIR --out FILE.json STEM:LENGTH .. ; each STEM has .ids and .jsonl
(golden-data rows --spans). Teacher-forced exact match of whole answers in the exact float32 pass, by length, family, kind
of question and distance; worst margins by stratum; ablations on request."""

import argparse
import collections
import json
import time

import torch

import checkpoint
import model
from shape import Shape

STRATA = (0.5, 1, 2, 4)


def rows(stem, length):
    """(ids [used], family, answers) of each row."""
    ids = torch.frombuffer(bytearray(open(stem + ".ids", "rb").read()), dtype=torch.int16).view(-1, length)
    for row, line in zip(ids, open(stem + ".jsonl")):
        d = json.loads(line)
        yield row[: d["used"]].long(), d["family"], d["answers"]


def score(logits, ids, answers):
    """(hit, worst margin in nats) of each answer: its tokens against the best other token, given all tokens before."""
    out = []
    for start, length, kind, told in answers:
        want = ids[start : start + length]
        got = logits[start - 1 : start + length - 1]
        right = got.gather(1, want[:, None])[:, 0]
        other = got.scatter(1, want[:, None], float("-inf")).amax(-1)
        worst = (right - other).min().item()
        out.append((worst > 0, worst))
    return out


def stratum(margin):
    """Name of a margin's stratum."""
    if margin <= 0:
        return "wrong"
    for edge in STRATA:
        if margin < edge:
            return f"<{edge}"
    return f">={STRATA[-1]}"


def share(pairs):
    """{key: [hits, n, share]} of (key, hit)."""
    out = collections.defaultdict(lambda: [0, 0])
    for key, hit in pairs:
        out[key][0] += hit
        out[key][1] += 1
    return {k: [h, n, round(h / n, 4)] for k, (h, n) in sorted(out.items())}


def measure(net, stem, length, device, limit=10**9, off=(), seconds=1e9):
    """Results of one data set."""
    found, started, n, mtp_hit, mtp_n = [], time.time(), 0, 0, 0
    for ids, family, answers in rows(stem, length):
        if n >= limit or time.time() - started > seconds:
            break
        n += 1
        ids = ids.to(device)
        logits, mtp = net.run(ids, want_mtp=not off, off=off)
        for (start, size, kind, told), (hit, margin) in zip(answers, score(logits, ids, answers)):
            found.append((family, kind, None if told is None else start - told, hit, margin))
            if mtp is not None and size > 1:
                # The MTP head sees the answer's first token and predicts the one after the next.
                for k in range(1, size):
                    mtp_hit += (mtp[start + k - 2].argmax() == ids[start + k]).item()
                    mtp_n += 1
    edges = [64, 256, 1024, 4096, 16384, 65536]
    near = lambda d: "?" if d is None else next(f"<{e}" for e in edges if d < e)
    ranked = sorted(m for *_, m in found)
    return {
        "length": length,
        "conversations": n,
        "exact": share(("all", hit) for *_, hit, _ in found),
        "recall": share(("all", hit) for _, kind, _, hit, _ in found if kind not in ("tally", "topic")),
        "family": share((f, hit) for f, _, _, hit, _ in found),
        "kind": share((k, hit) for _, k, _, hit, _ in found),
        "distance": share((near(d), hit) for _, _, d, hit, _ in found if d is not None),
        "margin": dict(collections.Counter(stratum(m) for *_, m in found)),
        "margin_p": {q: round(ranked[int(len(ranked) * q)], 2) for q in (0.01, 0.05, 0.1, 0.5)} if ranked else {},
        "mtp": [mtp_hit, mtp_n, round(mtp_hit / max(mtp_n, 1), 4)],
        "seconds": round(time.time() - started, 1),
    }


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--limit", type=int, default=10**9)
    p.add_argument("--seconds", type=float, default=60, help="at most, for each data set and ablation")
    p.add_argument("--off", action="append", default=[], help="an ablation to measure on every set as well")
    p.add_argument("sets", nargs="+")
    a = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    s = Shape.from_config(json.load(open(f"{a.model}/config.json")))
    weights, tables = checkpoint.load(f"{a.model}/model.safetensors", s.experts)
    net = model.Exact(s, {k: w.to(device) for k, w in weights.items()}, {k: t.to(device) for k, t in tables.items()})
    results = {}
    for item in a.sets:
        stem, length = item.rsplit(":", 1)
        name = stem.split("/")[-1]
        results[name] = measure(net, stem, int(length), device, a.limit, (), a.seconds)
        print(name, json.dumps(results[name]), flush=True)
        for off in a.off:
            r = measure(net, stem, int(length), device, a.limit, (off,), a.seconds)
            results[f"{name} without {off}"] = r
            print(name, "without", off, json.dumps({k: r[k] for k in ("recall", "kind", "margin")}), flush=True)
            json.dump(results, open(a.out, "w"), indent=1)
        json.dump(results, open(a.out, "w"), indent=1)


if __name__ == "__main__":
    main()
