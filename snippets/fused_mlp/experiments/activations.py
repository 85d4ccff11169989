"""The error of the kernels' activations at every value of a 16-bit dtype."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from snippets.fused_mlp.geglu.portable import pointwise_launch
from snippets.fused_mlp.geglu.support import act


def swept(
    activation: str, dtype: torch.dtype, device: str = "cuda"
) -> tuple[Tensor, Tensor]:
    """All finite values of a 16-bit dtype in order, and the error of the
    kernels' activation at each before it is rounded to dtype, in units of the
    exact result's last place.

    A sigmoid below 2^-126 is flushed to zero, and so is a result below 2^-119:
    errors up to this size count as zero.
    """
    every = torch.arange(-(2**15), 2**15, device=device).to(torch.int16)
    z = every.view(dtype)
    z = z[z.isfinite()].double().sort().values
    exact = exactly(z, activation)
    found = torch.empty_like(z, dtype=torch.float32)
    launch = pointwise_launch(len(z), found.dtype, z.device, activation)
    launch(z.float(), torch.ones_like(found), found)
    info = torch.finfo(dtype)
    magnitude = exact.abs().clamp(min=info.smallest_normal)
    unit = info.eps * 2 ** magnitude.log2().floor()
    return z, ((found.double() - exact).abs() - 2.0**-119).clamp(min=0) / unit


def exactly(z: Tensor, activation: str) -> Tensor:
    """The activation of float64 values with a small relative error; `act` loses
    digits where it adds 1 to a tanh or an erf near -1."""
    name = activation.removeprefix("rough_")
    if name == "gelu_tanh":
        return z * torch.sigmoid(
            (8 / math.pi) ** 0.5 * (z + 0.044715 * z.pow(3))
        )
    if name == "gelu":
        return 0.5 * z * torch.special.erfc(-(0.5**0.5) * z)
    return act(z, name)
