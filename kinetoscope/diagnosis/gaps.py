"""The gaps of the GPU in a step, each with its cause, and who waits for whom."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from kinetoscope.diagnosis.cpu_states import Cause, CpuStates, launcher, outermost
from kinetoscope.trace.events import GpuActivity, Span, in_whole_ns
from kinetoscope.trace.intervals import Interval, contains, intersect, length_ns, ns, subtract, union_of

LONG_US = 1000.0
"""The least gap that a slow operator or Python causes; launching causes shorter gaps."""
RELAUNCH_US = 100.0
"""After a wait, the CPU launches again: up to this much of a gap that begins in a wait counts as the wait's."""
_SPECIAL: tuple[Cause, ...] = (
    "garbage collection",
    "compiling",
    "data loading",
    "memory allocation",
    "pageable copy",
)


@dataclass(frozen=True)
class Waits:
    """Who waits for whom: the four parts of a step's time, which add up to it exactly."""

    both_busy_us: float
    only_cpu_us: float
    """The GPU is idle while the CPU works."""
    only_gpu_us: float
    """The CPU waits while the GPU works, or has no recorded event."""
    neither_us: float

    @property
    def gpu_idle_us(self) -> float:
        """Time in which the GPU is idle."""
        return round(self.only_cpu_us + self.neither_us, 3)

    @property
    def step_us(self) -> float:
        """All four parts."""
        return round(self.both_busy_us + self.only_cpu_us + self.only_gpu_us + self.neither_us, 3)


class Gap(Struct, frozen=True, gc=False):
    """A time in a step in which the GPU is idle."""

    start_us: float
    duration_us: float
    cause: Cause
    blame: Span | None
    """The call, operator or function that the GPU waits for; None if the trace does not show it."""
    working_us: float = 0.0
    """Time of the gap in which the CPU launches, or runs Python."""

    @property
    def end_us(self) -> float:
        """The end, on the clock of `start_us`."""
        return in_whole_ns(self.start_us + self.duration_us)


def waits_in(window: Interval, busy: Sequence[Interval], cpu: CpuStates) -> Waits:
    """Divide a step's time by who is busy; `busy` are the times in which the GPU works."""
    step = [window]
    gpu = intersect(step, busy)
    idle_cpu = cpu.idle(step)
    gpu_ns, idle_cpu_ns, only_gpu = length_ns(gpu), length_ns(idle_cpu), length_ns(intersect(gpu, idle_cpu))
    neither = idle_cpu_ns - only_gpu
    only_cpu = length_ns(step) - gpu_ns - neither
    return Waits(*(part / 1000 for part in (gpu_ns - only_gpu, only_cpu, only_gpu, neither)))


def gaps_in(
    windows: Sequence[Interval],
    busy: Sequence[Interval],
    cpu: CpuStates,
    activities: Sequence[GpuActivity],
    least_us: float = 0.0,
) -> tuple[Gap, ...]:
    """The gaps of the GPU in steps, in start order, that last at least `least_us`.

    `windows`: the times of the steps, sorted and disjoint. The next of `activities`, in start order, ends a gap.
    """
    least_ns, long_ns = ns(least_us), ns(LONG_US)
    idle = [gap for gap in subtract(windows, busy) if gap[1] - gap[0] >= least_ns]
    if not idle:
        return ()
    starts = {start for start, _ in windows}
    parts = cpu.partition(windows)
    blames: dict[Cause, _Blames] = {}
    waiting, spans = union_of(cpu.syncs), cpu.spans
    gaps = []
    following = 0
    for (start, end), share in zip(idle, _shares(idle, parts), strict=True):
        # A gap at the start of a step began when the GPU ended its work of the step before.
        before = bisect_left(busy, (start, end)) if start in starts else 0
        began = busy[before - 1][1] if before else start
        cause = _cause(share, bool(waiting) and contains(waiting, began))
        is_launch = cause == "launching" and end - start < long_ns
        blame = None
        if not is_launch and cause in spans:
            if cause not in blames:
                blames[cause] = _Blames(outermost(spans[cause]))
            blame = blames[cause].during(start, end, began)
        if blame is None:
            end_us = end / 1000
            while following < len(activities) and activities[following].start_us < end_us:
                following += 1
            blame = _launcher(activities[following]) if following < len(activities) else None
        working = share.get("launching", 0) + share.get("Python", 0)
        duration_us = (end - start) / 1000
        working_us = duration_us if working == end - start else working / 1000
        gaps.append(Gap(start / 1000, duration_us, cause, blame, working_us))
    return tuple(gaps)


def _shares(idle: Sequence[Interval], parts: Mapping[Cause, Sequence[Interval]]) -> Iterator[dict[Cause, int]]:
    """The time of each cause in each gap, in ns, in the order of the causes; without causes that take none."""
    times_of = {cause: intersect(idle, times)[::-1] for cause, times in parts.items()}
    times_of = {cause: times for cause, times in times_of.items() if times}
    for _, gap_end in idle:
        share: dict[Cause, int] = {}
        for cause, times in times_of.items():
            while times and times[-1][0] < gap_end:
                start, end = times.pop()
                share[cause] = share.get(cause, 0) + end - start
        yield share


def _cause(share: dict[Cause, int], began_in_wait: bool) -> Cause:
    """A special cause of half the gap, else a wait that with its relaunch is half the gap, else the longest cause."""
    if len(share) == 1 and not began_in_wait:
        return next(iter(share))
    whole = sum(share.values())
    for cause, time in share.items():
        if 2 * time >= whole and cause in _SPECIAL:
            return cause
    if began_in_wait:
        relaunch = min(ns(RELAUNCH_US), share.get("launching", 0) + share.get("Python", 0))
        if 2 * (share.get("synchronization", 0) + relaunch) >= whole:
            return "synchronization"
    return max(share, key=share.__getitem__)


class _Blames:
    """Finds the span that fills most of a gap, among spans that do not overlap."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = spans
        self.ends = [ns(span.end_us) for span in spans]

    def during(self, start: int, end: int, began: int) -> Span | None:
        """The span with the longest time in the gap. If the gap is the step's first, the gap `began` before the
        step."""
        longest: tuple[int, Span | None] = (0, None)
        for index in range(bisect_left(self.ends, min(start, began)), len(self.spans)):
            span = self.spans[index]
            if ns(span.start_us) >= end:
                break
            longest = max(longest, (min(end, self.ends[index]) - max(began, ns(span.start_us)), span), key=_first)
        return longest[1]


def _first(pair: tuple[int, Span | None]) -> int:
    return pair[0]


def _launcher(activity: GpuActivity) -> Span:
    """The operator, else the call, that launched the activity at the end of a gap; else the activity."""
    return launcher(activity) or activity
