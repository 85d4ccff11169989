"""Launches of the kernels that run on every NVIDIA GPU from Ampere on."""

from __future__ import annotations

import functools

import torch
import triton
from torch import Tensor

from .kernels import (
    ACTIVATIONS,
    gated_activation_backward_kernel,
    gated_activation_kernel,
)
from .launch import Launch, interpreted

POINTWISE_BLOCK, POINTWISE_WARPS = 2048, 8


@functools.lru_cache(maxsize=1024)
def pointwise_launch(
    count: int,
    dtype: torch.dtype,
    device: torch.device,
    activation: str,
    rows: int = 1,
) -> Launch:
    """activation(gate) * up of `count` elements: called with gate, up and the
    result. With several `rows`, gate and up are halves of one matrix."""
    programs, width, block, warps = _cut(count, rows)
    return Launch(
        gated_activation_kernel,
        programs,
        lambda gate, up, out: (
            gate, up, out, width, block, ACTIVATIONS[activation], interpreted(),
        ),
        num_warps=warps,
    )  # fmt: skip


@functools.lru_cache(maxsize=1024)
def pointwise_backward_launch(
    count: int,
    dtype: torch.dtype,
    device: torch.device,
    activation: str,
    rows: int = 1,
    has_hidden: bool = False,
) -> Launch:
    """The gradients of activation(gate) * up: called with that of the result,
    gate, up, and the two results, which may be gate and up.

    With several `rows`, gate and up are halves of one matrix, and so are the
    results. With `has_hidden`, the product itself is a third result, which may
    be its gradient.
    """
    programs, width, block, warps = _cut(count, rows)
    return Launch(
        gated_activation_backward_kernel,
        programs,
        lambda d_out, gate, up, d_gate, d_up, hidden=None: (
            d_out, gate, up, d_gate, d_up, hidden, width, block,
            ACTIVATIONS[activation], interpreted(),
        ),
        num_warps=warps,
    )  # fmt: skip


def _cut(count: int, rows: int) -> tuple[int, int, int, int]:
    """Programs, elements of a row, of a program, and warps: 16 bytes for each
    thread, and rows of a model seldom fill the last one of large programs."""
    width = count // rows
    parts = 1 if rows == 1 else 2
    block = POINTWISE_BLOCK // parts
    programs = rows * triton.cdiv(width, block)
    return programs, width, block, POINTWISE_WARPS // parts


def two_products(
    activation: str, x: Tensor, gate: Tensor, up: Tensor, out: Tensor
) -> None:
    """cuBLAS's, and then the activation in one pass."""
    g, u = out.new_empty(out.shape), out.new_empty(out.shape)
    product(x, gate, g)
    product(x, up, u)
    pointwise_launch(out.numel(), x.dtype, x.device, activation)(g, u, out)


def saved_products(
    activation: str,
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    out: Tensor,
    g: Tensor,
    u: Tensor,
) -> None:
    """As `two_products`, both kept: g and u are halves of one matrix."""
    torch.mm(x, gate.t(), out=g)
    torch.mm(x, up.t(), out=u)
    pointwise_launch(out.numel(), x.dtype, x.device, activation, out.shape[0])(
        g, u, out
    )


def product_and_gradients(
    activation: str,
    d_out: Tensor,
    down: Tensor,
    g: Tensor,
    u: Tensor,
    d_gate: Tensor,
    d_up: Tensor,
    *hidden: Tensor,
) -> None:
    """cuBLAS's d_out @ down, and then in one pass the gradients of
    activation(g) * u, and that product itself if asked for."""
    rows, width = g.shape
    d_hidden = hidden[0] if hidden else d_out.new_empty(rows, width)
    torch.mm(d_out, down, out=d_hidden)
    pointwise_backward_launch(
        rows * width, d_out.dtype, d_out.device, activation, rows, bool(hidden)
    )(d_hidden, g, u, d_gate, d_up, *hidden)


def product(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """cuBLAS's x @ weight.T."""
    outputs, dim = weight.shape
    torch.mm(x.view(-1, dim), weight.t(), out=out.view(-1, outputs))
