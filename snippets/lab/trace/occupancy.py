"""How many blocks of a kernel fit on a multiprocessor at a time, and how full they make it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from snippets.lab.trace.events import GpuActivity, TraceError

WARP, REGISTER_UNIT, PARTITIONS = 32, 8, 4
"""Threads of a warp; registers of a thread come in eights; each quarter of a multiprocessor has its own registers."""
SHARED_UNIT_BYTES, RESERVED_SHARED_BYTES = 128, 1024
"""Shared memory of a block comes in units, and CUDA takes a part for itself."""
MAX_BLOCKS = 32
"""Blocks of a multiprocessor at a time on GPUs for data centers from compute capability 8.0 on; others hold fewer."""


class Stocks(NamedTuple):
    """What a multiprocessor has."""

    registers: int
    shared_bytes: int
    threads: int


class Footprint(NamedTuple):
    """What a block takes of its multiprocessor."""

    registers: int
    """Of a thread."""
    shared_bytes: int
    threads: int

    @property
    def warps(self) -> int:
        """Warps of the block, the last of which may be partly empty."""
        return math.ceil(self.threads / WARP)


def stocks_of(properties: Mapping[str, int]) -> Stocks:
    """The stocks by the device properties of a trace."""
    names = ("regsPerMultiprocessor", "sharedMemPerMultiprocessor", "maxThreadsPerMultiprocessor")
    return Stocks(*(properties[name] for name in names))


def footprint_of(kernel: GpuActivity) -> Footprint:
    """What a kernel's blocks took. Raises `TraceError` where that is not in the trace."""
    if kernel.block is None or kernel.registers is None or kernel.shared_memory_bytes is None:
        raise TraceError(f"the trace does not tell what {kernel.name} takes of a multiprocessor")
    return Footprint(kernel.registers, kernel.shared_memory_bytes, math.prod(kernel.block))


def fits_by(footprint: Footprint, stocks: Stocks) -> dict[str, int]:
    """How many blocks fit at a time by each stock; one without shared memory is not limited by it."""
    of_warp = math.ceil(footprint.registers / REGISTER_UNIT) * REGISTER_UNIT * WARP
    warps = stocks.registers // PARTITIONS // of_warp * PARTITIONS
    fits = {"registers": warps // footprint.warps, "threads": stocks.threads // (WARP * footprint.warps)}
    if footprint.shared_bytes:
        units = math.ceil(footprint.shared_bytes / SHARED_UNIT_BYTES)
        fits["shared memory"] = stocks.shared_bytes // (units * SHARED_UNIT_BYTES + RESERVED_SHARED_BYTES)
    return fits


def resident_blocks(footprint: Footprint, stocks: Stocks) -> int:
    """How many blocks fit at a time, by the scarcest."""
    return min(MAX_BLOCKS, *fits_by(footprint, stocks).values())


def occupancy_percent(footprint: Footprint, stocks: Stocks, blocks: float | None = None) -> float:
    """Share of the thread slots that so many blocks fill; without a number, as many as fit."""
    filled = resident_blocks(footprint, stocks) if blocks is None else blocks
    return 100 * filled * footprint.warps * WARP / stocks.threads


def kernel_percent(kernel: GpuActivity, properties: Mapping[str, int]) -> float:
    """Share of the thread slots that a kernel's blocks fill, as many as fit on a GPU of these device properties."""
    return occupancy_percent(footprint_of(kernel), stocks_of(properties))


def estimate_percent(kernel: GpuActivity, properties: Mapping[str, int]) -> float:
    """What the profiler estimates: no blocks at all where one takes more shared memory than it gets without asking.

    Else as many as fit, but no more than the grid has for each multiprocessor.
    """
    footprint, stocks = footprint_of(kernel), stocks_of(properties)
    available = math.prod(kernel.grid or (0,)) / properties["numSms"]
    fit = 0 if footprint.shared_bytes > properties["sharedMemPerBlock"] else resident_blocks(footprint, stocks)
    return occupancy_percent(footprint, stocks, min(fit, available))
