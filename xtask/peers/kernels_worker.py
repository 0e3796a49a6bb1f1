"""numpy's, torch's and other people's kernels as a worker: matrix products, memory, and comparators of two tensors."""

import os
import sys

THREADS = int(sys.argv[1])

import numpy as np
import torch

import protocol

torch.set_num_threads(THREADS)
PAIR = {}


def product(who, m, n, k):
    """One product [m, k] x [n, k]^T in float32."""
    m, n, k = int(m), int(n), int(k)
    key = ("product", m, n, k)
    if key not in PAIR:
        draw = np.random.default_rng(1)
        a, b = draw.standard_normal((m, k), dtype=np.float32), draw.standard_normal((n, k), dtype=np.float32)
        PAIR[key] = (a, b, torch.from_numpy(a), torch.from_numpy(b))
    a, b, ta, tb = PAIR[key]
    times = max(1, int(2e8 // (m * n * k)))
    run = {"torch": lambda: torch.mm(ta, tb.t()), "numpy": lambda: a @ b.T}[who]
    out = protocol.timed(lambda: [run() for _ in range(times)])
    return {"seconds": out["seconds"] / times}


def pair(mib):
    """Two float32 tensors of so many MiB, of 1,024 columns, one a part in a thousand off the other."""
    n = int(mib) << 18
    if n not in PAIR:
        draw = np.random.default_rng(1)
        x = draw.standard_normal(n, dtype=np.float32)
        y = x + np.float32(1e-3) * draw.standard_normal(n, dtype=np.float32)
        PAIR[n] = (x, y, torch.from_numpy(x), torch.from_numpy(y))
    return PAIR[n]


def narrow(mib):
    """The same in bf16: twice as many elements."""
    key = ("bf16", int(mib))
    if key not in PAIR:
        draw = torch.Generator().manual_seed(1)
        x = torch.randn(int(mib) << 19, generator=draw)
        y = x + 1e-3 * torch.randn(int(mib) << 19, generator=draw)
        PAIR[key] = (None, None, x.bfloat16(), y.bfloat16())
    return PAIR[key]


def mapped(who, folder):
    """The diff engine's files (float32, at their own length), as numpy and as safetensors map them."""
    paths = [os.path.join(folder, f"peer_diff_{side}.safetensors") for side in "ab"]
    if who.startswith("numpy"):
        data = []
        for path in paths:
            with open(path, "rb") as file:
                start = 8 + int.from_bytes(file.read(8), "little")
            data.append(np.memmap(path, dtype=np.float32, mode="r", offset=start))
        return (*data, None, None)
    from safetensors.torch import load_file

    return (None, None, *(load_file(path)["t"].view(-1) for path in paths))


def numpy_full(x, y, tx, ty):
    d = x - y
    ad = np.abs(d)
    _ = float(np.sqrt(np.dot(d, d) / np.dot(x, x))), float(ad.max()), int(ad.argmax()), float(ad.mean()), int(np.isnan(y).sum())
    _ = float(np.dot(x, y) / np.sqrt(np.dot(x, x) * np.dot(y, y)))
    np.histogram(np.log2(ad + 1e-30), bins=64)


def numpy_core(x, y, tx, ty):
    d = x - y
    _ = float(np.sqrt(np.dot(d, d) / np.dot(x, x))), float(np.abs(d).max())
    _ = float(np.dot(x, y) / np.sqrt(np.dot(x, x) * np.dot(y, y)))


def torch_full(x, y, tx, ty):
    tx, ty = tx.float(), ty.float()
    d = tx - ty
    ad = d.abs()
    _ = (d.norm() / tx.norm()).item(), ad.max().item(), torch.nn.functional.cosine_similarity(tx, ty, dim=0).item()
    _ = torch.histc(torch.log2(ad + 1e-30), 64), ad.mean().item(), torch.isnan(ty).sum().item()


def assert_close(x, y, tx, ty):
    torch.testing.assert_close(tx, ty, rtol=1.0, atol=1.0)


def calc_diff(x, y, tx, ty):
    """As public kernel tests measure it: 1 - 2xy / (x^2 + y^2) in double."""
    a, b = tx.double(), ty.double()
    _ = (1 - 2 * (a * b).sum() / (a * a + b * b).sum()).item()


def sglang(seq_dim):
    def run(x, y, tx, ty):
        from sglang_comparator import compare_tensor_pair

        compare_tensor_pair(tx.view(-1, 1024), ty.view(-1, 1024), name="t", seq_dim=seq_dim)

    return run


def polygraphy(x, y, tx, ty):
    from polygraphy.comparator import CompareFunc
    from polygraphy.comparator.struct import IterationResult
    from polygraphy.logger import G_LOGGER

    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    a, b = IterationResult({"o": x}, runner_name="a"), IterationResult({"o": y}, runner_name="b")
    CompareFunc.simple(atol=1.0, rtol=1.0)(a, b)


COMPARATORS = {
    "numpy-full": numpy_full,
    "numpy-core": numpy_core,
    "torch-full": torch_full,
    "assert-close": assert_close,
    "calc-diff": calc_diff,
    "sglang": sglang(None),
    "sglang-per-token": sglang(0),
    "polygraphy": polygraphy,
}


def compare(who, mib, dtype, place, folder):
    """One comparison of the pair."""
    if place == "mapped":
        return protocol.timed(lambda: COMPARATORS[who](*mapped(who, folder)))
    x, y, tx, ty = narrow(mib) if dtype == "bf16" else pair(mib)
    return protocol.timed(lambda: COMPARATORS[who](x, y, tx, ty))


def dot(mib):
    """torch.dot: two reads and nothing else."""
    _, _, tx, ty = pair(mib)
    return protocol.timed(lambda: torch.dot(tx, ty))


def versions():
    from importlib.metadata import version

    names = ("torch", "transformers", "numpy", "safetensors", "polygraphy")
    found = {n: version(n) for n in names}
    found["sglang"] = os.environ.get("KARAT_PEERS_SGLANG", "absent")
    found["python"] = sys.version.split()[0]
    return found


protocol.serve({"product": product, "compare": compare, "dot": dot, "versions": versions})
