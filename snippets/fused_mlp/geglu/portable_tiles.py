"""Tiles of the portable kernels, and the resources of a GPU that they take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class PortableTiles(NamedTuple):
    """How a portable kernel cuts its work: tiles of (block_m, block_n), block_k
    of K at a time, loads up to `stages` - 1 blocks ahead."""

    block_m: int
    block_n: int
    block_k: int
    stages: int
    warps: int
    group: int = 8

    @property
    def name(self) -> str:
        """Short, and different for any two tilings of one list below."""
        return (
            f"{self.block_m}x{self.block_n}x{self.block_k}, {self.stages} "
            f"stages, {self.warps} warps, group {self.group}"
        )


PORTABLE_GATED = (
    PortableTiles(128, 64, 64, 3, 4),
    PortableTiles(128, 128, 64, 4, 8),
    PortableTiles(128, 128, 64, 4, 8, 1),
    PortableTiles(128, 128, 64, 3, 8),
    PortableTiles(128, 64, 64, 4, 8),
    PortableTiles(128, 64, 64, 3, 8),
    PortableTiles(128, 64, 32, 4, 4),
    PortableTiles(128, 64, 32, 4, 8),
    PortableTiles(256, 64, 64, 3, 8),
    PortableTiles(64, 128, 64, 3, 4),
    PortableTiles(64, 64, 64, 3, 8),
    PortableTiles(64, 32, 64, 4, 4),
    PortableTiles(32, 32, 64, 4, 4),
    PortableTiles(16, 32, 128, 4, 4),
    PortableTiles(16, 16, 256, 3, 4),
)
PORTABLE = (
    PortableTiles(128, 128, 64, 3, 4),
    PortableTiles(128, 256, 64, 4, 8),
    PortableTiles(128, 256, 64, 4, 8, 1),
    PortableTiles(128, 256, 64, 3, 8),
    PortableTiles(128, 128, 64, 4, 8),
    PortableTiles(128, 128, 64, 3, 8),
    PortableTiles(64, 128, 32, 4, 4),
    PortableTiles(128, 128, 32, 4, 8),
    PortableTiles(256, 128, 64, 3, 8),
    PortableTiles(64, 256, 64, 3, 4),
    PortableTiles(64, 128, 64, 3, 4),
    PortableTiles(64, 64, 64, 4, 4),
    PortableTiles(32, 64, 64, 4, 4),
    PortableTiles(16, 64, 128, 4, 4),
    PortableTiles(16, 32, 256, 3, 4),
)


def tensor_cores(tiles: PortableTiles, capability: int) -> str:
    """The instruction by which compute capability `capability` (80 is 8.0)
    multiplies such blocks."""
    if tiles.block_m < 64 or capability not in range(90, 120):
        return "HMMA"
    return "HGMMA" if capability == 90 else "UTCHMMA"


def shared_bytes(
    tiles: PortableTiles, itemsize: int, capability: int, weights: int
) -> int:
    """A program's bytes of shared memory, for elements of `itemsize` bytes;
    `weights` is 2 for gate and up."""
    block = (tiles.block_m + weights * tiles.block_n) * tiles.block_k * itemsize
    # HMMA reads a block at once into registers, which the next one replaces
    buffers = tiles.stages - (tensor_cores(tiles, capability) == "HMMA")
    # where products are asynchronous and tell of their end
    barriers = 16 if tensor_cores(tiles, capability) == "UTCHMMA" else 0
    return buffers * block + barriers


def candidates(
    tilings: Sequence[PortableTiles],
    capability: int,
    shared_limit: int,
    rows: int,
    itemsize: int = 2,
) -> list[PortableTiles]:
    """The tilings that need at most `shared_limit` bytes of shared memory per
    program, and that `rows` tokens fill at least half."""
    weights = 2 if tilings is PORTABLE_GATED else 1
    return [
        tiles
        for tiles in tilings
        if shared_bytes(tiles, itemsize, capability, weights) <= shared_limit
        and tiles.block_m < max(2 * rows, 32)
        and (tiles.block_m >= 64 or rows <= 64)
    ]


def aligned(*sizes: int) -> int:
    """The largest number of 2-byte elements, 16 bytes together at most, that
    divides rows of all these sizes."""
    return math.gcd(8, *sizes)
