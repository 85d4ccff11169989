"""A Linear profiled as in one article, and the block of the articles'
tables."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, record_function


# --8<-- [start:layer]
def linear_layer(device: str) -> tuple[nn.Linear, Tensor]:
    """The article's layer and its input, 64 rows, both float32."""
    layer = nn.Linear(1024, 4096).to(device)
    return layer, torch.randn(64, 1024, device=device)


# --8<-- [end:layer]


# --8<-- [start:one_call]
def profile_one_call(device: str) -> profile:
    """Profile the first call of the layer, with nothing run before it."""
    layer, x = linear_layer(device)
    kinds = [ProfilerActivity.CPU]
    if device == "cuda":
        kinds.append(ProfilerActivity.CUDA)
    with (
        profile(activities=kinds, record_shapes=True) as prof,
        record_function("linear_forward"),
    ):
        layer(x)
    return prof


# --8<-- [end:one_call]


# --8<-- [start:block]
Weights = tuple[Tensor, Tensor, Tensor, Tensor]
"""up (hidden, dim), its bias, down (dim, hidden), its bias."""


def block(x: Tensor, weights: Weights) -> Tensor:
    """Linear, GELU in its tanh form, Linear: three kernels in eager mode."""
    up, up_bias, down, down_bias = weights
    hidden = F.gelu(F.linear(x, up, up_bias), approximate="tanh")
    return F.linear(hidden, down, down_bias)


def block_with_epilogue(x: Tensor, weights: Weights) -> Tensor:
    """The same block with GELU in the epilogue of cuBLAS's first product."""
    up, up_bias, down, down_bias = weights
    hidden = torch._addmm_activation(up_bias, x, up.t(), use_gelu=True)
    return F.linear(hidden, down, down_bias)


# --8<-- [end:block]


def block_weights(
    draw: Callable[..., Tensor], dim: int, hidden: int
) -> Weights:
    """Random weights that keep the magnitude of the activations; `draw` takes
    sizes."""
    return (
        draw(hidden, dim) * dim**-0.5,
        draw(hidden),
        draw(dim, hidden) * hidden**-0.5,
        draw(dim),
    )


def block_reference(x: Tensor, weights: Weights) -> Tensor:
    """The block in float64."""
    up, up_bias, down, down_bias = (each.double() for each in weights)
    return block(x.double(), (up, up_bias, down, down_bias))
