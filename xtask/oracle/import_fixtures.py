#!/usr/bin/env python3
"""Small dumps as other engines write them, for the tests of trace/src/import.

    python3 xtask/oracle/import_fixtures.py [tests/fixtures/import]

Needs torch and safetensors (made with torch 2.15, numpy 2). `expected.safetensors` holds the tensors of `dict.pt` contiguous and
in their own types, written by the safetensors library: what the reader of .pt must find.
"""
import collections
import sys
from pathlib import Path

import numpy
import torch
from safetensors.torch import save_file


class Foreign:
    """Something that is no tensor."""


def tensors():
    x = torch.arange(24, dtype=torch.float32).reshape(4, 6) / 7 - 1.5
    return {
        "plain": x,
        "turned": x.t(),
        "part": x[1:3, 1:6:2],
        "cube": torch.arange(24, dtype=torch.int32).reshape(2, 3, 4).permute(2, 0, 1),
        "expanded": x[:1].expand(3, 6),
        "double": x.double(),
        "half": x.half(),
        "bf16": x.bfloat16(),
        "bf16_turned": x.bfloat16().t(),
        "e4m3": x.to(torch.float8_e4m3fn),
        "e8m0": torch.arange(120, 126, dtype=torch.uint8).view(torch.float8_e8m0fnu),
        "ids": torch.tensor([5, -6, 1 << 40]),
        "bytes": torch.tensor([0, 7, 255], dtype=torch.uint8),
        "small": torch.tensor([-128, 127], dtype=torch.int8),
        "mask": torch.tensor([True, False, True]),
        "scalar": torch.tensor(3.25),
        "empty": torch.zeros(0, 4),
    }


def main(out="tests/fixtures/import"):
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    t = tensors()
    save_file({k: v.contiguous().clone() for k, v in t.items()}, out / "expected.safetensors")
    more = {
        "parameter": torch.nn.Parameter(t["plain"]),
        "e5m2": t["plain"].to(torch.float8_e5m2),
        "u16": torch.tensor([0, 65535]).to(torch.uint16),
        "i16": torch.tensor([-32768, 32767], dtype=torch.int16),
        "complex": torch.zeros(2, dtype=torch.complex64),
        "nested": [t["scalar"], (t["ids"], 1, 2.5, None, True, "text", 1 << 70)],
        "shape": t["plain"].shape,
        "dtype": torch.bfloat16,
        "device": t["plain"].device,
        "ordered": collections.OrderedDict(a=t["mask"]),
    }
    torch.save({**t, **more}, out / "dict.pt")
    torch.save({"a": t["plain"], "b": t["turned"]}, out / "protocol4.pt", pickle_protocol=4)
    torch.save(torch.nn.Linear(2, 3).state_dict(), out / "state.pt")
    torch.save(t["bf16"], out / "bare.pt")
    torch.save({"a": t["plain"]}, out / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({"a": t["plain"], "b": Foreign()}, out / "foreign.pt")
    numpy.save(out / "c.npy", t["plain"].numpy())
    numpy.save(out / "fortran.npy", numpy.asfortranarray(t["plain"].numpy()))
    numpy.save(out / "big.npy", t["plain"].numpy().astype(">f4"))
    numpy.savez(out / "stored.npz", plain=t["plain"].numpy(), ids=t["ids"].numpy())
    numpy.savez_compressed(out / "packed.npz", plain=t["plain"].numpy(), half=t["half"].numpy())
    sglang(out / "sglang", t["plain"])
    hooks(out / "hooks", t["plain"])
    hidden(out / "hidden_states.pt")


def sglang(folder, x):
    """SGLang's dumper: two steps of one tensor, one of them dumped twice, and an object that is no tensor."""
    folder.mkdir(exist_ok=True)

    def dump(step, index, name, value, **tags):
        tags = {"step": step, "rank": 0, "dump_index": index, "name": name, "recompute_status": "disabled", **tags}
        meta = {**tags, "dims": "t h", "world_rank": 0, "world_size": 1, "sglang_parallel_info": {"tp_rank": 0, "tp_size": 1}}
        torch.save({"value": value, "meta": meta}, folder / ("___".join(f"{k}={v}" for k, v in tags.items()) + ".pt"))

    dump(0, 1, "layer_start__hidden_states", x, layer_id=3)
    dump(0, 2, "layer_start__hidden_states", x + 1, layer_id=3)
    dump(1, 3, "layer_start__hidden_states", x + 2, layer_id=3)
    dump(1, 4, "rids", ["a", "b"])


def hooks(folder, x):
    """SGLang's forward hooks on two ranks, a prefill and a decode step."""
    for tp in (0, 1):
        at = folder / f"TP{tp}_PP0_Rank{tp}_pid{100 + tp}"
        at.mkdir(parents=True, exist_ok=True)
        for step, rows in enumerate((x[:3], x[3:])):
            torch.save(
                {
                    "model.layers.1.self_attn.wo_b": rows.clone(),
                    "model.layers.1.self_attn.wq_b": rows[:, 3 * tp : 3 * tp + 3].clone(),
                    "model.layers.1.mlp.partial": rows / 2,
                    "model.forward_batch_info.positions": torch.arange(3) if step == 0 else torch.tensor([3]),
                },
                at / f"Pass{step:05d}.pt",
            )


def hidden(path):
    """transformers' output_hidden_states of a model with two layers: the input, two layers' outputs, the final norm's."""
    h = [torch.full((1, 3, 4), float(v)) for v in (10, 11)]
    torch.save({"hidden_states": (h[0], h[1], torch.full((1, 3, 4), 99.0))}, path)


if __name__ == "__main__":
    main(*sys.argv[1:2])
