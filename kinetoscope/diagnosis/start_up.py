"""The start of a GPU's runtime: the long calls before a process's first work on a GPU."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from kinetoscope.trace.events import CudaCall, GpuActivity
from kinetoscope.trace.queries import is_sync

START_UP_US, MIN_CALL_US = 100_000.0, 10_000.0
"""A start takes at least so long in all, in calls of at least so long each."""
_LAUNCH = re.compile(r"Launch")
_RUNTIMES = (("CUDA", re.compile(r"cu(da)?[A-Z]")), ("HIP", re.compile(r"hip[A-Z]")))


def start_up_calls(calls: Sequence[CudaCall], activities: Sequence[GpuActivity]) -> list[CudaCall]:
    """The calls that start the runtime; empty if the trace begins later. All events are of one process, in start order.

    Before the first work of a GPU, a process can neither wait for that GPU nor free its memory: the first calls create
    the context and load modules, once. A call whose name takes half as long again later is no start.
    """
    first_work_us = _first_work(calls, activities)
    early: list[tuple[float, CudaCall]] = []
    later_us: dict[str, float] = defaultdict(float)
    for call in calls:
        until_us = first_work_us(call)
        if call.start_us >= until_us or call.start_us >= call.end_us:
            later_us[call.name] = max(later_us[call.name], call.duration_us)
        elif not is_sync(call.name):
            early.append((min(call.end_us, until_us) - call.start_us, call))
    start = [(us, call) for us, call in early if us >= MIN_CALL_US and later_us[call.name] < us / 2]
    return [call for _, call in start] if sum(us for us, _ in start) >= START_UP_US else []


def _first_work(calls: Sequence[CudaCall], activities: Sequence[GpuActivity]) -> Callable[[CudaCall], float]:
    """Call -> start of the first work of its GPU, which is the GPU of the next work that its thread launches.

    If no GPU work was recorded, the end of the first launch of a kernel.
    """
    if not activities:
        first_us = next((call.end_us for call in calls if _LAUNCH.search(call.name)), 0.0)
        return lambda _: first_us
    if len({activity.device for activity in activities}) == 1:
        return lambda _: activities[0].start_us
    first_of: dict[int, float] = {}
    launches: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for activity in activities:
        first_of.setdefault(activity.device, activity.start_us)
        if activity.launch is not None:
            launches[activity.launch.thread].append((activity.launch.start_us, activity.device))
    for each in launches.values():
        each.sort()

    def first_work_us(call: CudaCall) -> float:
        following = launches.get(call.thread, [])
        index = bisect_left(following, (call.start_us, 0))
        return first_of[following[index][1]] if index < len(following) else activities[0].start_us

    return first_work_us


def runtime_name(calls: Iterable[CudaCall]) -> str:
    """`CUDA` or `HIP`, by the names of calls; otherwise `the GPU's runtime`."""
    names = {call.name for call in calls}
    known = (runtime for runtime, prefix in _RUNTIMES if any(map(prefix.match, names)))
    return next(known, "the GPU's runtime")
