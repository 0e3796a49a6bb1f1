#!/usr/bin/env python3
"""Dumps larger than what is held of them: throughput and peak memory of `karat diff` on `.pt` files of a few GB with cold pages.

    python3 adapters/python/stream_dumps.py KARAT OUT [GIB]

Writes two files of GIB (default 2) GiB each, f32 tensors of 128 MiB, one of them stored transposed in the second file, into the new
folder OUT, and compares them twice: with their pages dropped from the system's cache (fsync, then POSIX_FADV_DONTNEED; what is
left in the cache is counted), and again warm. Prints one line of JSON a run: seconds, bytes a second of both files together, bytes
that came from the disk, peak of the program's own memory (RssAnon) and of the mapped files' pages (RssFile). Needs torch.
"""

import ctypes
import json
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

ROWS, COLUMNS = 8192, 4096


def write(path, count, turned):
    torch.manual_seed(1)
    tensors = {f"layers.{i}.out": torch.randn(ROWS, COLUMNS) for i in range(count)}
    if turned:
        tensors["layers.0.out"] = tensors["layers.0.out"].t().contiguous().t()
    torch.save(tensors, path)


def drop(path):
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached(path):
    """Bytes of a file that are in the system's cache."""
    size = path.stat().st_size
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), size, access=mmap.ACCESS_COPY) as m:
        pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        there = (ctypes.c_ubyte * pages)()
        at = ctypes.addressof(ctypes.c_char.from_buffer(m))
        if ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), there):
            raise OSError(ctypes.get_errno(), "mincore")
        return sum(b & 1 for b in there) * mmap.PAGESIZE


def memory(pid):
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    of = lambda name: next((int(line.split()[1]) << 10 for line in lines if line.startswith(name)), 0)
    return of("RssAnon:"), of("RssFile:")


def run(karat, files, what):
    before = sum(map(cached, files))
    began = time.monotonic()
    child = subprocess.Popen([karat, "diff", *map(str, files), "--quiet"], stdout=subprocess.PIPE)
    most = (0, 0)
    while child.poll() is None:
        now = memory(child.pid)
        most = tuple(map(max, most, now)) if now else most
        try:
            read = next(int(x.split()[1]) for x in Path(f"/proc/{child.pid}/io").read_text().splitlines() if x.startswith("read_bytes"))
        except (OSError, StopIteration):
            pass
        time.sleep(0.005)
    seconds = time.monotonic() - began
    both = sum(f.stat().st_size for f in files)
    line = {"run": what, "exit": child.returncode, "bytes": both, "cached before": before, "seconds": round(seconds, 2)}
    print(json.dumps({**line, "GB/s": round(both / seconds / 1e9, 2), "from disk": read, "own MiB": most[0] >> 20, "file pages MiB": most[1] >> 20}), flush=True)


def main(karat, out, gib="2"):
    out = Path(out)
    out.mkdir(parents=True)
    files = [out / "a.pt", out / "b.pt"]
    for i, file in enumerate(files):
        write(file, int(gib) * 8, i == 1)
        drop(file)
    run(karat, files, "cold")
    run(karat, files, "warm")


if __name__ == "__main__":
    main(*sys.argv[1:4])
