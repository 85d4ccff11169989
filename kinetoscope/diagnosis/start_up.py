"""The start of a GPU's runtime: the long calls before the first GPU work of a process."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from kinetoscope.trace.events import CudaCall, GpuActivity
from kinetoscope.trace.queries import is_sync

START_UP_US, MIN_CALL_US = 100_000.0, 10_000.0
"""A start takes at least so long in all, in calls of at least so long each."""
_LAUNCH = re.compile(r"Launch")
_RUNTIMES = (("CUDA", re.compile(r"cu(da)?[A-Z]")), ("HIP", re.compile(r"hip[A-Z]")))


def start_up_calls(calls: Sequence[CudaCall], activities: Iterable[GpuActivity]) -> list[CudaCall]:
    """The calls that start the runtime; empty if the trace begins later. All events are of one process.

    Before its first GPU work, a process can neither wait for the GPU nor free its memory: the first calls create the
    context and load modules, once. A call whose name takes half as long again later is no start. If no GPU work was
    recorded, the launch of the first kernel ends the start.
    """
    first_us = min((activity.start_us for activity in activities), default=None)
    if first_us is None:
        first_us = next((call.end_us for call in calls if _LAUNCH.search(call.name)), 0.0)
    early: list[tuple[float, CudaCall]] = []
    later_us: dict[str, float] = defaultdict(float)
    for call in calls:
        if call.start_us >= first_us:
            later_us[call.name] = max(later_us[call.name], call.duration_us)
        elif not is_sync(call.name):
            early.append((min(call.end_us, first_us) - call.start_us, call))
    start = [(us, call) for us, call in early if us >= MIN_CALL_US and later_us[call.name] < us / 2]
    return [call for _, call in start] if sum(us for us, _ in start) >= START_UP_US else []


def runtime_name(calls: Iterable[CudaCall]) -> str:
    """`CUDA` or `HIP`, by the names of calls; otherwise `the GPU's runtime`."""
    names = {call.name for call in calls}
    known = (runtime for runtime, prefix in _RUNTIMES if any(map(prefix.match, names)))
    return next(known, "the GPU's runtime")
