"""Collectives of NCCL and RCCL, and what of them no other work on their GPU hides."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from snippets.lab.diagnosis.intervals import Interval, interval, subtract, union
from snippets.lab.trace.events import GpuActivity

_COLLECTIVE = re.compile(r"(void )?(nccl|rccl)(Dev)?(Kernel|_?\w)", re.IGNORECASE)


def is_collective(activity: GpuActivity) -> bool:
    """Whether an activity is a kernel of NCCL or RCCL."""
    return activity.kind == "kernel" and (activity.collective is not None or bool(_COLLECTIVE.match(activity.name)))


def collective_name(activity: GpuActivity) -> str:
    """`allreduce` where the profiler recorded it, else the kernel's name."""
    return activity.collective.name if activity.collective is not None else activity.name


def exposed(activities: Iterable[GpuActivity], collectives: Iterable[GpuActivity]) -> dict[int, list[Interval]]:
    """Device -> times in which one of `collectives` runs on it and no other of its `activities` does."""
    communicating: dict[int, list[Interval]] = defaultdict(list)
    computing: dict[int, list[Interval]] = defaultdict(list)
    for activity in collectives:
        communicating[activity.device].append(interval(activity))
    for activity in activities:
        if not is_collective(activity):
            computing[activity.device].append(interval(activity))
    return {device: subtract(union(times), union(computing[device])) for device, times in communicating.items()}
