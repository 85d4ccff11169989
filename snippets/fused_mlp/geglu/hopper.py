"""Launches of the kernels written for Hopper."""

from __future__ import annotations

import functools

import torch
import triton
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import (
    TensorDescriptor as SwizzledDescriptor,
)
from triton.tools.tensor_descriptor import TensorDescriptor

from .backward_kernels import pingpong_backward_kernel
from .hopper_kernels import gate_up_kernel, linear_kernel
from .kernels import ACTIVATIONS
from .launch import Launch, interpreted, multiprocessors
from .pingpong_kernels import pingpong_kernel
from .work import BLOCK_K, BackwardTiles, Sizes, Tiles, sizes_of

PINGPONG_GATED = (
    Tiles(128, 64, 6),
    Tiles(128, 64, 6, 1),
    Tiles(64, 64, 8),
    Tiles(64, 32, 10),
)
PINGPONG = (
    Tiles(128, 128, 5),
    Tiles(128, 128, 5, 1),
    Tiles(64, 128, 6),
    Tiles(64, 64, 10),
    Tiles(64, 32, 12),
)
PINGPONG_BACKWARD = (
    BackwardTiles(128, 128, 5, 4),
    BackwardTiles(128, 128, 5, 4, 1),
    BackwardTiles(64, 128, 6, 4),
)
STACKED = (
    Tiles(128, 128, 3, 8, 8),
    Tiles(128, 128, 4, 8, 8),
    Tiles(128, 64, 3, 8, 4),
    Tiles(64, 64, 4, 8, 4),
)
SMALL = (
    Tiles(64, 64, 6),
    Tiles(64, 32, 8),
)


@functools.cache
def swizzle(dtype: torch.dtype, *block: int) -> gl.NVMMASharedLayout:
    """The shared memory layout of a block that tensor cores read without bank
    conflicts."""
    return gl.NVMMASharedLayout.get_default_for(
        list(block), getattr(gl, str(dtype).removeprefix("torch."))
    )


def describe(tensor: Tensor, *block: int) -> SwizzledDescriptor:
    """The copy engine's descriptor of a matrix (..., columns): where to find a
    block and where to put it."""
    return SwizzledDescriptor.from_tensor(
        matrix(tensor), list(block), swizzle(tensor.dtype, *block)
    )


def matrix(tensor: Tensor) -> Tensor:
    """The tensor as a matrix with rows of the last dimension."""
    return tensor.view(-1, tensor.shape[-1])


@functools.lru_cache(maxsize=1024)
def pingpong_launch(
    sizes: Sizes,
    tiles: Tiles,
    activation: str,
    gated: bool = False,
    has_bias: bool = False,
    save: bool = False,
) -> Launch:
    """A launch to be called with x, the weight, the second weight if `gated`,
    the bias if there is one, and the results: with `save`, both pre-activations
    too."""
    rows, dim, outputs, _, device = sizes
    block_m, block_n, slots, group, _, lead, dependent = tiles

    def arguments(x: Tensor, weight: Tensor, *others: Tensor) -> tuple:
        up, bias, results = None, None, others
        if gated:
            up, results = describe(results[0], block_n, BLOCK_K), results[1:]
        if has_bias:
            bias, results = results[0], results[1:]
        described = [describe(one, block_m, block_n) for one in results]
        described += [None] * (3 - len(described))
        return (
            describe(x, block_m, BLOCK_K), describe(weight, block_n, BLOCK_K),
            up, bias, *described, rows, outputs, dim, block_m, block_n, BLOCK_K,
            slots, group, lead, gated, has_bias, save, ACTIVATIONS[activation],
        )  # fmt: skip

    tiles_in_all = triton.cdiv(rows, block_m) * triton.cdiv(outputs, block_n)
    return Launch(
        pingpong_kernel,
        min(multiprocessors(device), tiles_in_all),
        arguments,
        num_warps=4,
        launch_pdl=dependent,
    )


@functools.lru_cache(maxsize=1024)
def pingpong_backward_launch(
    sizes: Sizes,
    tiles: BackwardTiles,
    activation: str,
    has_hidden: bool = True,
) -> Launch:
    """A launch to be called with d_out (rows, dim), down (dim, outputs), the
    pre-activations of gate and up (rows, outputs), their gradients, which may
    share their memory, and with `has_hidden` the recomputed activation(gate) *
    up."""
    rows, dim, outputs, _, device = sizes
    block_m, block_n, slots, stages, group, height, width, lead, dependent = (
        tiles
    )

    def arguments(d_out: Tensor, down: Tensor, *others: Tensor) -> tuple:
        pieces = [describe(one, height, width) for one in others]
        pieces += [None] * (5 - len(pieces))
        return (
            describe(d_out, block_m, BLOCK_K), describe(down, BLOCK_K, block_n),
            *pieces, rows, outputs, dim, block_m, block_n, BLOCK_K, slots,
            height, width, stages, group, lead, ACTIVATIONS[activation],
        )  # fmt: skip

    tiles_in_all = triton.cdiv(rows, block_m) * triton.cdiv(outputs, block_n)
    return Launch(
        pingpong_backward_kernel,
        min(multiprocessors(device), tiles_in_all),
        arguments,
        num_warps=4,
        launch_pdl=dependent,
    )


