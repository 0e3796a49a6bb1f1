"""The same operations in PyTorch: eager and torch.compile, medians of CUDA graph replays with rotated inputs.

One process, asked line by line on stdin (`versions`, `mhc TOKENS`, `mla BATCH`, `gemm M N K`, ...); each answer is one line
of JSON, microseconds by name. A peer that fails is left out of its answer, and stderr says why.
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


def index(batch, real, room, shared):
    """Index scores of FP8 codes over the whole room of the page table, masked, and the best 512: as engines fall back to."""
    page, pages = 64, real // 64
    cache = torch.randn(pages if shared else pages * batch, page, 128, device=DEVICE).to(torch.float8_e4m3fn)
    scale = torch.rand(cache.shape[:2], device=DEVICE)
    table = torch.randint(cache.shape[0], (1 if shared else batch, room // page), device=DEVICE)
    weight = torch.randn(batch, 64, device=DEVICE)
    visible = torch.full((batch, 1), real, device=DEVICE)
    place = torch.arange(room, device=DEVICE)
    queries = [torch.randn(batch, 64, 128, device=DEVICE).to(torch.float8_e4m3fn) for _ in range(8)]

    def choose(q):
        keys = cache.view(torch.uint8)[table].view(torch.float8_e4m3fn).bfloat16().reshape(table.shape[0], room, 128)
        s = torch.matmul(q.bfloat16(), keys.transpose(1, 2)).float()
        s = (torch.relu(s) * weight[:, :, None]).sum(1) * scale[table].reshape(table.shape[0], room)
        s = s.masked_fill(place >= visible, float("-inf"))
        return torch.topk(s, 512, dim=-1)

    return measure([("scores and topk", choose, BOTH)], queries)


def moe(tokens):
    """Dequantise the experts' MXFP4 weights to bf16, then multiply: the chosen ones' (bmm or grouped_mm; up to 16 tokens), or all of
    them (grouped_mm)."""
    experts, picks, width, inner = 256, 6, 4096, 2048
    values = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    lut = torch.tensor(values + [-v for v in values], device=DEVICE).bfloat16()
    lut2 = torch.stack([lut.repeat(16), lut.repeat_interleave(16)], -1)

    def packed(rows, columns):
        codes = torch.randint(256, (experts, rows, columns // 2), device=DEVICE, dtype=torch.uint8)
        return codes, torch.randint(117, 121, (experts, rows, columns // 32), device=DEVICE, dtype=torch.uint8)

    def wide(codes, scale):
        w = lut2[codes.int()].flatten(-2)
        s = (scale.int() << 23).view(torch.float32).bfloat16()
        return (w.unflatten(-1, (-1, 32)) * s[..., None]).flatten(-2)

    up, down = packed(2 * inner, width), packed(width, inner)
    x = torch.randn(tokens, width, device=DEVICE).bfloat16()
    weight = torch.rand(tokens, picks, device=DEVICE)
    count = 4 if tokens <= 16 else 2
    inputs = [torch.rand(tokens, experts, device=DEVICE).topk(picks).indices for _ in range(count)]

    def swiglu(h, wt):
        g, u = h.float().chunk(2, -1)
        return (torch.nn.functional.silu(g.clamp(max=10)) * u.clamp(-10, 10) * wt).bfloat16()

    def chosen(idx):
        e = idx.flatten()
        h = torch.bmm(x.repeat_interleave(picks, 0)[:, None], wide(up[0][e], up[1][e]).transpose(1, 2))
        a = swiglu(h, weight.flatten()[:, None, None])
        y = torch.bmm(a, wide(down[0][e], down[1][e]).transpose(1, 2))
        return y.float().view(tokens, picks, width).sum(1)

    def chosen_grouped(idx):
        e = idx.flatten()
        ends = torch.arange(1, e.numel() + 1, device=DEVICE, dtype=torch.int32)
        h = torch._grouped_mm(x.repeat_interleave(picks, 0), wide(up[0][e], up[1][e]).transpose(1, 2), offs=ends)
        a = swiglu(h, weight.flatten()[:, None])
        y = torch._grouped_mm(a, wide(down[0][e], down[1][e]).transpose(1, 2), offs=ends)
        return y.float().view(tokens, picks, width).sum(1)

    def grouped(idx):
        e = idx.flatten()
        order = torch.argsort(e)
        ends = (e[:, None] == torch.arange(experts, device=DEVICE)).sum(0).cumsum(0).int()
        rows = x[order // picks]
        h = torch._grouped_mm(rows, wide(*up).transpose(1, 2), offs=ends)
        a = swiglu(h, weight.flatten()[order][:, None])
        y = torch._grouped_mm(a, wide(*down).transpose(1, 2), offs=ends)
        out = torch.zeros(tokens * picks, width, device=DEVICE)
        out[order] = y.float()
        return out.view(tokens, picks, width).sum(1)

    calls = [("dequantise and grouped_mm", grouped, ("compile",))]
    if tokens <= 16:
        calls.append(("dequantise the chosen and bmm", chosen, ("compile",)))
        calls.append(("dequantise the chosen and grouped_mm", chosen_grouped, ("compile",)))
    return measure(calls, inputs)


def compress(tokens, dims, ratio):
    """Compressor with two series where the ratio is 4: projections in f32 (as published) or bf16, pooling and norm in f32."""
    columns = dims * (2 if ratio == 4 else 1)
    w = torch.randn(2 * columns, 4096, device=DEVICE).bfloat16() / 64
    wide = w.float()
    ape, norm = torch.randn(ratio, columns, device=DEVICE), torch.rand(dims, device=DEVICE)
    windows = tokens // ratio
    turns = torch.rand(windows, 32, 2, device=DEVICE)
    inputs = [torch.randn(tokens, 4096, device=DEVICE).bfloat16() for _ in range(3)]

    def pool(rows):
        kv, z = rows.view(windows, ratio, 2, columns).unbind(2)
        z = z + ape
        if ratio == 4:
            first = torch.full_like(z[:1, :, :dims], float("-inf"))
            z = torch.cat([torch.cat([first, z[:-1, :, :dims]]), z[:, :, dims:]], 1)
            kv = torch.cat([torch.cat([torch.zeros_like(first), kv[:-1, :, :dims]]), kv[:, :, dims:]], 1)
        e = (torch.softmax(z, 1) * kv).sum(1).bfloat16().float()
        e = (norm * (e * torch.rsqrt(e.square().mean(-1, keepdim=True) + 1e-6))).bfloat16()
        a, b = e[:, -64:].float().unflatten(-1, (32, 2)).unbind(-1)
        c, s = turns.unbind(-1)
        turned = torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2).bfloat16()
        return torch.cat([e[:, :-64], turned], -1)

    calls = [
        ("f32", lambda x: pool(torch.nn.functional.linear(x.float(), wide)), BOTH),
        ("bf16, rows rounded", lambda x: pool(torch.nn.functional.linear(x, w).float()), BOTH),
    ]
    return measure(calls, inputs)


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


def compare(bits, n):
    """Two flat tensors, one pass each way: sums for rel-L2, cosine and bias, the largest distance, and how many are NaN."""
    x = torch.randn(n, device=DEVICE)
    y = x + 0.01 * torch.randn(n, device=DEVICE)
    if bits == 16:
        x, y = x.bfloat16(), y.bfloat16()

    def core(pair):
        a, b = pair[0].float(), pair[1].float()
        d = b - a
        sums = [d.square().sum(), a.square().sum(), b.square().sum(), (a * b).sum(), d.sum(), d.abs().max()]
        return torch.stack(sums), a.isnan().sum(), b.isnan().sum()

    return measure([("sums, max and NaN", core, BOTH)], [(x, y)])


def answer(words):
    if words[0] == "versions":
        return {"torch": torch.__version__, "cuda": str(torch.version.cuda), "python": sys.version.split()[0]}
    sizes = [int(word) for word in words[1:]]
    out = {"mhc": mhc, "mla": mla, "index": index, "moe": moe, "compress": compress, "compare": compare, "gemm": gemm}[words[0]](*sizes)
    torch.cuda.empty_cache()
    return out


if __name__ == "__main__":
    # Whatever torch prints must not get between the answers.
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        print(json.dumps(answer(line.split())), file=answers, flush=True)
