"""The hooks and the writer. Needs torch and safetensors; nothing else.

    with Capture(model, TRANSFORMERS, mode="eager") as capture:
        with capture.sequence("a", ids, kind="prefill"):
            model(ids[None], use_cache=False)
    capture.write("trace")

Hooks are Python: under a CUDA graph they fire at capture and not at replay, so a captured trace is of the eager engine.
`graph_agrees` compares the eager logits with the graph's on the same ids first; `mode` goes into the manifest.
"""

import fnmatch
import json
import os
import re
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import save_file

VERSION = "0.1.0"
KINDS = ("prefill", "decode")
# Dtypes that the format has; others are widened, which keeps every value.
KEPT = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool)


def escape(sequence):
    """A sequence's id as one component of a key, as docs/formats.md says."""
    if not sequence:
        raise ValueError("a sequence has an id")
    dots = sequence in (".", "..")
    special = lambda c: c in "/\\%" or ord(c) < 32 or 127 <= ord(c) < 160 or (dots and c == ".")
    return "".join("".join(f"%{b:02X}" for b in c.encode()) if special(c) else c for c in sequence)


def kept(t):
    """A copy on the CPU, contiguous, in a dtype of the format."""
    t = t.detach()
    if t.dtype not in KEPT:
        t = t.float() if t.is_floating_point() else t.to(torch.int64)
    return t.to("cpu", copy=True).contiguous()


class Capture:
    """Hooks on the modules whose names a map has, and the rows that they saw.

    taps: patterns of taps to record (fnmatch). positions: only these positions of each sequence; all without. pages: called
    as pages(sequence id) when a sequence's step ends, gives {"layers.0.win": tensor, ...}: its KV content (`state/` taps),
    kept as of the last step.
    """

    def __init__(self, model, modules, mode="unknown", taps=("*",), positions=None, pages=None, producer="karat-capture " + VERSION):
        if mode not in ("eager", "graph", "unknown"):
            raise ValueError(f"mode {mode!r}: eager, graph or unknown")
        self.mode, self.taps, self.pages, self.producer = mode, tuple(taps), pages, producer
        self.positions = None if positions is None else sorted(set(positions))
        self.sequences, self.steps, self.rows, self.seen, self.state = {}, {}, {}, {}, {}
        self.now, self.hooks, self.unmatched = None, [], []
        wanted = [(re.compile(pattern), part, tap, how) for pattern, part, tap, how in modules]
        used = set()
        for name, module in model.named_modules():
            for number, (pattern, part, tap, how) in enumerate(wanted):
                found = pattern.fullmatch(name)
                if found and any(fnmatch.fnmatchcase(tap.format(*found.groups()), p) for p in self.taps):
                    used.add(number)
                    self.hooks.append(module.register_forward_hook(self._hook(tap.format(*found.groups()), part, how)))
        # Patterns that no module fits: said in `unmatched`, for whoever expected them.
        self.unmatched = [w[0].pattern for n, w in enumerate(wanted) if n not in used]
        if not self.hooks:
            raise ValueError("no module of the model fits a pattern")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    @contextmanager
    def sequence(self, name, ids, kind="prefill", start=None):
        """One forward pass over positions start.. of a sequence (its end so far without `start`)."""
        if kind not in KINDS:
            raise ValueError(f"kind {kind!r}: prefill or decode")
        ids = [int(i) for i in ids]
        known = self.sequences.setdefault(name, [])
        start = len(known) if start is None else start
        if start > len(known):
            raise ValueError(f"sequence {name!r} has {len(known)} ids: position {start} leaves a gap")
        if start < len(known):
            raise ValueError(f"sequence {name!r}: position {start} was computed already; a trace of this helper holds each once")
        known.extend(ids)
        self.now, self.counts = (name, start, len(ids)), {}
        try:
            yield self
        finally:
            self.now = None
        if not self.counts:
            raise RuntimeError("no hook fired: a CUDA graph was replayed, or the model wasn't called")
        self.steps.setdefault(name, []).append({"kind": kind, "start": start, "end": start + len(ids)})
        if self.pages is not None:
            self.state[name] = {tap: kept(t) for tap, t in self.pages(name).items()}

    def _hook(self, tap, part, how):
        def hook(_module, _inputs, output):
            if self.now is None:
                return
            name, start, count = self.now
            t = output if part is None else output[part]
            # A batch of one in front, or rows alone.
            if t.dim() > 1 and t.shape[0] == 1 and t.shape[1] == count and not (count == 1 and t.dim() == 2):
                t = t[0]
            if t.shape[0] != count:
                raise ValueError(f"{tap}: {tuple(t.shape)} of a step of {count} rows; capture one sequence a forward pass")
            if self.counts.get(tap):
                raise ValueError(f"{tap}: the module ran twice in one step")
            self.counts[tap] = 1
            here = range(start, start + count)
            if self.positions is not None:
                picked = [p for p in self.positions if p in here]
                t = t[[p - start for p in picked]]
                here = picked
            if how == "flat":
                t = t.flatten(1)
            self.seen.setdefault((name, tap), []).extend(here)
            self.rows.setdefault((name, tap), []).append(kept(t))

        return hook

    def write(self, folder, config_sha256=None, weights_sha256=None):
        """Writes the folder under a temporary name and renames it. Every tap must have been seen at the same positions."""
        folder = Path(folder)
        if folder.exists():
            raise FileExistsError(folder)
        tensors = {}
        for name, ids in self.sequences.items():
            taps = sorted(tap for sequence, tap in self.rows if sequence == name)
            places = {tuple(self.seen[name, tap]) for tap in taps}
            if len(places) > 1:
                raise ValueError(f"sequence {name!r}: taps were seen at different positions; a step has run only a part of the model")
            key = escape(name)
            for tap in taps:
                tensors[f"{key}/{tap}"] = torch.cat(self.rows[name, tap])
            rows = list(places.pop()) if places else []
            if rows != list(range(len(ids))):
                tensors[f"{key}/rows"] = torch.tensor(rows, dtype=torch.int64)
            for tap, t in self.state.get(name, {}).items():
                tensors[f"{key}/state/{tap}"] = t
        model = {k: v for k, v in (("config_sha256", config_sha256), ("weights_sha256", weights_sha256)) if v}
        manifest = {
            "format": "karat-trace/1",
            "producer": self.producer,
            "model": model,
            "mode": self.mode,
            "sequences": [{"id": name, "input_ids": ids} for name, ids in self.sequences.items()],
            "history": [{"sequence": name, "steps": steps} for name, steps in self.steps.items()],
            "files": ["taps.safetensors"],
        }
        partial = folder.with_name(folder.name + f".partial-{os.getpid()}")
        partial.mkdir(parents=True)
        save_file(tensors, partial / "taps.safetensors")
        (partial / "manifest.json").write_text(json.dumps(manifest) + "\n")
        partial.rename(folder)
        return folder


def graph_agrees(eager_logits, graph_logits):
    """(largest difference over the largest logit, True where every most likely id is the same): run it on one prompt before
    a trace of the eager engine is taken for what the graph serves."""
    a, b = eager_logits.double(), graph_logits.double()
    if a.shape != b.shape:
        raise ValueError(f"{tuple(a.shape)} and {tuple(b.shape)}: the same ids, please")
    return float((a - b).abs().max() / a.abs().max()), bool((a.argmax(-1) == b.argmax(-1)).all())
