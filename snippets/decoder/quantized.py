"""Linear layers whose weights take fewer bytes, with nothing but PyTorch.

Shapes: weight (n, k), x (..., k), result (..., n). Activations are bf16.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

GROUP = 128
"""Weights that share a scale, in int4."""
FP8_MAX = 448.0
"""The largest number of float8_e4m3fn."""


# --8<-- [start:int8]
class Int8Linear(nn.Module):
    """Weights in int8, a scale for each output: converted in front of the
    product. Compile it, or the converted weights go through memory."""

    codes: Tensor
    scale: Tensor

    def __init__(self, weight: Tensor):
        super().__init__()
        scale = weight.float().abs().amax(dim=1, keepdim=True) / 127
        codes = (weight.float() / scale).round().to(torch.int8)
        self.register_buffer("codes", codes)  # (n, k)
        self.register_buffer("scale", scale[:, 0].to(weight.dtype))  # (n,)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.codes.to(x.dtype)) * self.scale

    def dequantized(self) -> Tensor:
        return self.codes.float() * self.scale.float()[:, None]


class Int8PackedLinear(Int8Linear):
    """The same weights through PyTorch's own operator."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        y = torch.ops.aten._weight_int8pack_mm(rows, self.codes, self.scale)
        return y.view(*x.shape[:-1], -1)


# --8<-- [end:int8]


# --8<-- [start:int4]
class Int4Linear(nn.Module):
    """Weights in four bits, a scale and an offset for each `GROUP` of them,
    through PyTorch's own operator. Needs CUDA."""

    codes: Tensor
    scales: Tensor

    def __init__(self, weight: Tensor):
        super().__init__()
        n, k = weight.shape
        groups = weight.float().view(n, k // GROUP, GROUP)
        low, high = groups.aminmax(dim=-1, keepdim=True)
        scale = ((high - low) / 15).clamp(min=1e-6).to(weight.dtype)
        middle = (low + 8 * scale.float()).to(weight.dtype)
        codes = (groups - middle.float()) / scale.float() + 8
        codes = codes.round().clamp(0, 15).to(torch.uint8)  # (n, groups, GROUP)
        exact = (codes.float() - 8) * scale.float() + middle.float()
        self.exact = exact.view(n, k).to(weight.dtype)
        codes = codes.view(n, k)
        self.register_buffer(
            "codes",
            torch.ops.aten._convert_weight_to_int4pack(
                codes[:, ::2] << 4 | codes[:, 1::2], 8
            ),
        )
        scales = torch.cat((scale, middle), dim=-1)  # (n, groups, 2)
        self.register_buffer("scales", scales.transpose(0, 1).contiguous())

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        y = torch.ops.aten._weight_int4pack_mm(
            rows, self.codes, GROUP, self.scales
        )
        return y.view(*x.shape[:-1], -1)

    def dequantized(self) -> Tensor:
        return self.exact.float()


# --8<-- [end:int4]


# --8<-- [start:fp8]
class Fp8Linear(nn.Module):
    """Weights and activations in eight bits of floating point. Needs tensor
    cores for them: a GPU since Ada or Hopper."""

    codes: Tensor
    scale: Tensor

    def __init__(self, weight: Tensor):
        super().__init__()
        scale = weight.float().abs().amax() / FP8_MAX
        codes = (weight.float() / scale).to(torch.float8_e4m3fn)
        self.register_buffer("codes", codes)  # (n, k)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).float()
        scale = rows.abs().amax() / FP8_MAX
        filled = F.pad(rows / scale, (0, 0, 0, -len(rows) % 16))
        y = torch._scaled_mm(
            filled.to(torch.float8_e4m3fn),  # (a multiple of 16, k)
            self.codes.t(),
            scale_a=scale,
            scale_b=self.scale,
            out_dtype=x.dtype,
        )
        return y[: len(rows)].reshape(*x.shape[:-1], -1)

    def dequantized(self) -> Tensor:
        return self.codes.float() * self.scale


# --8<-- [end:fp8]


# --8<-- [start:quantize]
KINDS = {
    "int8": Int8Linear,
    "int8_packed": Int8PackedLinear,
    "int4": Int4Linear,
    "fp8": Fp8Linear,
}


def quantize(model, kind: str):
    """A copy of a decoder with the products of its layers quantized; its
    embedding and its head stay as they are."""
    other = copy.copy(model)
    other._modules = dict(model._modules)
    other.layers = nn.ModuleList(
        _replaced(layer, lambda linear: KINDS[kind](linear.weight))
        for layer in model.layers
    )
    return other


def dequantize(model):
    """The decoder in bf16 whose weights are what the quantized ones mean."""
    other = copy.copy(model)
    other._modules = dict(model._modules)
    other.layers = nn.ModuleList(
        _replaced(layer, _linear_of) for layer in model.layers
    )
    return other


# --8<-- [end:quantize]


def _replaced(module, replacement):
    """A copy of a module, with its products replaced."""
    if isinstance(module, nn.Linear | Int8Linear | Int4Linear | Fp8Linear):
        return replacement(module)
    other = copy.copy(module)
    other._modules = {
        name: _replaced(child, replacement)
        for name, child in module._modules.items()
    }
    return other


def _linear_of(module) -> nn.Linear:
    exact = module.dequantized().to(torch.bfloat16)
    with torch.device("meta"):
        linear = nn.Linear(exact.shape[1], exact.shape[0], bias=False)
    linear.weight = nn.Parameter(exact, requires_grad=False)
    return linear
