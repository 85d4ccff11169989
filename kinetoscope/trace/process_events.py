"""The events of one process in which steps are sought, and the work that starts in a stretch of time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

from msgspec import Struct

from kinetoscope.trace.events import CpuOp, CudaCall, GpuActivity, Span, by_start, last_end_us, starting_in
from kinetoscope.trace.queries import is_sync

CLOCK_NOISE_US = 0.002


class Mark(Struct, frozen=True):
    """The place of a step. `op`: the annotation that marks it."""

    number: int
    name: str
    start_us: float
    end_us: float
    op: CpuOp | None = None


class Part(Struct, frozen=True):
    """The events of one process, in start order."""

    process: str
    ops: Sequence[CpuOp]
    calls: Sequence[CudaCall]
    activities: Sequence[GpuActivity]
    placed: Mapping[int, float] | None = None
    """In a trace of the GPU alone: the time at which an activity counts, by its id."""

    def start_us(self) -> float:
        """The start of the first event."""
        return min((spans[0].start_us for spans in self._lists() if spans), default=0.0)

    def end_us(self) -> float:
        """The end of the last event."""
        return max(map(last_end_us, self._lists()))

    def _lists(self) -> tuple[Sequence[Span], ...]:
        return self.ops, self.calls, self.activities


class Work(Struct, frozen=True):
    """GPU time by the time of its launch; without GPU work, CPU time, and the starts of operators for launches."""

    total_us: float
    starts: Sequence[float]
    sums: Sequence[float] = ()

    def during_us(self, start_us: float, end_us: float) -> float:
        """The GPU time that is launched in a stretch of time; without GPU work, its length."""
        if not self.sums:
            return end_us - start_us
        return self.sums[bisect_left(self.starts, end_us)] - self.sums[bisect_left(self.starts, start_us)]

    def launches(self, start_us: float, end_us: float) -> int:
        """The number of activities that are launched in a stretch of time; without GPU work, of operators."""
        return max(0, bisect_left(self.starts, end_us) - bisect_left(self.starts, start_us))

    def share(self, spans: Iterable[CpuOp | Mark]) -> float:
        """The share of the GPU time that is launched in any of these spans; without GPU work, of the operators."""
        if self.sums:
            return sum(self.during_us(span.start_us, span.end_us) for span in spans) / (self.total_us or 1.0)
        return sum(self.launches(span.start_us, span.end_us) for span in spans) / max(1, len(self.starts))


def find_work(part: Part) -> Work:
    """The work of a process."""
    if not part.activities:
        start = part.ops[0].start_us if part.ops else 0.0
        return Work(part.end_us() - start, [op.start_us for op in part.ops if not op.is_annotation])
    times = ((launched_us(part, activity), activity.duration_us) for activity in part.activities)
    launched = sorted((at, us) for at, us in times if at is not None)
    total_us = sum(activity.duration_us for activity in part.activities)
    return Work(total_us, [start for start, _ in launched], [0.0, *accumulate(us for _, us in launched)])


def launched_us(part: Part, activity: GpuActivity) -> float | None:
    """When an activity was launched; in a trace without any call, when its operator starts; None if nothing tells."""
    if part.placed is not None:
        return part.placed.get(id(activity))
    if activity.launch is not None:
        return activity.launch.start_us
    return activity.op.start_us if activity.op is not None and not part.calls else None


def own_end_us(part: Part, start_us: float, limit_us: float, pause_us: float) -> float:
    """The end of the work that starts from `start_us` on, on the CPU, and of the GPU work that it launches.

    Waiting is no work: a profiler that stops waits for the GPU. Nor is what starts at `limit_us` or later, or follows
    after a pause longer than `pause_us`.
    """
    spans: list[Span] = [op for op in starting_in(part.ops, start_us, limit_us) if not op.is_annotation]
    spans += [call for call in starting_in(part.calls, start_us, limit_us) if not is_sync(call.name)]
    times = ((activity, launched_us(part, activity)) for activity in part.activities)
    spans += [activity for activity, at in times if at is not None and start_us <= at < limit_us]
    end_us = start_us
    for span in sorted(spans, key=by_start):
        if span.start_us > end_us + pause_us:
            break
        end_us = max(end_us, span.end_us)
    return end_us


def until_next(part: Part, starts: Sequence[float], name: str) -> list[Mark]:
    """Steps that last until the next begins, two or more; the last one ends with its own work."""
    longest_us = max(after - before for before, after in pairwise(starts))
    ends = [*starts[1:], own_end_us(part, starts[-1], part.end_us() + 1, longest_us)]
    places = enumerate(zip(starts, ends, strict=True))
    return [Mark(number, f"{name} #{number}", start, end) for number, (start, end) in places]
