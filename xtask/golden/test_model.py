"""CPU tests of the training code: KARAT_ORACLE=FOLDER TRITON_INTERPRET=1 pytest xtask/golden. The folder is the oracle's
(tiny-v4/ and oracle-*.safetensors)."""

import json
import os

import pytest
import torch

import checkpoint
import model
from shape import Shape

ORACLE = os.environ.get("KARAT_ORACLE")


@pytest.mark.skipif(not ORACLE, reason="KARAT_ORACLE names no folder")
@pytest.mark.parametrize("length", ["short", "long"])
def test_the_pass_agrees_with_the_oracle(length):
    s = Shape.from_config(json.load(open(f"{ORACLE}/tiny-v4/config.json")))
    weights, tables = checkpoint.load(f"{ORACLE}/tiny-v4/model.safetensors", s.experts)
    want = {k: t for k, (_, t) in checkpoint.read_raw(f"{ORACLE}/oracle-{length}.safetensors").items()}
    taps = {}
    logits, mtp = model.Exact(s, weights, tables).run(want["input_ids"], True, taps)

    def off(got, name):
        assert got.shape == want[name].shape, name
        if not got.numel():
            return 0.0
        return ((got - want[name]).abs().max() / want[name].abs().max()).item()

    assert off(logits, "logits") <= 2e-5
    assert off(mtp, "port.mtp_logits") <= 2e-5
    for name, got in taps.items():
        if name.endswith("selected"):
            assert torch.equal(got, want["port." + name].bool()), name
        else:
            assert off(got, "port." + name) <= 1e-5, name


TINY = Shape(vocab=64, hidden=128, ratios=(0, 4, 128, 4, 0), heads=4, o_lora=64, experts=3, hash_layers=1, window=32, index_topk=8)


def first_weights(s):
    import initial

    weights, tables = initial.weights(s, 1)
    weights = {k: w.clone().requires_grad_(not k.endswith("gate.bias")) for k, w in weights.items()}
    return weights, tables, {k: torch.zeros(s.vocab, s.experts).scatter(1, t, 1.0) for k, t in tables.items()}


def copy_task(batch, length, generator):
    """A marker and three symbols early on; the marker again at the end, then the same three: classes mark the answer."""
    ids = torch.randint(16, 64, (batch, length), generator=generator)
    classes = torch.zeros_like(ids)
    at = torch.randint(1, length - 16, (batch, 1), generator=generator)
    span = torch.arange(4)[None]
    fact = torch.cat((torch.full((batch, 1), 5), torch.randint(6, 16, (batch, 3), generator=generator)), 1)
    ids.scatter_(1, at + span, fact)
    ids[:, -4:] = fact
    classes[:, -3:] = 2
    return ids, classes


def test_the_training_pass_is_the_exact_pass():
    import forward

    s = TINY
    weights, _, onehot = first_weights(s)
    trainer = forward.Trainer(s, weights, onehot, "cpu", False, torch.float32)
    ids, classes = copy_task(3, 256, torch.Generator().manual_seed(2))
    _, seen, _ = trainer.run(ids, classes, True)
    exact = model.Exact(s, {k: w.detach() for k, w in weights.items()}, onehot)
    ce = []
    for row in range(3):
        logits, _ = exact.run(ids[row])
        ce.append(torch.nn.functional.cross_entropy(logits[-4:-1], ids[row, -3:]))
    assert abs(seen["answer"].item() - torch.stack(ce).mean().item()) < 2e-5


def test_training_lowers_the_loss_and_keeps_weights_exact(tmp_path):
    import forward
    import optimiser

    s = TINY
    weights, tables, onehot = first_weights(s)
    trainer = forward.Trainer(s, weights, onehot, "cpu", False, torch.float32)
    opt = optimiser.Optimiser(weights, "cpu")
    g = torch.Generator().manual_seed(3)
    seen = []
    for step in range(30):
        ids, classes = copy_task(4, 128, g)
        loss, values, counts = trainer.run(ids, classes, step > 10)
        loss.backward()
        opt.step(torch.tensor(2e-3))
        opt.balance(counts)
        seen.append(values["answer"].item())
    assert sum(seen[-5:]) < 0.75 * sum(seen[:5]), seen
    path = tmp_path / "model.safetensors"
    checkpoint.save(path, weights, tables, {"format": "pt"})
    loaded, back = checkpoint.load(path, s.experts)
    assert loaded.keys() == weights.keys()
    for name, w in weights.items():
        assert torch.equal(loaded[name], w.detach()), name
    for name, t in onehot.items():
        assert torch.equal(back[name], t), name


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1 without a GPU")
def test_the_sinkhorn_kernel_is_the_unrolled_one():
    import ops
    import sinkhorn

    c = (torch.randn(70, 4, 4, generator=torch.Generator().manual_seed(4)) * 2).softmax(-1) + 1e-6
    g = torch.randn(70, 4, 4, generator=torch.Generator().manual_seed(5))
    got = []
    for f in (ops.balanced, sinkhorn.balanced):
        x = c.clone().requires_grad_()
        y = f(x, TINY)
        y.backward(g)
        got.append((y.detach(), x.grad))
    assert torch.allclose(got[0][0], got[1][0], atol=1e-6)
    assert torch.allclose(got[0][1], got[1][1], atol=1e-5)
