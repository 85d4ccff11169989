"""Launches of the kernels that run on every NVIDIA GPU since Ampere."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
import triton
from torch import Tensor

from .kernels import (
    ACTIVATIONS,
    gated_activation_backward_kernel,
    gated_activation_kernel,
)
from .launch import Launch, interpreted
from .portable_kernels import portable_gate_up_kernel, portable_linear_kernel
from .portable_tiles import PortableTiles, aligned, candidates
from .work import Sizes

POINTWISE_BLOCK, POINTWISE_WARPS = 2048, 8


@functools.lru_cache(maxsize=1024)
def pointwise_launch(
    count: int,
    dtype: torch.dtype,
    device: torch.device,
    activation: str,
    rows: int = 1,
) -> Launch:
    """activation(gate) * up of `count` elements: a launch to be called with
    gate, up and the result. With several `rows`, gate and up are halves of one
    matrix."""
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
    """The gradients of activation(gate) * up: a launch to be called with the
    result's gradient, gate, up, and the two gradients, which may be gate and
    up.

    With several `rows`, gate and up are halves of one matrix, and so are their
    gradients. With `has_hidden`, the product itself is a third result, which
    may be its gradient.
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
    """Programs, elements of a row, elements of a program, and warps: 16 bytes
    for each thread, and small programs, because a model's rows seldom fill the
    last one of large programs."""
    width = count // rows
    parts = 1 if rows == 1 else 2
    block = POINTWISE_BLOCK // parts
    programs = rows * triton.cdiv(width, block)
    return programs, width, block, POINTWISE_WARPS // parts


def two_products(
    activation: str, x: Tensor, gate: Tensor, up: Tensor, out: Tensor
) -> None:
    """Two products by cuBLAS, then the activation in one pass."""
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
    """As `two_products`, and keeps both: g and u are halves of one matrix."""
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
    """d_out @ down by cuBLAS, then in one pass the gradients of activation(g) *
    u, and if requested that product itself."""
    rows, width = g.shape
    d_hidden = hidden[0] if hidden else d_out.new_empty(rows, width)
    torch.mm(d_out, down, out=d_hidden)
    pointwise_backward_launch(
        rows * width, d_out.dtype, d_out.device, activation, rows, bool(hidden)
    )(d_hidden, g, u, d_gate, d_up, *hidden)


def product(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """x @ weight.T by cuBLAS."""
    outputs, dim = weight.shape
    torch.mm(x.view(-1, dim), weight.t(), out=out.view(-1, outputs))


def fitting(
    tilings: Sequence[PortableTiles], sizes: Sizes
) -> list[PortableTiles]:
    """The candidates for these sizes on their GPU."""
    return candidates(
        tilings, *limits(sizes.device), sizes.rows, sizes.dtype.itemsize
    )


@functools.cache
def limits(device: torch.device) -> tuple[int, int]:
    """A GPU's compute capability (80 is 8.0), and the bytes of shared memory
    that a program may take."""
    major, minor = torch.cuda.get_device_capability(device)
    driver = triton.runtime.driver.active
    found = driver.utils.get_device_properties(device.index)
    return 10 * major + minor, found["max_shared_mem"]


# --8<-- [start:gate_up]
@functools.lru_cache(maxsize=1024)
def portable_gate_up_launch(
    sizes: Sizes, tiles: PortableTiles, activation: str
) -> Launch:
    """A launch to be called with x, gate, up and the result. One program per
    tile."""
    rows, dim, outputs, *_ = sizes
    block_m, block_n, block_k, stages, warps, group = tiles
    return Launch(
        portable_gate_up_kernel,
        triton.cdiv(rows, block_m) * triton.cdiv(outputs, block_n),
        lambda x, gate, up, out: (
            x, gate, up, out, rows, outputs, dim, block_m, block_n, block_k,
            group, aligned(outputs, dim), dim % block_k == 0,
            ACTIVATIONS[activation], interpreted(),
        ),
        num_warps=warps,
        num_stages=stages,
    )  # fmt: skip


# --8<-- [end:gate_up]


@functools.lru_cache(maxsize=1024)
def portable_linear_launch(
    sizes: Sizes, tiles: PortableTiles, activation: str, has_bias: bool
) -> Launch:
    """A launch to be called with x, the weight, the bias if there is one, and
    the result."""
    rows, dim, outputs, *_ = sizes
    block_m, block_n, block_k, stages, warps, group = tiles

    def arguments(x: Tensor, weight: Tensor, *others: Tensor) -> tuple:
        *bias, out = others
        return (
            x, weight, bias[0] if bias else None, out, rows, outputs, dim,
            block_m, block_n, block_k, group, aligned(outputs, dim),
            dim % block_k == 0, has_bias, ACTIVATIONS[activation],
            interpreted(),
        )  # fmt: skip

    return Launch(
        portable_linear_kernel,
        triton.cdiv(rows, block_m) * triton.cdiv(outputs, block_n),
        arguments,
        num_warps=warps,
        num_stages=stages,
    )


def portable_gate_up(
    x: Tensor, gate: Tensor, up: Tensor, activation: str, tiles: PortableTiles
) -> Tensor:
    """activation(x @ gate.T) * (x @ up.T). x is (rows, dim), gate and up are
    (hidden, dim), bfloat16 or float16.

    Takes any sizes; if dim or hidden is not a multiple of 8, loads are
    narrower, and if not of 2, they wait for each other. float32 is multiplied
    without tensor cores.
    """
    outputs, dim = gate.shape
    sizes = Sizes(x.shape[0], dim, outputs, x.dtype, x.device)
    out = x.new_empty(sizes.rows, outputs)
    portable_gate_up_launch(sizes, tiles, activation)(x, gate, up, out)
    return out


def portable_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str,
    tiles: PortableTiles,
) -> Tensor:
    """activation(x @ weight.T + bias). x is (rows, dim), weight is (outputs,
    dim), bias is (outputs,); sizes and dtypes as in `portable_gate_up`."""
    outputs, dim = weight.shape
    sizes = Sizes(x.shape[0], dim, outputs, x.dtype, x.device)
    out = x.new_empty(sizes.rows, outputs)
    launch = portable_linear_launch(sizes, tiles, activation, bias is not None)
    launch(*[one for one in (x, weight, bias, out) if one is not None])
    return out
