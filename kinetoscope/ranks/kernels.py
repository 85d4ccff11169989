"""Kernels of one rank or of many, by name and launch shape, with a histogram of their durations."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from kinetoscope.trace.communication import is_collective, is_peer_copy
from kinetoscope.trace.events import GpuActivity
from kinetoscope.trace.kernel_names import decode_kernel_name

MAX_KERNELS = 300
"""Of a digest: the longest kernels; the others become one."""
OTHER = "other kernels"
BINS_PER_OCTAVE = 4

Count = Annotated[int, Meta(ge=0, le=2**62)]
Name = Annotated[str, Meta(max_length=200)]
Bin = Annotated[int, Meta(ge=0, le=1000)]


class KernelDigest(Struct, frozen=True):
    """All calls of the kernels that decode to one name, with one launch shape, on all ranks."""

    name: Name
    operation: Name
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    calls: Annotated[int, Meta(ge=1, le=2**62)]
    total_ns: Count
    min_ns: Count
    max_ns: Count
    durations: dict[Bin, Count]  # bin -> calls; a duration of d ns is in bin floor(4 log2(d + 1))


def nanoseconds(us: float) -> int:
    """Whole nanoseconds; NaN or infinity of a damaged trace counts as 0."""
    return max(0, min(2**53, round(us * 1000))) if math.isfinite(us) else 0


def operation(activity: GpuActivity) -> str:
    """The operation in a kernel's name, or memcpy or memset; of what communicates, communication."""
    if is_collective(activity) or is_peer_copy(activity):
        return "communication"
    return decode_kernel_name(activity.name).operation if activity.kind == "kernel" else activity.kind


def bin_of(ns: int) -> int:
    """The bin of a duration."""
    return int(BINS_PER_OCTAVE * math.log2(ns + 1))


def bin_middle_ns(index: int) -> float:
    """The geometric middle of a bin."""
    return max(0.0, 2 ** ((index + 0.5) / BINS_PER_OCTAVE) - 1)


def kernel_digests(activities: Sequence[GpuActivity]) -> tuple[KernelDigest, ...]:
    """The kernels among these activities, the longest 300 and the others as one, in the order of their keys."""
    groups: dict[tuple[object, ...], list[GpuActivity]] = defaultdict(list)
    for activity in activities:
        if activity.kind == "kernel":
            groups[decode_kernel_name(activity.name).short, activity.grid, activity.block].append(activity)
    calls = sorted(groups.values(), key=lambda group: -math.fsum(nanoseconds(each.duration_us) for each in group))
    longest = [
        _kernel(decode_kernel_name(group[0].name).short, operation(group[0]), group) for group in calls[:MAX_KERNELS]
    ]
    rest = [activity for group in calls[MAX_KERNELS:] for activity in group]
    if rest:
        longest.append(_kernel(OTHER, "other", rest, has_shape=False))
    return tuple(sorted(longest, key=kernel_key))


def kernel_key(kernel: KernelDigest) -> tuple[str, str, str]:
    """Kernels with the same key are the same kernel."""
    return kernel.name, repr(kernel.grid), repr(kernel.block)


def _kernel(name: str, of: str, calls: Sequence[GpuActivity], has_shape: bool = True) -> KernelDigest:
    times = [nanoseconds(call.duration_us) for call in calls]
    return KernelDigest(
        name=name,
        operation=of,
        grid=calls[0].grid if has_shape else None,
        block=calls[0].block if has_shape else None,
        calls=len(times),
        total_ns=sum(times),
        min_ns=min(times),
        max_ns=max(times),
        durations=dict(sorted(Counter(map(bin_of, times)).items())),
    )
