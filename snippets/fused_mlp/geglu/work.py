"""The sizes of a kernel's work, and the tiles of its result."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK_K = 64
"""Elements of K in a slot: 128 bytes, the widest row that shared memory
swizzles."""


class Sizes(NamedTuple):
    """The sizes of a product (rows, dim) @ (outputs, dim).T, its dtype and its
    device."""

    rows: int
    dim: int
    outputs: int
    dtype: torch.dtype
    device: torch.device

    @property
    def name(self) -> str:
        """Sizes that are tuned as one: tokens by the power of two above them,
        so that a new batch size seldom costs anything."""
        bucket = 1 << (self.rows - 1).bit_length()
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{bucket}x{self.dim}x{self.outputs} {dtype}"


class Tiles(NamedTuple):
    """How a kernel cuts its result: (block_m, block_n) per tile, `slots` blocks
    in flight, `group` tiles of a column."""

    block_m: int
    block_n: int
    slots: int
    group: int = 8
    warps: int = 4
    """Warps of a whole program; the ping-pong kernel has its own roles and
    ignores this."""
    lead: int = 2
    """Blocks before the end of a tile at which the other consumer of the
    ping-pong kernel may begin, at least 1."""
    dependent: bool = True
    """Whether the ping-pong kernel is launched before the preceding kernel has
    ended."""

    @property
    def name(self) -> str:
        """Short, and different for any two of one list below."""
        return f"{self.block_m}x{self.block_n}, {self.slots} slots, group {self.group}"


class BackwardTiles(NamedTuple):
    """How the ping-pong kernel of the backward pass cuts its result: it
    finishes pieces of (height, width) of a tile one after the other, `stages`
    of them in flight, at least two."""

    block_m: int
    block_n: int
    slots: int
    stages: int
    group: int = 8
    height: int = 64
    width: int = 64
    lead: int = 2
    dependent: bool = True

    @property
    def name(self) -> str:
        return (
            f"{self.block_m}x{self.block_n}, {self.slots} slots, {self.stages} "
            f"stages of {self.height}x{self.width}, group {self.group}"
        )


def backward_shared_bytes(
    tiles: BackwardTiles, itemsize: int = 2, has_hidden: bool = True
) -> int:
    """The kernel's bytes of a multiprocessor's shared memory: slots, stages,
    rows of barriers aligned to 16 bytes, and the parameters of its roles."""
    block_m, block_n, slots, stages, _, height, width, *_ = tiles
    slot = (block_m + block_n) * BLOCK_K
    barriers = 2 * sum(-(-8 * count // 16) * 16 for count in (slots, stages, 2))
    told = 264 if has_hidden else 248
    return (
        itemsize * (slots * slot + stages * 2 * height * width)
        + barriers
        + told
    )


def rows_of(x: Tensor) -> Tensor:
    """x (..., columns) as a matrix."""
    if x.ndim == 2:
        return x
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def sizes_of(x: Tensor, weight: Tensor) -> Sizes:
    """The sizes of x (..., dim) times a weight (outputs, dim)."""
    outputs, dim = weight.shape
    return Sizes(x.numel() // dim, dim, outputs, x.dtype, x.device)
