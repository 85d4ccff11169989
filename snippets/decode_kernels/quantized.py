"""Weights of a decoder in int8, one scale for each row: half the bytes of
bf16. Activations stay as they are."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ZERO = 128
"""The code of a weight of 0."""


# --8<-- [start:quantize]
def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (rows, k), from 1 to 255 in uint8, and a float32 scale (rows,) for
    a weight (rows, k): `(codes - ZERO) * scale[:, None]` differs from the
    weight by at most half a scale.

    Symmetric by row: a row's largest magnitude becomes 127, and 0 stays 0. A
    row of zeros has the scale 1. Raises `ValueError` for infinities and NaN.
    """
    weight = weight.float()
    largest = weight.abs().amax(dim=1)
    if not largest.isfinite().all():
        raise ValueError("cannot quantize infinite weights or NaN")
    scale = torch.where(largest > 0, largest / 127, 1.0)
    codes = (weight / scale[:, None]).round().clamp(-127, 127) + ZERO
    return codes.to(torch.uint8), scale


# --8<-- [end:quantize]
class Int8Linear(nn.Module):
    """A product with weights in int8. The scale multiplies the sum, in
    float32. Shapes: x (..., k), result (..., rows) in the type of x."""

    codes: Tensor
    scale: Tensor

    def __init__(self, weight: Tensor):
        super().__init__()
        codes, scale = quantize(weight)
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.codes.to(x.dtype) - ZERO)
        return (y.float() * self.scale).to(x.dtype)

    def dequantized(self) -> Tensor:
        """The weight (rows, k) that the codes mean, in float32."""
        return (self.codes.float() - ZERO) * self.scale[:, None]


def quantized(module: nn.Module) -> nn.Module:
    """A copy of a decoder, joined or not, with the weights of all its products
    in int8: those of the layers and the head. The embedding and the norms stay
    as they are, because a token reads one row of the embedding, and the norms
    are small."""
    if isinstance(module, nn.Linear):
        return Int8Linear(module.weight)
    other = copy.copy(module)
    other._modules = {
        name: quantized(child)
        for name, child in module._modules.items()
        if child is not None
    }
    return other


def exact(model):
    """A copy of a quantized decoder whose head is a plain weight (vocab, dim)
    in float32, as the float32 reference of an answer needs it: the layers
    compute in the type of their input."""
    other = copy.copy(model)
    other._modules = dict(model._modules)
    head = model.lm_head.dequantized()
    with torch.device("meta"):
        other.lm_head = nn.Linear(head.shape[1], head.shape[0], bias=False)
    other.lm_head.weight = nn.Parameter(head, requires_grad=False)
    return other


def stored(linear) -> tuple[Tensor, Tensor | None]:
    """What a kernel reads of a product: codes and scale, or the weight and
    None."""
    if isinstance(linear, Int8Linear):
        return linear.codes, linear.scale
    return linear.weight, None


def bytes_saved(config) -> int:
    """How many bytes fewer a token reads with weights in int8 than in bf16: one
    for each weight, minus four for each row's scale."""
    kv = config.kv_heads * config.head_dim
    attention = 2 * config.dim * (config.dim + kv)
    layer = attention + 3 * config.dim * config.hidden
    rows = 3 * config.dim + 2 * kv + 2 * config.hidden
    head = config.dim * config.vocab
    weights = config.layers * layer + head
    return weights - 4 * (config.layers * rows + config.vocab)
