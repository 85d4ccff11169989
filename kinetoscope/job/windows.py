"""The steps of a rank as times on its GPU: own work, communication beside it or alone, and idle time by its reason.

A step lasts from the GPU's end of the step before to its own end, so that the parts of a step add up to it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Annotated

from msgspec import Meta, Struct

from kinetoscope.trace.communication import is_collective, is_peer_copy
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.intervals import (
    Interval,
    intersect,
    interval,
    lengths_in,
    ns,
    subtract,
    union,
    union_of,
)

LATENCY_NS = 50_000
"""A launched kernel starts within this time; a longer gap has another reason than its launch."""
STALL_NS = 1_000_000
"""The profiler makes each operator and call longer, so time without either is longer only if the program waits.

In recordings of two and four H200, no two events of a busy launching thread were further apart than this.
"""


Time = Annotated[int, Meta(ge=0, le=2**62)]


class Window(Struct, frozen=True, array_like=True, gc=False):
    """One step of a rank on its GPU, in ns on the clock of its trace."""

    number: int
    start_ns: Time
    end_ns: Time
    own_ns: Time  # kernels and copies run that do not communicate
    hidden_ns: Time  # ... and communication beside them
    exposed_ns: Time  # only communication runs
    idle_ns: Time  # nothing runs
    stalled_ns: Time  # of it: no launch is to blame, or the launching thread records nothing
    launching_ns: Time  # of it: the next launch comes late, from a thread that works

    @property
    def length_ns(self) -> int:
        """The time of the step: own, exposed and idle time add up to it."""
        return self.end_ns - self.start_ns


def windows_of(steps: Sequence[Step]) -> tuple[list[Window], list[Interval]]:
    """The windows of one rank's steps that have GPU work, and the times in which only communication runs."""
    activities = sorted((each for step in steps for each in step.activities), key=lambda each: each.start_us)
    spans = _spans(steps)
    windows = [(start, end) for _, start, end in spans]
    communicating = union_of(each for each in activities if is_collective(each) or is_peer_copy(each))
    own = union_of(each for each in activities if not (is_collective(each) or is_peer_copy(each)))
    exposed, hidden = subtract(communicating, own), intersect(communicating, own)
    idle = subtract(union(windows), union_of(activities))
    stalled, launching = _reasons(idle, activities, steps)
    lengths = (lengths_in(windows, each) for each in (own, hidden, exposed, idle, stalled, launching))
    return [Window(*span, *parts) for span, parts in zip(spans, zip(*lengths, strict=True), strict=True)], exposed


def idle_of(steps: Sequence[Step], windows: Iterable[Window]) -> list[Interval]:
    """The times in these windows of one rank in which nothing runs on its GPU."""
    spans = union((window.start_ns, window.end_ns) for window in windows)
    return subtract(spans, union_of(activity for step in steps for activity in step.activities))


def _spans(steps: Sequence[Step]) -> list[tuple[int, int, int]]:
    """Number, start and end of each step with GPU work."""
    spans: list[tuple[int, int, int]] = []
    for step in steps:
        if step.activities:
            end = max(ns(each.end_us) for each in step.activities)
            start = spans[-1][2] if spans else _first_start(step)
            if end > start:
                spans.append((step.number, start, end))
    return spans


def _first_start(step: Step) -> int:
    """The start on the CPU if the GPU had no earlier work then, so that its first work started at once; else the start
    of this work."""
    first = min(step.activities, key=lambda each: each.start_us)
    start, launch = ns(first.start_us), first.launch
    if launch is None or start - ns(launch.start_us) > LATENCY_NS:
        return start
    return max(0, min(start, ns(step.start_us)))


def _reasons(
    idle: Iterable[Interval], activities: Sequence[GpuActivity], steps: Sequence[Step]
) -> tuple[list[Interval], list[Interval]]:
    """The idle times in which the program stalls, and those in which it launches; a short rest is neither."""
    events = _events(steps)
    starts = [ns(each.start_us) for each in activities]
    stalled: list[Interval] = []
    launching: list[Interval] = []
    for start, end in idle:
        index = bisect_left(starts, end)
        launch = activities[index].launch if index < len(activities) else None
        if launch is None:
            stalled.append((start, end))
            continue
        launched = min(end, max(start, ns(launch.start_us)))
        if end - launched > LATENCY_NS:
            stalled.append((launched, end))
        silent = _silences(start, launched, events.get(launch.thread, ()))
        stalled += silent
        launching += subtract([(start, launched)], silent)
    return union(stalled), union(launching)


def _silences(start: int, end: int, events: Sequence[int]) -> list[Interval]:
    """The stretches from `start` to `end` of at least `STALL_NS` without an event of the thread."""
    if end - start < STALL_NS:
        return []
    inside = events[bisect_right(events, start) : bisect_left(events, end)]
    bounds = [start, *inside, end]
    return [(before, after) for before, after in pairwise(bounds) if after - before >= STALL_NS]


def _events(steps: Sequence[Step]) -> dict[str, list[int]]:
    """The starts and ends of the operators and calls of each thread, sorted."""
    times: dict[str, list[int]] = defaultdict(list)
    for step in steps:
        for op in step.ops:
            times[op.thread] += interval(op)
        for call in step.calls:
            times[call.thread] += interval(call)
    for found in times.values():
        found.sort()
    return times
