#!/usr/bin/env python3
"""Dumps made to harm: `karat diff` must refuse each with one message that names what is wrong, in bounded memory, and run nothing.

    python3 adapters/python/hostile_dumps.py KARAT OUT

KARAT is the program, OUT a new folder. Needs nothing but Python. Prints one line of JSON a file: what it is, its size, the exit code,
the largest resident size of the process (VmHWM, polled), the message. Ends with 1 when one was taken or ran something. The program
gets MOST bytes of memory of its own and no more (RLIMIT_DATA): where it asks for more it is ended, and that counts as taken.
"""

import json
import os
import resource
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from pathlib import Path

MOST = 256 << 20

PROTO, STOP, EMPTY, MARK = b"\x80\x02", b".", b")", b"("


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def tensor(storage_bytes, shape, stride, size=None):
    """A pickle of {"w": a tensor} as torch writes it."""
    number = lambda n: b"\x8a\x08" + struct.pack("<q", n)
    many = lambda ns: MARK + b"".join(map(number, ns)) + b"t"
    size = storage_bytes // 4 if size is None else size
    storage = MARK + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + number(size) + b"tQ"
    args = MARK + storage + number(0) + many(shape) + many(stride) + b"\x89" + b"ccollections\nOrderedDict\n" + EMPTY + b"Rt"
    return PROTO + b"}" + text("w") + b"ctorch._utils\n_rebuild_tensor_v2\n" + args + b"Rs" + STOP


def archive(path, pickle, storage=b"\0" * 64, names=("x/data.pkl", "x/data/0", "x/version")):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        z.writestr(names[0], pickle)
        z.writestr(names[1], storage)
        z.writestr(names[2], "3\n")


