"""The number formats of the released checkpoint (spec sections 2.12 and 4): which tensor has which, rounding a float32
tensor to values that its format holds, and packing those values to bytes."""

import re

import torch

BLOCK = 128
GROUP = 32
CODES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
FP8 = re.compile(r"(wq_a|wq_b|wkv|wo_a|wo_b|shared_experts\.w[123]|e_proj|h_proj)\.weight$")


def kind(name):
    """"fp4", "fp8", "f32" or "bf16" for a tensor of the checkpoint."""
    if ".ffn.experts." in name:
        return "fp4"
    if FP8.search(name) and "compressor" not in name:
        return "fp8"
    if re.search(r"(ape|attn_sink|gate\.bias|hc_\w+_(fn|base|scale))$", name):
        return "f32"
    return "bf16"


def power_above(x):
    """2^ceil(log2(x)) of a positive float32 tensor, by exponent bits (no logarithm is rounded)."""
    mantissa, exponent = torch.frexp(x)
    exponent = exponent - (mantissa == 0.5).int()
    return torch.ldexp(torch.ones_like(x), exponent.clamp(-126, 127))


def snap_fp8(w):
    """w [.., M, K] to E4M3 values with one power-of-two scale a 128x128 block; and the scales [.., M/128, K/128]."""
    m, k = w.shape[-2:]
    pad = torch.nn.functional.pad(w, (0, -k % BLOCK, 0, -m % BLOCK))
    tiles = pad.unflatten(-1, (-1, BLOCK)).unflatten(-3, (-1, BLOCK))
    scale = power_above(tiles.abs().amax((-3, -1)).clamp_min(1e-30) / 448)
    spread = scale[..., :, None, :, None]
    codes = (tiles / spread).clamp(-448, 448).to(torch.float8_e4m3fn)
    values = (codes.float() * spread).flatten(-4, -3).flatten(-2, -1)
    return values[..., :m, :k], scale


def round_fp4(x):
    """The nearest E2M1 value, ties to the even code."""
    a = x.abs().clamp(max=6)
    step = torch.where(a < 2, 0.5, torch.where(a < 4, 1.0, 2.0))
    return torch.copysign((a / step).round() * step, x)


def snap_fp4(w):
    """w [.., M, K] to E2M1 values with a power-of-two scale a row and 32 columns; and the scales [.., M, K/32]. Of the
    scale that clips nothing and half of it, the one with the smaller squared error."""
    groups = w.unflatten(-1, (-1, GROUP))
    full = power_above(groups.abs().amax(-1, keepdim=True).clamp_min(1e-30) / 6)
    half = full / 2
    a, b = round_fp4(groups / full) * full, round_fp4(groups / half) * half
    worse = (a - groups).square().sum(-1, keepdim=True) > (b - groups).square().sum(-1, keepdim=True)
    values, scale = torch.where(worse, b, a), torch.where(worse, half, full)
    return values.flatten(-2), scale[..., 0]


def snap(name_kind, w):
    """w rounded to values that its format holds exactly."""
    if name_kind == "fp8":
        return snap_fp8(w)[0]
    if name_kind == "fp4":
        return snap_fp4(w)[0]
    if name_kind == "bf16":
        return w.bfloat16().float()
    return w


def scale_bytes(scale):
    """E8M0 bytes of powers of two."""
    return (torch.frexp(scale)[1] - 1 + 127).to(torch.uint8)


def pack_fp8(w):
    """E4M3 and E8M0 bytes of a snapped w; fails where w is not held exactly."""
    values, scale = snap_fp8(w)
    assert torch.equal(values, w), "the tensor was not rounded to FP8 before"
    spread = scale.repeat_interleave(BLOCK, 0)[: w.shape[0]].repeat_interleave(BLOCK, 1)[:, : w.shape[1]]
    return (w / spread).to(torch.float8_e4m3fn).view(torch.uint8), scale_bytes(scale)


def pack_fp4(w):
    """Packed E2M1 and E8M0 bytes of a snapped w (low nibble = even column); fails where w is not held exactly."""
    groups = w.unflatten(-1, (-1, GROUP))
    scale = power_above(groups.abs().amax(-1).clamp_min(1e-30) / 6)
    x = groups / scale[..., None]
    table = torch.tensor(CODES)
    code = (x.abs()[..., None] - table).abs().argmin(-1)
    assert torch.equal(table[code].copysign(x) * scale[..., None], groups), "the tensor was not rounded to FP4 before"
    code = (code + 8 * (x < 0)).flatten(-2).to(torch.uint8)
    return code[..., 0::2] | (code[..., 1::2] << 4), scale_bytes(scale)


def unpack_fp8(codes, scales):
    """float32 values of E4M3 and E8M0 bytes."""
    s = torch.ldexp(torch.ones(scales.shape), scales.int() - 127)
    s = s.repeat_interleave(BLOCK, 0)[: codes.shape[0]].repeat_interleave(BLOCK, 1)[:, : codes.shape[1]]
    return codes.view(torch.float8_e4m3fn).float() * s


def unpack_fp4(codes, scales):
    """float32 values of packed E2M1 and E8M0 bytes."""
    table = torch.tensor(CODES + tuple(-c for c in CODES))
    both = torch.stack((codes & 15, codes >> 4), -1).flatten(-2)
    s = torch.ldexp(torch.ones(scales.shape), scales.int() - 127)
    return table[both.long()] * s.repeat_interleave(GROUP, -1)