@functools.lru_cache(maxsize=1024)
def small_linear_launch(
    sizes: Sizes, tiles: Tiles, activation: str, has_bias: bool
) -> Launch:
    """A launch to be called with x, the weight, the bias if there is one, and
    the result. One program per tile."""
    rows, dim, outputs, _, device = sizes
    block_m, block_n, slots, group, warps, *_ = tiles
    dependent = device.type == "cuda"

    def arguments(x: Tensor, weight: Tensor, *others: Tensor) -> tuple:
        *bias, out = others
        return (
            TensorDescriptor.from_tensor(matrix(x), [block_m, BLOCK_K]),
            TensorDescriptor.from_tensor(weight, [block_n, BLOCK_K]),
            bias[0] if bias else None,
            TensorDescriptor.from_tensor(matrix(out), [block_m, block_n]), rows,
            outputs, dim, block_m, block_n, BLOCK_K, group, has_bias,
            ACTIVATIONS[activation], interpreted(), dependent,
        )  # fmt: skip

    return Launch(
        linear_kernel,
        triton.cdiv(rows, block_m) * triton.cdiv(outputs, block_n),
        arguments,
        num_warps=warps,
        num_stages=slots,
        launch_pdl=dependent,
    )


@functools.lru_cache(maxsize=1024)
def stacked_launch(sizes: Sizes, tiles: Tiles, activation: str) -> Launch:
    """A launch to be called with x, both weights in one tensor (2, outputs,
    dim), and the result."""
    rows, dim, outputs, _, device = sizes
    block_m, block_n, slots, group, warps, *_ = tiles

    def arguments(x: Tensor, weights: Tensor, out: Tensor) -> tuple:
        return (
            TensorDescriptor.from_tensor(matrix(x), [block_m, BLOCK_K]),
            TensorDescriptor.from_tensor(weights, [2, block_n, BLOCK_K]),
            TensorDescriptor.from_tensor(matrix(out), [block_m, block_n]), rows,
            outputs, dim, block_m, block_n, BLOCK_K, group,
            ACTIVATIONS[activation], interpreted(),
        )  # fmt: skip

    # a program of four warps leaves room for a second
    resident = multiprocessors(device) * (8 // warps)
    tiles_in_all = triton.cdiv(rows, block_m) * triton.cdiv(outputs, block_n)
    return Launch(
        gate_up_kernel,
        min(resident, tiles_in_all),
        arguments,
        num_warps=warps,
        num_stages=slots,
    )


def pingpong(
    x: Tensor,
    weight: Tensor,
    up: Tensor | None,
    bias: Tensor | None,
    activation: str,
    tiles: Tiles,
    save: bool = False,
) -> tuple[Tensor, ...]:
    """activation(x @ weight.T) * (x @ up.T), or activation(x @ weight.T + bias)
    without `up`.

    x is (rows, dim), weight and up are (outputs, dim), with a row stride of a
    multiple of 16 bytes. With `save`, returns the two pre-activations too.
    """
    sizes = sizes_of(x, weight)
    results = [
        x.new_empty(x.shape[0], weight.shape[0])
        for _ in range(3 if save else 1)
    ]
    launch = pingpong_launch(
        sizes, tiles, activation, up is not None, bias is not None, save
    )
    launch(*[one for one in (x, weight, up, bias, *results) if one is not None])
    return tuple(results)


def pingpong_backward(
    d_out: Tensor,
    down: Tensor,
    gate_pre: Tensor,
    up_pre: Tensor,
    activation: str,
    tiles: BackwardTiles,
    has_hidden: bool = True,
) -> tuple[Tensor, ...]:
    """The gradients of activation(gate_pre) * up_pre for both, in one matrix
    (rows, 2 * hidden), from d_out @ down; and the product itself.

    d_out is (rows, dim), down is (dim, hidden), the pre-activations are (rows,
    hidden).
    """
    rows, hidden = gate_pre.shape
    d_pre = d_out.new_empty(rows, 2 * hidden)
    product = [d_out.new_empty(rows, hidden)] if has_hidden else []
    sizes = sizes_of(d_out, down.t())
    launch = pingpong_backward_launch(sizes, tiles, activation, has_hidden)
    launch(d_out, down, gate_pre, up_pre, *d_pre.chunk(2, dim=1), *product)
    return (d_pre, *product)


def small_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str,
    tiles: Tiles,
) -> Tensor:
    """activation(x @ weight.T + bias), one program per tile. x is (rows, dim),
    weight is (outputs, dim)."""
    out = x.new_empty(x.shape[0], weight.shape[0])
    launch = small_linear_launch(
        sizes_of(x, weight), tiles, activation, bias is not None
    )
    launch(*[one for one in (x, weight, bias, out) if one is not None])
    return out


def stacked_gate_up(
    x: Tensor, weights: Tensor, activation: str, tiles: Tiles
) -> Tensor:
    """activation(x @ gate.T) * (x @ up.T). x is (rows, dim), weights (2,
    hidden, dim): gate's, then up's."""
    out = x.new_empty(x.shape[0], weights.shape[1])
    stacked_launch(sizes_of(x, weights[0]), tiles, activation)(x, weights, out)
    return out