def deflated(path, name, head, zeros, level=9):
    """One member of that many zeros behind a head, made piece by piece."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as z, z.open(name, "w", force_zip64=True) as f:
        f.write(head)
        piece = bytes(1 << 20)
        for _ in range(zeros >> 20):
            f.write(piece)


def npy(shape, kind="<f4", extra=""):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, {extra}}}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode()


def overlapping(path):
    """Many members over the same packed bytes."""
    packed = zlib.compress(bytes(1 << 24), 9)[2:-4]
    crc, n = zlib.crc32(bytes(1 << 24)), 4096
    local = struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 0, 8, 0, 0, crc, len(packed), 1 << 24, 5, 0) + b"a.npy" + packed
    central = b""
    for i in range(n):
        name = f"{i:05}".encode()
        central += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, 0, 8, 0, 0, crc, len(packed), 1 << 24, 5, 0, 0, 0, 0, 0, 0) + name
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, n, n, len(central), len(local), 0)
    path.write_bytes(local + central + end)


def files(out):
    """(what it is, a file)."""
    def one(name):
        return out / name

    mark = out / "ran"
    command = f"touch {mark}"
    reduce = lambda module, name, argument: PROTO + f"c{module}\n{name}\n".encode() + text(argument) + b"\x85R" + STOP
    for i, (module, name) in enumerate((("os", "system"), ("builtins", "eval"), ("subprocess", "Popen"), ("torch", "load"), ("torch._utils", "_rebuild_parameter_with_state"), ("numpy.core.multiarray", "_reconstruct"))):
        archive(one(f"global{i}.pt"), reduce(module, name, command))
        yield f"pickle: global {module}.{name}", one(f"global{i}.pt")
    archive(one("stack_global.pt"), b"\x80\x04" + text("posix") + text("system") + b"\x93" + text(command) + b"\x85R" + STOP)
    yield "pickle: STACK_GLOBAL posix.system", one("stack_global.pt")
    archive(one("inst.pt"), PROTO + MARK + text(command) + b"ios\nsystem\n" + STOP)
    yield "pickle: INST os.system", one("inst.pt")
    archive(one("laughs.pt"), PROTO + text("ha") + b"".join(b"q" + bytes([i]) + b"h" + bytes([i]) + b"\x86" for i in range(60)) + STOP)
    yield "pickle: a pair of itself, 60 times over", one("laughs.pt")
    archive(one("deep.pt"), PROTO + b"N" + b"\x85" * 2_000_000 + STOP)
    yield "pickle: 2,000,000 tuples in each other", one("deep.pt")
    archive(one("long.pt"), PROTO + b"\x8d" + struct.pack("<Q", 1 << 62) + b"x" + STOP)
    yield "pickle: a text of 2^62 bytes", one("long.pt")
    full = 60 << 20
    for name, ops in (("memo", b"N" + b"\x94" * full), ("marks", b"(" * full), ("stack", b"N" + b"2" * full), ("values", b")" * full)):
        archive(one(f"many_{name}.pt"), PROTO + ops + STOP)
        yield f"pickle of 60 MiB: {name}", one(f"many_{name}.pt")
    # One tuple of a million, copied by a call of nine bytes a million times: 4 TiB.
    million = b"Nq\x00" + MARK + b"h\x00" * (1 << 20) + b"tq\x01ctorch\nSize\nq\x02"
    archive(one("copies.pt"), PROTO + million + b"h\x02h\x01\x85R" * (1 << 20) + STOP)
    yield "pickle: a tuple of 2^20, copied 2^20 times", one("copies.pt")
    archive(one("axes.pt"), tensor(64, [1] * 100_000, [1] * 100_000))
    yield "tensor of 100,000 axes", one("axes.pt")
    archive(one("shape.pt"), tensor(64, [1 << 40, 1 << 20], [1 << 20, 1]))
    yield "tensor of 2^60 elements over 64 bytes", one("shape.pt")
    archive(one("stride.pt"), tensor(64, [1 << 40], [0]))
    yield "tensor of 2^40 elements by stride 0", one("stride.pt")
    archive(one("wrap.pt"), tensor(64, [(1 << 62), 4], [4, 1]))
    yield "tensor whose size wraps around 2^64", one("wrap.pt")
    archive(one("negative.pt"), tensor(64, [-4], [1]))
    yield "tensor of a negative extent", one("negative.pt")
    archive(one("traversal.pt"), tensor(64, [4], [1]), names=("x/data.pkl", "x/data/0", "../../../../elsewhere/evil"))
    yield "member ../../../../elsewhere/evil", one("traversal.pt")
    archive(one("absolute.pt"), tensor(64, [4], [1]), names=("x/data.pkl", "x/data/0", "/etc/evil"))
    yield "member /etc/evil", one("absolute.pt")
    archive(one("windows.pt"), tensor(64, [4], [1]), names=("x/data.pkl", "x/data/0", "x\\..\\..\\evil"))
    yield "member x\\..\\..\\evil", one("windows.pt")
    deflated(one("bomb.npz"), "a.npy", npy((1 << 30,)), 4 << 30)
    yield "4 GiB of zeros, packed", one("bomb.npz")
    pickle_bomb = out / "pickle_bomb.pt"
    deflated(pickle_bomb, "x/data.pkl", PROTO, 1 << 30)
    yield "a pickle of 1 GiB, packed", pickle_bomb
    overlapping(one("overlap.npz"))
    yield "4096 members over the same 16 MiB", one("overlap.npz")
    whole = one("bomb.npz").read_bytes()
    lie = whole.replace(struct.pack("<Q", (4 << 30) + len(npy((1 << 30,)))), struct.pack("<Q", 1 << 20))
    one("lie.npz").write_bytes(lie)
    yield "4 GiB of zeros that say they are 1 MiB", one("lie.npz")
    one("shape.npy").write_bytes(npy((1 << 40, 1 << 30)) + bytes(64))
    yield "npy of 2^70 elements", one("shape.npy")
    one("object.npy").write_bytes(npy((1,), "|O") + reduce("os", "system", command))
    yield "npy of pickled objects", one("object.npy")
    one("head.npy").write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 0xFFFFFFF0) + b"{" * 64)
    yield "npy with a header of 4 GiB", one("head.npy")
    one("nested.npy").write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 20) + b"(" * (1 << 20))
    yield "npy with 2^20 brackets", one("nested.npy")
    one("head.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    yield "safetensors with a header of 2^60 bytes", one("head.safetensors")
    deep = b'{"a":' + b"[" * (1 << 20)
    one("nested.safetensors").write_bytes(struct.pack("<Q", len(deep)) + deep)
    yield "safetensors with 2^20 brackets", one("nested.safetensors")
    for name, shape, offsets in (("range", [4], [0, 1 << 50]), ("shape", [1 << 40, 1 << 40], [0, 16])):
        head = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": offsets}}).encode()
        one(f"{name}.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + bytes(16))
        yield f"safetensors: {name} beyond the file", one(f"{name}.safetensors")


def ran(karat, file):
    """Exit code, message and largest resident size of one run."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (MOST, MOST))
    command = [karat, "diff", str(file), str(file), "--quiet"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=limit)
    most = 0
    while child.poll() is None:
        try:
            status = Path(f"/proc/{child.pid}/status").read_text()
            name, peak = (next((x.split()[1] for x in status.splitlines() if x.startswith(f)), "0") for f in ("Name:", "VmHWM:"))
            most = max(most, int(peak) << 10) if name.startswith("karat") else most
        except OSError:
            pass
        time.sleep(0.001)
    return child.returncode, child.stdout.read().decode().strip(), most


def main(karat, out):
    out = Path(out)
    out.mkdir(parents=True)
    bad = 0
    for what, file in files(out):
        code, said, most = ran(karat, file)
        refused = code == 3 and said.count("\n") < 4 and not (out / "ran").exists()
        bad += not refused
        line = {"file": what, "bytes": file.stat().st_size, "exit": code, "resident": most, "refused": refused, "said": said.replace(str(out) + "/", "")}
        print(json.dumps(line), flush=True)
    print(json.dumps({"not refused": bad}))
    sys.exit(bad > 0)


if __name__ == "__main__":
    main(*sys.argv[1:3])
