"""The same operations in PyTorch: eager and torch.compile, medians of CUDA graph replays with rotated inputs.

One process, asked line by line on stdin (`versions`, `mhc TOKENS`, `mla BATCH`, `gemm M N K`); each answer is one line of
JSON, microseconds by name. A peer that fails is left out of its answer, and stderr says why.
"""

import json
import sys

import torch

torch.backends.cuda.matmul.allow_tf32 = False
torch.set_grad_enabled(False)
DEVICE = "cuda"


def graph_us(call, inputs, replays=15):
    """Median microseconds of one call; every input is used once a replay."""
    for x in inputs[:2]:
        call(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for x in inputs:
            call(x)
    for _ in range(3):
        graph.replay()
    times = []
    for _ in range(replays):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / len(inputs))
    return sorted(times)[replays // 2]


def measure(calls, inputs):
    """Microseconds by name of each function, eager and compiled."""
    out = {}
    for name, call, modes in calls:
        for mode in modes:
            try:
                run = call
                if mode == "compile":
                    torch._dynamo.reset()
                    run = torch.compile(call, dynamic=False, fullgraph=True)
                out[f"{name} {mode}"] = graph_us(run, inputs)
            except Exception as error:  # a peer that cannot run is no row
                print(f"{name} {mode}: {error!r}"[:300], file=sys.stderr)
    return out


BOTH = ("eager", "compile")


def mhc(tokens):
    """Products with fn and sum of squares, without Sinkhorn: f32 as published, and the bf16 speed patch."""
    fn = torch.randn(24, 16384, device=DEVICE) / 128
    low = fn.bfloat16()
    size = tokens * 16384 * 2
    inputs = [torch.randn(tokens, 16384, device=DEVICE).bfloat16() for _ in range(min(64, max(3, (512 << 20) // size)))]

    def f32(x):
        x = x.float()
        return torch.nn.functional.linear(x, fn), x.square().sum(-1)

    def patch(x):
        return torch.nn.functional.linear(x, low).float(), x.float().square().sum(-1)

    return measure([("f32", f32, BOTH), ("bf16 patch", patch, BOTH)], inputs)


def mla(batch):
    """Gather, scores, softmax with sink, product; 64 heads, 640 keys of one cache of 262,144 rows."""
    cache = torch.randn(262144, 512, device=DEVICE).bfloat16()
    q = torch.randn(batch, 64, 512, device=DEVICE).bfloat16()
    sink = torch.randn(64, device=DEVICE)
    inputs = [torch.randint(262144, (batch, 640), device=DEVICE) for _ in range(16)]

    def attend(chosen):
        kv = cache[chosen]
        s = torch.matmul(q, kv.transpose(1, 2)).float() * 512**-0.5
        s = torch.cat([s, sink[None, :, None].expand(batch, -1, 1)], dim=-1)
        p = torch.softmax(s, dim=-1)[..., :-1].bfloat16()
        return torch.matmul(p, kv)

    return measure([("bf16", attend, BOTH)], inputs)


def gemm(m, n, k):
    """f32 GEMM of the library without TF32, and its bf16 one."""
    w = torch.randn(n, k, device=DEVICE).bfloat16()
    wide = w.float()
    inputs = [torch.randn(m, k, device=DEVICE) for _ in range(3)]
    calls = [
        ("sgemm", lambda a: torch.nn.functional.linear(a, wide), ("eager",)),
        ("bf16 gemm, a rounded", lambda a: torch.nn.functional.linear(a.bfloat16(), w), ("eager",)),
    ]
    return measure(calls, inputs)


def answer(words):
    if words[0] == "versions":
        return {"torch": torch.__version__, "cuda": str(torch.version.cuda), "python": sys.version.split()[0]}
    sizes = [int(word) for word in words[1:]]
    out = {"mhc": mhc, "mla": mla, "gemm": gemm}[words[0]](*sizes)
    torch.cuda.empty_cache()
    return out


if __name__ == "__main__":
    # Whatever torch prints must not get between the answers.
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        print(json.dumps(answer(line.split())), file=answers, flush=True)
