"""Inputs, plain PyTorch in any dtype as the reference, and the largest error allowed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from snippets.fused_mlp.geglu import gradients, operators, preactivations, support, training
from snippets.fused_mlp.geglu.model import FusedGeGLU

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
ACTIVATIONS = ("gelu_tanh", "gelu", "silu", "relu", "none")
SERIES = (8192, 768, 3072)
ODD = (129, 72, 136)
"""Tokens, dim, hidden: multiples of 8, of no tile, and not of 16, for which Triton compiles apart."""
OPERATORS = {
    name: one
    for module in (operators, gradients, preactivations, training)
    for name, one in vars(module).items()
    if isinstance(one, torch._ops.OpOverload)
}


def inputs(rows: int, dim: int, hidden: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x (rows, dim), gate and up (hidden, dim), a bias (hidden,); the pre-activations have a variance of 1."""
    x, gate, up = (torch.randn(size, dim, device="cuda") for size in (rows, hidden, hidden))
    scale = max(dim, 1) ** -0.5
    bias = torch.randn(hidden, device="cuda")
    return x.to(dtype), (scale * gate).to(dtype), (scale * up).to(dtype), bias.to(dtype)


def fused(dim: int, hidden: int, dtype: torch.dtype, **options: object) -> FusedGeGLU:
    """Its weights do not ask for gradients; `module.requires_grad_()` where a test wants them."""
    return FusedGeGLU(dim, hidden, **options).to("cuda", dtype).requires_grad_(False)


def gated(x: Tensor, gate: Tensor, up: Tensor, activation: str = "gelu_tanh") -> Tensor:
    return support.act(F.linear(x, gate), activation) * F.linear(x, up)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "gelu_tanh") -> Tensor:
    return support.act(F.linear(x, weight, bias), activation)


def mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, activation: str = "gelu_tanh") -> Tensor:
    return F.linear(gated(x, gate, up, activation), down)


def check(found: Tensor, plain: Callable[..., Tensor], *arguments: object, times_eager: float = 1.0) -> None:
    """Compare with plain PyTorch on the same arguments, and with what it makes of them in float64."""
    exact = plain(*(one.double() if isinstance(one, Tensor) else one for one in arguments))
    check_errors(found, plain(*arguments), exact, times_eager)


def check_errors(found: Tensor, eager: Tensor, exact: Tensor, times_eager: float = 1.0) -> None:
    """Require the largest error to be at most twice eager's, and the total error at most `times_eager` times
    eager's."""
    assert (found.shape, found.dtype) == (eager.shape, eager.dtype)
    error, allowed = found.double() - exact, eager.double() - exact
    assert error.abs().max().item() <= 2 * allowed.abs().max().item() + 1e-6
    if exact.numel() < 10_000:  # luck decides among a few roundings
        times_eager = 2 * times_eager
    assert error.norm().item() <= times_eager * allowed.norm().item()
