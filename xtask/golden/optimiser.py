"""Muon on matrices, AdamW on the rest. Masters are float32; the weights that the forward pass sees are always the
masters rounded to the checkpoint's formats, so gradients pass straight through the rounding."""

import re

import torch

import quant

ADAM = re.compile(r"(embed|head|norm|gate)\.weight$|ape$|sink$|hc_")
MOMENTUM, DECAY = 0.95, 0.05
BETA1, BETA2, EPS = 0.9, 0.95, 1e-10


def orthogonalise(g):
    """Newton-Schulz, five steps, on a stack of matrices [n, r, c] with r <= c."""
    x = g / (g.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    for a, b, c in [(3.4445, -4.7750, 2.0315)] * 5:
        y = x @ x.mT
        x = a * x + (b * y + c * (y @ y)) @ x
    return x


def muon(master, velocity, grad, lr, work):
    """(master, velocity) after one step."""
    velocity = MOMENTUM * velocity + grad
    step = (grad + MOMENTUM * velocity).to(work)
    tall = step.shape[1] > step.shape[2]
    step = orthogonalise(step.mT if tall else step)
    step = (step.mT if tall else step).float()
    size = 0.2 * max(master.shape[1:]) ** 0.5
    master = master * (1 - lr * DECAY) - lr * size * step
    return master, velocity


def adam(master, first, second, grad, lr, decay, step):
    """(master, first, second) after one step; all flat."""
    first = BETA1 * first + (1 - BETA1) * grad
    second = BETA2 * second + (1 - BETA2) * grad.square()
    hat = (first / (1 - BETA1**step)) / ((second / (1 - BETA2**step)).sqrt() + EPS)
    master = master * (1 - lr * DECAY * decay) - lr * hat
    return master, first, second


class Optimiser:
    """Owns the masters. `weights` are leaves that require gradients; gate.bias is moved by balance() alone."""

    def __init__(self, weights, device):
        self.weights = weights
        self.work = torch.bfloat16 if device == "cuda" else torch.float32
        groups, flat = {}, []
        for name, w in weights.items():
            if name.endswith("gate.bias"):
                continue
            if ADAM.search(name) or w.dim() < 2:
                flat.append(name)
            else:
                groups.setdefault((quant.kind(name), tuple(w.shape[-2:])), []).append(name)
        self.groups = dict(sorted(groups.items()))
        self.flat = flat
        self.state = {"step": torch.zeros((), device=device)}
        for key, names in self.groups.items():
            self.state[f"{key}.master"] = torch.cat([weights[n].detach().reshape(-1, *key[1]) for n in names])
            self.state[f"{key}.velocity"] = torch.zeros_like(self.state[f"{key}.master"])
        self.state["flat.master"] = torch.cat([weights[n].detach().flatten() for n in flat])
        for part in ("first", "second"):
            self.state["flat." + part] = torch.zeros_like(self.state["flat.master"])
        each = [(weights[n], torch.ones(weights[n].numel(), device=device)) for n in flat]
        self.decay = torch.cat([one * (n in ("embed.weight", "head.weight")) for n, (_, one) in zip(flat, each)])
        self.half = torch.cat([one * (quant.kind(n) == "bf16") for n, (_, one) in zip(flat, each)]).bool()

    def step(self, lr, clip=1.0):
        """One update from the gradients, which it clears. Returns the gradient norm."""
        used = [w for w in self.weights.values() if w.grad is not None]
        norm = torch.stack(torch._foreach_norm([w.grad for w in used])).norm()
        torch._foreach_mul_([w.grad for w in used], (clip / (norm + 1e-6)).clamp(max=1.0))
        self.state["step"] += 1
        targets, values = [], []
        for key, names in self.groups.items():
            grad = torch.cat([self.grad(n).reshape(-1, *key[1]) for n in names])
            m, v = muon(self.state[f"{key}.master"], self.state[f"{key}.velocity"], grad, lr, self.work)
            rounded = quant.snap(key[0], m)
            targets += [self.state[f"{key}.master"], self.state[f"{key}.velocity"]]
            values += [m, v]
            sizes = [self.weights[n].numel() // (key[1][0] * key[1][1]) for n in names]
            targets += [self.weights[n] for n in names]
            values += [part.view_as(self.weights[n]) for part, n in zip(rounded.split(sizes), names)]
        grad = torch.cat([self.grad(n).flatten() for n in self.flat])
        s = self.state
        m, f, v = adam(s["flat.master"], s["flat.first"], s["flat.second"], grad, lr, self.decay, s["step"])
        rounded = torch.where(self.half, m.bfloat16().float(), m)
        targets += [s["flat.master"], s["flat.first"], s["flat.second"]]
        values += [m, f, v]
        targets += [self.weights[n] for n in self.flat]
        sizes = [self.weights[n].numel() for n in self.flat]
        values += [part.view_as(self.weights[n]) for part, n in zip(rounded.split(sizes), self.flat)]
        with torch.no_grad():
            torch._foreach_copy_(targets, values)
        for w in self.weights.values():
            w.grad = None
        return norm

    def grad(self, name):
        """The gradient, or zeros where this step's length left the tensor out."""
        w = self.weights[name]
        return torch.zeros_like(w) if w.grad is None else w.grad

    def balance(self, counts, rate=1e-3):
        """Moves each scored layer's selection bias towards even use; counts {bias name: [E]}."""
        for name, count in counts.items():
            self.weights[name].data += rate * torch.sign(count.mean() - count)
