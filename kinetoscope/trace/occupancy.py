"""How many blocks of a kernel fit on a multiprocessor, and its occupancy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from kinetoscope.trace.events import GpuActivity, TraceError

WARP, REGISTER_UNIT, PARTITIONS = 32, 8, 4
"""Threads per warp; a thread's registers are allocated in units of 8; a multiprocessor has 4 register files."""
SHARED_UNIT_BYTES, RESERVED_SHARED_BYTES = 128, 1024
"""Allocation unit of a block's shared memory; CUDA reserves 1024 bytes per block."""
MAX_BLOCKS = 32
"""Resident blocks per multiprocessor on data-center GPUs from compute capability 8.0; other GPUs hold fewer."""


class Stocks(NamedTuple):
    """The resources of a multiprocessor."""

    registers: int
    shared_bytes: int
    threads: int


class Footprint(NamedTuple):
    """The resources that a block uses on its multiprocessor."""

    registers: int
    """Per thread."""
    shared_bytes: int
    threads: int

    @property
    def warps(self) -> int:
        """Warps per block, including a partly empty last one."""
        return math.ceil(self.threads / WARP)


def stocks_of(properties: Mapping[str, int]) -> Stocks:
    """The stocks from the device properties of a trace."""
    names = ("regsPerMultiprocessor", "sharedMemPerMultiprocessor", "maxThreadsPerMultiprocessor")
    return Stocks(*(properties[name] for name in names))


def footprint_of(kernel: GpuActivity) -> Footprint:
    """The resources of a kernel's blocks. Raises `TraceError` if the trace lacks them."""
    if kernel.block is None or kernel.registers is None or kernel.shared_memory_bytes is None:
        raise TraceError(f"the trace lacks the block size, registers or shared memory of {kernel.name}")
    return Footprint(kernel.registers, kernel.shared_memory_bytes, math.prod(kernel.block))


def fits_by(footprint: Footprint, stocks: Stocks) -> dict[str, int]:
    """Resource -> how many blocks fit by it alone; omits shared memory if the block uses none."""
    of_warp = math.ceil(footprint.registers / REGISTER_UNIT) * REGISTER_UNIT * WARP
    warps = stocks.registers // PARTITIONS // of_warp * PARTITIONS
    fits = {"registers": warps // footprint.warps, "threads": stocks.threads // (WARP * footprint.warps)}
    if footprint.shared_bytes:
        units = math.ceil(footprint.shared_bytes / SHARED_UNIT_BYTES)
        fits["shared memory"] = stocks.shared_bytes // (units * SHARED_UNIT_BYTES + RESERVED_SHARED_BYTES)
    return fits


def resident_blocks(footprint: Footprint, stocks: Stocks) -> int:
    """How many blocks fit on a multiprocessor: the minimum over its resources."""
    return min(MAX_BLOCKS, *fits_by(footprint, stocks).values())


def occupancy_percent(footprint: Footprint, stocks: Stocks, blocks: float | None = None) -> float:
    """Percent of the thread slots that `blocks` blocks fill; default: as many blocks as fit."""
    filled = resident_blocks(footprint, stocks) if blocks is None else blocks
    return 100 * filled * footprint.warps * WARP / stocks.threads


def kernel_percent(kernel: GpuActivity, properties: Mapping[str, int]) -> float:
    """Percent of the thread slots that a kernel fills with as many blocks as fit, from the device properties."""
    return occupancy_percent(footprint_of(kernel), stocks_of(properties))


def estimate_percent(kernel: GpuActivity, properties: Mapping[str, int]) -> float:
    """The profiler's estimate: 0 if a block uses more shared memory than the default limit.

    Else as many blocks as fit, but at most the grid's blocks per multiprocessor.
    """
    footprint, stocks = footprint_of(kernel), stocks_of(properties)
    available = math.prod(kernel.grid or (0,)) / properties["numSms"]
    fit = 0 if footprint.shared_bytes > properties["sharedMemPerBlock"] else resident_blocks(footprint, stocks)
    return occupancy_percent(footprint, stocks, min(fit, available))
