"""What a kernel is asked to do, and how it cuts its result."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BLOCK_K = 64
"""Elements of K in a slot: 128 bytes, the widest row that shared memory
swizzles."""


class Sizes(NamedTuple):
    """Of a product (rows, dim) @ (outputs, dim).T, and where it is done."""

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
    """How a kernel cuts its result: (block_m, block_n) a tile, `slots` blocks
    in flight, `group` tiles of a column."""

    block_m: int
    block_n: int
    slots: int
    group: int = 8
    warps: int = 4
    """Of a whole program; the ping-pong kernel has its own roles and ignores
    it."""
    lead: int = 2
    """Blocks before the end of a tile at which the other consumer of the
    ping-pong kernel may begin, 1 at least."""
    dependent: bool = True
    """Whether the ping-pong kernel is launched before the kernel before it has
    ended."""

    @property
    def name(self) -> str:
        """Short, and different for any two of one list below."""
        return f"{self.block_m}x{self.block_n}, {self.slots} slots, group {self.group}"


def sizes_of(x: Tensor, weight: Tensor) -> Sizes:
    """Of x (..., dim) times a weight (outputs, dim)."""
    outputs, dim = weight.shape
    return Sizes(x.numel() // dim, dim, outputs, x.dtype, x.device)
