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
    count: int, dtype: torch.dtype, device: torch.device, activation: str
) -> Launch:
    """activation(gate) * up of `count` elements: called with gate, up and the
    result."""
    return Launch(
        gated_activation_kernel,
        triton.cdiv(count, POINTWISE_BLOCK),
        lambda gate, up, out: (
            gate, up, out, count, POINTWISE_BLOCK, ACTIVATIONS[activation],
            interpreted(),
        ),
        num_warps=POINTWISE_WARPS,
    )  # fmt: skip


@functools.lru_cache(maxsize=1024)
def pointwise_backward_launch(
    count: int, dtype: torch.dtype, device: torch.device, activation: str
) -> Launch:
    """The gradients of activation(gate) * up: called with that of the result,
    gate, up, and the two results, which may be gate and up."""
    return Launch(
        gated_activation_backward_kernel,
        triton.cdiv(count, POINTWISE_BLOCK),
        lambda d_out, gate, up, d_gate, d_up: (
            d_out, gate, up, d_gate, d_up, count, POINTWISE_BLOCK,
            ACTIVATIONS[activation], interpreted(),
        ),
        num_warps=POINTWISE_WARPS,
    )  # fmt: skip


def two_products(
    activation: str, x: Tensor, gate: Tensor, up: Tensor, out: Tensor
) -> None:
    """cuBLAS's, and then the activation in one pass."""
    g, u = out.new_empty(out.shape), out.new_empty(out.shape)
    saved_products(activation, x, gate, up, out, g, u)


def saved_products(
    activation: str,
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    out: Tensor,
    g: Tensor,
    u: Tensor,
) -> None:
    """As `two_products`, the products written where they are kept."""
    product(x, gate, g)
    product(x, up, u)
    pointwise_launch(out.numel(), x.dtype, x.device, activation)(g, u, out)


def product(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """cuBLAS's x @ weight.T."""
    outputs, dim = weight.shape
    torch.mm(x.view(-1, dim), weight.t(), out=out.view(-1, outputs))
