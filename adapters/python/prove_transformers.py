#!/usr/bin/env python3
"""The helper against transformers' DeepseekV4ForCausalLM on the mini golden model: its trace passes `karat audit --claims f32`,
and faults put into transformers' model are named at their layer and tap.

    python3 adapters/python/prove_transformers.py KARAT OUT [IDS]

KARAT is the program, OUT a new folder for the traces; IDS (default 300) ids of the recorded conversation are run. Needs torch
2.15 and transformers 5.24 on a CPU. Prints one line of JSON a run.
"""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from transformers import DynamicCache

ROOT = Path(__file__).resolve().parent.parent.parent
# Behind the standard library: the training code has a module of the name `select`.
sys.path += [str(Path(__file__).parent), str(ROOT / "xtask/oracle"), str(ROOT / "xtask/golden")]

import transformers_golden as golden
from karat_capture import TRANSFORMERS, Capture, TransformersPages
from trim import read_gz


@contextlib.contextmanager
def scaled(parameter, factor, rows=slice(None)):
    with torch.no_grad():
        before = parameter.clone()
        parameter[rows] *= factor
    try:
        yield
    finally:
        with torch.no_grad():
            parameter.copy_(before)


@contextlib.contextmanager
def replaced(owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def output(module, change):
    hook = module.register_forward_hook(lambda _m, _i, out: change(out), prepend=True)
    try:
        yield
    finally:
        hook.remove()


def faults(net):
    """(name, layer, taps any of which is the right place, fault)."""
    layers = net.model.layers
    a = lambda l: layers[l].self_attn
    yield "attention sink of head 0 off by 2", 1, ("attn.oa", "attn.out"), lambda: added(a(1).sinks, 2.0)
    yield "attention scale off by 5 %", 2, ("attn.oa", "attn.out"), lambda: replaced(a(2), "scaling", a(2).scaling * 1.05)
    yield "kv norm off by 1 %", 3, ("attn.oa", "attn.out"), lambda: scaled(a(3).kv_norm.weight, 1.01)
    yield "q norm off by 1 %", 0, ("attn.qr",), lambda: scaled(a(0).q_a_norm.weight, 1.01)
    yield "compressor's rows off by 1 %", 4, ("attn.kvp",), lambda: scaled(a(4).compressor.kv_proj.weight, 1.01)
    yield "compressor's position bias lost", 5, ("attn.oa", "attn.out"), lambda: scaled(a(5).compressor.position_bias, 0.0)
    yield "wo_a of one group off by 1 %", 6, ("attn.oa",), lambda: scaled(a(6).o_a_proj.weight, 1.01, slice(0, 8))
    yield "routed scaling factor lost", 4, ("ffn.wt",), lambda: replaced(layers[4].mlp.gate, "routed_scaling_factor", 1.0)
    yield "shared expert without its clamp, ten times too small", 3, ("ffn.shared",), lambda: replaced(layers[3].mlp.shared_experts, "limit", layers[3].mlp.shared_experts.limit / 10)
    yield "shared expert lost", 5, ("ffn.shared",), lambda: scaled(layers[5].mlp.shared_experts.down_proj.weight, 0.0)
    yield "one routed expert's gate and up swapped", 2, ("ffn.routed",), lambda: swapped(layers[2].mlp.experts.gate_up_proj)
    yield "gate scores shifted by one row", 6, ("ffn.router_logits", "ffn.idx"), lambda: output(layers[6].mlp.gate, lambda o: (o[0].roll(1, 0), o[1], o[2]))
    yield "two experts of each row swapped without their weights", 5, ("ffn.idx", "ffn.routed"), lambda: output(layers[5].mlp.gate, lambda o: (o[0], o[1].flip(-1), o[2]))
    yield "attention's streams mixed by the transposed matrix", 1, ("hc_attn.comb",), lambda: output(layers[1].attn_hc, lambda o: (o[0], o[1].transpose(-1, -2), o[2]))
    yield "feed-forward's post weights halved", 3, ("hc_ffn.post",), lambda: output(layers[3].ffn_hc, lambda o: (o[0] / 2, o[1], o[2]))
    yield "one Sinkhorn iteration", 2, ("hc_attn.comb",), lambda: replaced(layers[2].attn_hc, "hc_sinkhorn_iters", 1)
    yield "attention's input rounded to bf16", 4, ("attn.in",), lambda: output(layers[4].input_layernorm, lambda o: o.bfloat16().float())
    yield "one row of the layer's output is the row before", 0, ("out",), lambda: output(layers[0], stale)
    yield "final norm off by 1 %", "head", ("logits",), lambda: scaled(net.model.norm.weight, 1.01)
    yield "index keys off: another entry is chosen", 4, ("attn.index_kvp",), lambda: scaled(a(4).compressor.indexer.kv_proj.weight, -1.0)


@contextlib.contextmanager
def added(parameter, value):
    with torch.no_grad():
        parameter[0] += value
    try:
        yield
    finally:
        with torch.no_grad():
            parameter[0] -= value


@contextlib.contextmanager
def swapped(gate_up):
    half = gate_up.shape[1] // 2
    with torch.no_grad():
        before = gate_up.clone()
        gate_up[0] = torch.cat((before[0, half:], before[0, :half]))
    try:
        yield
    finally:
        with torch.no_grad():
            gate_up.copy_(before)


def stale(out):
    out = out.clone()
    out[:, 100] = out[:, 99]
    return out


def run(net, ids, folder):
    with Capture(net, TRANSFORMERS, mode="eager", producer=f"karat-capture, transformers {transformers.__version__}") as capture:
        with capture.sequence("a", ids), torch.inference_mode():
            net(ids[None], use_cache=False)
        return capture.write(folder)


def warm(net, ids, folder, between=lambda cache: contextlib.nullcontext()):
    """A warm conversation: all but the last eight ids in one prefill, those decoded; of them alone rows and the pages are kept.
    `between` happens before the decode steps."""
    cache = DynamicCache(config=net.config)
    first = len(ids) - 8
    options = {"mode": "eager", "positions": range(first, len(ids)), "pages": TransformersPages(lambda _: cache)}
    with Capture(net, TRANSFORMERS, **options) as capture, torch.inference_mode():
        with capture.sequence("a", ids[:first]):
            net(ids[None, :first], past_key_values=cache, use_cache=True)
        with between(cache):
            for at in range(first, len(ids)):
                with capture.sequence("a", ids[at : at + 1], kind="decode"):
                    net(ids[None, at : at + 1], past_key_values=cache, use_cache=True)
        return capture.write(folder)


@contextlib.contextmanager
def spoilt(entries):
    """Some entries become those behind them."""
    entries[:, 20:28] = 0.9 * entries[:, 28:36]  # no ties
    yield


def sampled(net):
    """(name, cache or kernel, layer, what happens before the decode steps)."""
    a = lambda l: net.model.layers[l].self_attn
    yield "unchanged", None, None, lambda cache: contextlib.nullcontext()
    yield "eight entries of layer 4 are others", "cache", 4, lambda cache: spoilt(cache.layers[4].compressed_kv["compressor"])
    yield "an entry's index keys of layer 2 are others", "cache", 2, lambda cache: spoilt(cache.layers[2].compressed_kv["indexer"])
    yield "attention scale of layer 3 off by 5 % in decode", "kernel", 3, lambda cache: replaced(a(3), "scaling", a(3).scaling * 1.05)
    yield "shared expert of layer 5 lost in decode", "kernel", 5, lambda cache: scaled(net.model.layers[5].mlp.shared_experts.down_proj.weight, 0.0)


def audit(karat, folder):
    done = subprocess.run([karat, "audit", "--candidate", folder, "--claims", "f32", "--json", "--quiet", "--no-cache"], capture_output=True, text=True)
    return json.loads(done.stdout), done.returncode


def main(karat, out, count="300"):
    out = Path(out)
    model = ROOT / "golden"
    c = json.loads((model / "config.json").read_text())
    torch.set_num_threads(2)
    net = golden.DeepseekV4ForCausalLM(golden.config(c)).float().eval()
    missing, unexpected = net.load_state_dict(golden.state(model / "model.safetensors", c["n_routed_experts"]), strict=False)
    missing = [m for m in missing if not m.endswith("inv_freq")]
    assert not missing and not unexpected, (missing, unexpected)
    _, tensors = read_gz(ROOT / "tests/fixtures/golden/torch.safetensors.gz")
    ids = torch.frombuffer(bytearray(tensors["ids"][2]), dtype=torch.int64)[: int(count)]
    data, code = audit(karat, run(net, ids, out / "clean"))
    print(json.dumps({"fault": None, "exit": code, "verdict": data.get("verdict")}), flush=True)
    assert code == 0, data
    found = 0
    cases = list(faults(net))
    for number, (name, layer, taps, fault) in enumerate(cases):
        with fault():
            folder = run(net, ids, out / f"fault{number}")
        data, code = audit(karat, folder)
        first = data.get("first_bad") or data.get("first") or {}
        named = code == 1 and str(first.get("layer")) == str(layer) and first.get("tap") in taps
        found += named
        print(json.dumps({"fault": name, "expected": [layer, *taps], "exit": code, "first": first, "named": named}), flush=True)
    print(json.dumps({"named": found, "of": len(cases)}), flush=True)
    for number, (name, fault, layer, between) in enumerate(sampled(net)):
        data, code = audit(karat, warm(net, ids, out / f"warm{number}", between))
        first = data.get("first_bad") or {}
        said = (data.get("examination") or {}).get("summary") or ""
        named = code == 0 if fault is None else code == 1 and said.startswith(fault + ":") and str(first.get("layer")) == str(layer)
        print(json.dumps({"sampled": name, "expected": [fault, layer], "exit": code, "verdict": data.get("verdict"), "said": said, "named": named}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4])
