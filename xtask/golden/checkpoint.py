"""Reading and writing the released format (spec section 4): original names, F8_E4M3 + F8_E8M0, I8 MXFP4, BF16, F32, I64."""

import json
import re
import struct

import torch

import quant

TORCH = {"F32": torch.float32, "BF16": torch.bfloat16, "I64": torch.int64}


def read_raw(path):
    """{name: (dtype word, tensor)} with FP8, E8M0 and I8 as bytes."""
    with open(path, "rb") as f:
        data = bytearray(f.read())
    whole = torch.frombuffer(data, dtype=torch.uint8)
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, t in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        a, b = t["data_offsets"]
        raw = whole[8 + size + a : 8 + size + b].clone()
        out[name] = (t["dtype"], raw.view(TORCH.get(t["dtype"], torch.uint8)).view(t["shape"]))
    return out


def load(path, experts):
    """(weights, tables) as model.py wants them: float32, experts stacked; tables [V, E] of zeros and ones."""
    raw = read_raw(path)
    weights, tables, stacks = {}, {}, {}
    for name, (dtype, t) in raw.items():
        if name.endswith(".scale"):
            continue
        if name.endswith("tid2eid"):
            tables[name] = torch.zeros(t.shape[0], experts).scatter(1, t, 1.0)
            continue
        scale = raw.get(re.sub(r"weight$", "scale", name), (None, None))[1] if name.endswith("weight") else None
        if dtype == "F8_E4M3":
            value = quant.unpack_fp8(t, scale)
        elif dtype == "I8":
            value = quant.unpack_fp4(t, scale)
        else:
            value = t.float()
        found = re.match(r"(.*\.ffn\.experts\.)(\d+)\.(w[123]\.weight)$", name)
        if found:
            stacks.setdefault(found[1] + found[3], {})[int(found[2])] = value
        else:
            weights[name] = value
    for name, parts in stacks.items():
        weights[name] = torch.stack([parts[e] for e in range(experts)])
    return weights, tables


def save(path, weights, tables, metadata):
    """Packs snapped weights and routing tables [V, K] (expert ids)."""
    tensors = {}
    for name, w in weights.items():
        w = w.detach().cpu().float()
        if quant.kind(name) == "fp4":
            for e in range(w.shape[0]):
                one = name.replace(".experts.", f".experts.{e}.")
                codes, scale = quant.pack_fp4(w[e])
                tensors[one] = ("I8", codes)
                tensors[one.replace("weight", "scale")] = ("F8_E8M0", scale)
        elif quant.kind(name) == "fp8":
            codes, scale = quant.pack_fp8(w)
            tensors[name] = ("F8_E4M3", codes)
            tensors[name.replace("weight", "scale")] = ("F8_E8M0", scale)
        elif quant.kind(name) == "f32":
            tensors[name] = ("F32", w)
        else:
            assert torch.equal(w.bfloat16().float(), w), f"{name} was not rounded to BF16 before"
            tensors[name] = ("BF16", w.bfloat16())
    for name, table in tables.items():
        tensors[name] = ("I64", table.cpu().long())
    header, blobs, at = {"__metadata__": metadata}, [], 0
    # Wide types first, so that every tensor is aligned to its own width.
    for name, (dtype, t) in sorted(tensors.items(), key=lambda item: (-item[1][1].element_size(), item[0])):
        raw = t.contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [at, at + len(raw)]}
        blobs.append(raw)
        at += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
