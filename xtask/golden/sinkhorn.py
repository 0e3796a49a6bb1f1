"""ops.balanced as one Triton kernel each way. Forward keeps the 39 factors of the normalisations; backward walks them
back: where C' = C r with r = 1 / (sum + eps), dC = r (dC' - sum(dC' C')), and C = C' / r."""

import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

BLOCK = 64

if triton:

    @triton.jit
    def forward_kernel(c_ptr, out_ptr, keep_ptr, n, eps, steps: tl.constexpr, block: tl.constexpr):
        rows = tl.program_id(0) * block + tl.arange(0, block)
        cell = tl.arange(0, 4)[None, :, None] * 4 + tl.arange(0, 4)[None, None, :]
        at = rows[:, None, None] * 16 + cell
        ok = (rows < n)[:, None, None] & (cell >= 0)
        c = tl.load(c_ptr + at, mask=ok, other=0.25)
        four = tl.arange(0, 4)
        line = rows[:, None] * 4 + four[None, :]
        lines_ok = (rows < n)[:, None] & (four >= 0)[None, :]
        for step in range(steps):
            if step % 2 == 0:
                r = 1.0 / (tl.sum(c, axis=1) + eps)
                c = c * tl.expand_dims(r, 1)
            else:
                r = 1.0 / (tl.sum(c, axis=2) + eps)
                c = c * tl.expand_dims(r, 2)
            tl.store(keep_ptr + step * n * 4 + line, r, mask=lines_ok)
        tl.store(out_ptr + at, c, mask=ok)

    @triton.jit
    def backward_kernel(g_ptr, out_ptr, keep_ptr, grad_ptr, n, steps: tl.constexpr, block: tl.constexpr):
        rows = tl.program_id(0) * block + tl.arange(0, block)
        cell = tl.arange(0, 4)[None, :, None] * 4 + tl.arange(0, 4)[None, None, :]
        at = rows[:, None, None] * 16 + cell
        ok = (rows < n)[:, None, None] & (cell >= 0)
        g = tl.load(g_ptr + at, mask=ok, other=0.0)
        c = tl.load(out_ptr + at, mask=ok, other=0.25)
        four = tl.arange(0, 4)
        line = rows[:, None] * 4 + four[None, :]
        lines_ok = (rows < n)[:, None] & (four >= 0)[None, :]
        for back in range(steps):
            step = steps - 1 - back
            r = tl.load(keep_ptr + step * n * 4 + line, mask=lines_ok, other=1.0)
            if step % 2 == 0:
                dot = tl.sum(g * c, axis=1)
                g = (g - tl.expand_dims(dot, 1)) * tl.expand_dims(r, 1)
                c = c / tl.expand_dims(r, 1)
            else:
                dot = tl.sum(g * c, axis=2)
                g = (g - tl.expand_dims(dot, 2)) * tl.expand_dims(r, 2)
                c = c / tl.expand_dims(r, 2)
        tl.store(grad_ptr + at, g, mask=ok)


class Balanced(torch.autograd.Function):
    """[N, 4, 4] to [N, 4, 4]."""

    @staticmethod
    def forward(ctx, c, iterations, eps):
        c = c.contiguous()
        n, steps = c.shape[0], 2 * iterations - 1
        out, keep = torch.empty_like(c), c.new_empty(steps, n, 4)
        forward_kernel[(triton.cdiv(n, BLOCK),)](c, out, keep, n, eps, steps, BLOCK)
        ctx.save_for_backward(out, keep)
        ctx.steps = steps
        return out

    @staticmethod
    def backward(ctx, g):
        out, keep = ctx.saved_tensors
        g = g.contiguous()
        grad = torch.empty_like(g)
        n = g.shape[0]
        backward_kernel[(triton.cdiv(n, BLOCK),)](g, out, keep, grad, n, ctx.steps, BLOCK)
        return grad, None, None


def balanced(c, s):
    """ops.balanced, on CUDA."""
    return Balanced.apply(c, s.hc_iters, s.hc_eps)
