#!/usr/bin/env python3
"""Trims the oracle (a tiny checkpoint and its reference outputs) to what the tests need.

    python3 xtask/oracle/trim.py SOURCE tests/fixtures/oracle

SOURCE holds tiny-v4/, oracle-{short,ops,long}.safetensors and encoding_examples.json. Short, ops and the checkpoint are
copied whole. Of long (333 tokens): ids, logits, qat.logits, port.layers.*.out, selected, idx and wt stay whole; every
other tap keeps the 16 rows ROWS (or as many of them as it has). Keys of row-trimmed tensors end in "@rows". Tensor
files are gzipped (together under 10 MB); the tests unpack them once. Standard library only.
"""
import gzip
import json
import shutil
import struct
import sys
from pathlib import Path

ROWS = [0, 1, 2, 3, 4, 7, 63, 126, 127, 128, 129, 255, 256, 300, 331, 332]
WHOLE = ("input_ids", "mtp_next_ids", "logits", "qat.logits")


def whole(key):
    last = key.rsplit(".", 1)[-1]
    is_port = key.startswith("port.layers.")
    return key in WHOLE or (is_port and last in ("selected", "idx", "wt")) or (
        is_port and last == "out" and key.count(".") == 3)


def read(path):
    return parse(path.read_bytes())


def read_gz(path):
    with gzip.open(path) as f:
        return parse(f.read())


def parse(data):
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + n])
    meta = header.pop("__metadata__", {})
    return meta, {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]])
                  for k, v in header.items()}


def write(path, meta, tensors):
    header, at = {"__metadata__": meta}, 0
    # Widest elements first, so that every tensor is aligned.
    size = {"I64": 8, "F32": 4, "U8": 1}
    order = sorted(tensors, key=lambda k: (-size[tensors[k][0]], k))
    for k in order:
        dtype, shape, raw = tensors[k]
        header[k] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    pack(path, struct.pack("<Q", len(text)) + text + b"".join(tensors[k][2] for k in order))


def pack(path, data):
    # mtime 0 and no name: the same input gives the same bytes.
    with open(str(path) + ".gz", "wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as z:
        z.write(data)


def trim(dtype, shape, raw):
    rows = [r for r in ROWS if r < shape[0]]
    width = len(raw) // shape[0]
    return dtype, [len(rows), *shape[1:]], b"".join(raw[r * width : (r + 1) * width] for r in rows)


def main(source, target):
    source, target = Path(source), Path(target)
    (target / "tiny-v4").mkdir(parents=True, exist_ok=True)
    for name in ("tiny-v4/config.json", "encoding_examples.json"):
        shutil.copyfile(source / name, target / name)
    for name in ("tiny-v4/model.safetensors", "oracle-short.safetensors", "oracle-ops.safetensors"):
        pack(target / name, (source / name).read_bytes())
    meta, tensors = read(source / "oracle-long.safetensors")
    kept = {}
    for key, (dtype, shape, raw) in tensors.items():
        if whole(key):
            kept[key] = (dtype, shape, raw)
        else:
            kept[key + "@rows"] = trim(dtype, shape, raw)
    meta["rows"] = json.dumps(ROWS)
    write(target / "oracle-long.safetensors", meta, kept)


if __name__ == "__main__":
    main(*sys.argv[1:3])
