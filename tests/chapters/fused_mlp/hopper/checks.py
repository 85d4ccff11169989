"""Inputs, references in float64, and the largest error allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from snippets.fused_mlp.geglu import support
from snippets.fused_mlp.geglu.model import FusedGeGLU

BF16, F16 = torch.bfloat16, torch.float16
GATED_ACTIVATIONS = ("gelu_tanh", "gelu", "silu", "relu", "none")
SERIES = (8192, 768, 3072)
ODD = (129, 72, 136)
"""Tokens, dim, hidden: multiples of 8, of no tile, and not of 16, for which Triton compiles apart."""
SHAPES = [
    (*SERIES, BF16),
    (*SERIES, F16),
    (1, 64, 8, BF16),
    (77, 136, 200, BF16),
    (*ODD, BF16),
    (*ODD, F16),
    (8200, 768, 3080, BF16),
    (1000, 4096, 14336, BF16),
]
GUARD = 1024
"""Elements before and after a result that must stay as they are."""


def inputs(rows: int, dim: int, hidden: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """x (rows, dim), gate and up (hidden, dim); the pre-activations have a variance of 1."""
    x = torch.randn(rows, dim, device="cuda")
    gate, up = (torch.randn(hidden, dim, device="cuda") / dim**0.5 for _ in range(2))
    return x.to(dtype), gate.to(dtype), up.to(dtype)


def fused(dim: int, hidden: int, dtype: torch.dtype, **options: object) -> FusedGeGLU:
    """Its weights do not ask for gradients; `module.requires_grad_()` where a test wants them."""
    return FusedGeGLU(dim, hidden, **options).to("cuda", dtype).requires_grad_(False)


def plain(x: Tensor, gate: Tensor, up: Tensor, activation: str = "gelu_tanh") -> Tensor:
    return support.act(F.linear(x, gate), activation) * F.linear(x, up)


def in_float64(function: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
    return function(*(None if tensor is None else tensor.double() for tensor in tensors))


def check(found: Tensor, eager: Tensor, exact: Tensor, times_eager: float = 1.0) -> None:
    """Require the largest error to be at most twice eager's, and the total error at most `times_eager` times
    eager's."""
    assert (found.shape, found.dtype) == (eager.shape, eager.dtype)
    error, allowed = found.double() - exact, eager.double() - exact
    assert error.abs().max().item() <= 2 * allowed.abs().max().item() + 1e-6
    if exact.numel() < 10_000:  # luck decides among a few roundings
        times_eager = 2 * times_eager
    assert error.norm().item() <= times_eager * allowed.norm().item()


def check_guards(buffers: Sequence[Tensor], results: int) -> None:
    assert len(buffers) == results
    for buffer in buffers:
        assert bool(buffer[:GUARD].isnan().all())
        assert bool(buffer[-GUARD:].isnan().all())
        assert not bool(buffer[GUARD:-GUARD].isnan().any())
