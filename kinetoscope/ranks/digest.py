"""A trace reduced to a small file, and several of them merged: the data that a report about ranks needs.

Times are whole nanoseconds, so sums are exact, and merging in any order or tree gives the same digest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Annotated

from msgspec import Meta, Struct

from kinetoscope.job.matching import Call, calls_of
from kinetoscope.job.windows import Time, Window, idle_of, windows_of
from kinetoscope.ranks.kernels import Count, KernelDigest, Name, kernel_digests, nanoseconds, operation
from kinetoscope.trace.communication import (
    Computing,
    collectives,
    computing_times,
    exposed_collectives_us,
    is_collective,
)
from kinetoscope.trace.events import Step, Trace, TraceError
from kinetoscope.trace.identity import MAX_ALL_MEMBERS
from kinetoscope.trace.intervals import Interval
from kinetoscope.trace.queries import busy_us, extent_us, require_steps
from kinetoscope.trace.soundness import damage_texts
from kinetoscope.trace.text import shortened

FORMAT, VERSION = "profiling-pytorch digest", 2
MAX_STEPS, MAX_CALLS, MAX_EXPOSED, MAX_IDLE = 64, 1000, 1000, 300
"""Of a digest: the first steps, their first calls, and the longest times in which only communication runs, or nothing.
About 200 KB in JSON."""
MAX_MEMBERS = 100_000
MAX_DAMAGE = 12
Damaged = Annotated[str, Meta(max_length=600)]
Run = tuple[Time, Annotated[int, Meta(ge=1, le=2**31)], Annotated[int, Meta(ge=1, le=MAX_MEMBERS)]]
"""First rank, stride and number of ranks of a group, or of a part of it."""


class RankStep(Struct, frozen=True, array_like=True):
    """One step of one rank, in ns."""

    number: Annotated[int, Meta(ge=0, le=2**62)]
    wall_ns: Count  # on the CPU
    extent_ns: Count  # on the GPU, from the first start to the last end
    busy_ns: Count  # at least one activity runs
    compute_ns: Count  # a kernel runs that does not communicate
    communication_ns: Count  # a kernel runs that communicates
    exposed_ns: Count  # ... and no other kernel

    @property
    def idle_ns(self) -> int:
        """Time between the first start and the last end in which nothing runs."""
        return max(0, self.extent_ns - self.busy_ns)


class CallSet(Struct, frozen=True, array_like=True):
    """The calls of a rank that have one operation, group and element type."""

    operation: Name
    group: Name
    members: tuple[Run, ...]  # empty: not in the trace
    size: Count  # 0: not in the trace
    type: Name
    calls: tuple[tuple[int, Count, Time, Time, Count, Count], ...]
    """Step, index in the group, start, duration, elements in and out."""


class RankDigest(Struct, frozen=True):
    """One rank: a process and its GPU."""

    rank: Annotated[int, Meta(ge=0, le=2**31)] | None
    world_size: Annotated[int, Meta(ge=1, le=2**31)] | None
    device: Name
    steps_from: Name
    step_count: Annotated[int, Meta(ge=1)]  # `steps` has the first 64
    steps: Annotated[tuple[RankStep, ...], Meta(min_length=1, max_length=MAX_STEPS)]
    operations_ns: dict[Name, Count]  # gemm, attention, ... -> over all steps, summed; memcpy and memset, too
    operation_calls: dict[Name, Count]  # ... -> number of activities
    collectives: Count  # kernels that communicate
    uncounted: Count  # GPU activities in no step
    origin_ns: Count  # time 0 of the trace, since 1970
    windows: Annotated[tuple[Window, ...], Meta(max_length=MAX_STEPS)]  # of `steps` with GPU work
    exposed: tuple[tuple[Time, Time], ...]  # start and end, in start order
    idle: tuple[tuple[Time, Time], ...]  # the longest times in `windows` in which nothing runs, in start order
    call_sets: tuple[CallSet, ...]
    calls_left_out: bool  # there are more than `MAX_CALLS`
    unmatched: Count  # collectives at which no rank waits, or of which the trace does not tell what they are
    damage: Annotated[tuple[Damaged, ...], Meta(max_length=MAX_DAMAGE)] = ()  # what the trace lost, a sentence each


class Digest(Struct, frozen=True):
    """A trace, or several merged."""

    format: str
    version: int
    ranks: Annotated[tuple[RankDigest, ...], Meta(min_length=1)]  # in the order of their numbers
    kernels: tuple[KernelDigest, ...]  # in the order of their keys


def digest(trace: Trace, rank: int | None = None) -> Digest:
    """Reduce a trace. `rank` applies if the trace does not tell its rank.

    Raises `TraceError` if the trace has no step, or several ranks: only digests of one rank can be merged.
    """
    require_steps(trace)
    if len(trace.processes) > 1:
        raise TraceError(f"the file holds {len(trace.processes)} merged processes; give the trace of each rank")
    number = rank if trace.rank is None else trace.rank
    activities = [activity for step in trace.steps for activity in step.activities]
    steps = trace.steps[:MAX_STEPS]
    computing = computing_times(trace.activities)
    windows, exposed = windows_of(steps)
    calls, unmatched = calls_of(steps, -1 if number is None else number, dict(trace.groups))
    times: Counter[str] = Counter()
    for activity in activities:
        times[operation(activity)] += nanoseconds(activity.duration_us)
    of_rank = RankDigest(
        rank=number,
        world_size=trace.world_size,
        device=shortened(trace.device or ""),
        steps_from=shortened(trace.steps_from),
        step_count=len(trace.steps),
        steps=tuple(step_times(step, computing) for step in steps),
        operations_ns=dict(sorted(times.items())),
        operation_calls=dict(sorted(Counter(map(operation, activities)).items())),
        collectives=sum(map(is_collective, activities)),
        uncounted=len(trace.unattributed),
        origin_ns=max(0, trace.origin_ns),
        windows=tuple(windows),
        exposed=_longest(exposed, MAX_EXPOSED),
        idle=_longest(idle_of(steps, windows), MAX_IDLE),
        call_sets=_call_sets(calls[:MAX_CALLS]),
        calls_left_out=len(calls) > MAX_CALLS,
        unmatched=unmatched,
        damage=tuple(shortened(text, 600) for text in islice(damage_texts(trace), MAX_DAMAGE)),
    )
    return Digest(FORMAT, VERSION, (of_rank,), kernel_digests(activities))


def step_times(step: Step, computing: Computing) -> RankStep:
    """The times of a step. A concurrent kernel hides a collective; a concurrent copy does not."""
    return RankStep(
        number=step.number,
        wall_ns=nanoseconds(step.end_us - step.start_us),
        extent_ns=nanoseconds(extent_us(step.activities)),
        busy_ns=nanoseconds(busy_us(step.activities)),
        compute_ns=nanoseconds(busy_us(kernel for kernel in step.kernels if not is_collective(kernel))),
        communication_ns=nanoseconds(busy_us(collectives(step))),
        exposed_ns=nanoseconds(exposed_collectives_us(step, computing)),
    )


def _longest(intervals: Sequence[Interval], limit: int) -> tuple[Interval, ...]:
    return tuple(sorted(sorted(intervals, key=lambda each: each[0] - each[1])[:limit]))


def _call_sets(calls: Sequence[Call]) -> tuple[CallSet, ...]:
    sets: dict[tuple[str, str, tuple[int, ...], int, str], list[tuple[int, int, int, int, int, int]]] = {}
    for call in calls:
        key = call.operation, shortened(call.group), call.members, call.size, shortened(call.type)
        times = call.step, call.index, call.start_ns, call.duration_ns, call.elements_in, call.elements_out
        sets.setdefault(key, []).append(times)
    return tuple(
        CallSet(operation, group, runs(members), size, kind, tuple(found))
        for (operation, group, members, size, kind), found in sets.items()
    )


def runs(ranks: Sequence[int]) -> tuple[Run, ...]:
    """The ranks as runs with a constant stride, in their order: (0, 8, 16) -> ((0, 8, 3),)."""
    found: list[tuple[int, int, int]] = []
    for rank in ranks[:MAX_MEMBERS]:
        if found:
            first, stride, count = found[-1]
            step = rank - first if count == 1 else stride
            if step > 0 and rank == first + step * count:
                found[-1] = first, step, count + 1
                continue
        found.append((rank, 1, 1))
    return tuple(found)


def calls_in(rank: RankDigest) -> list[Call]:
    """The calls of a rank."""
    number = -1 if rank.rank is None else rank.rank
    found: list[Call] = []
    left = MAX_ALL_MEMBERS
    for each in rank.call_sets:
        listed = (first + stride * index for first, stride, count in each.members for index in range(count))
        is_known = sum(count for _, _, count in each.members) <= left
        members = tuple(listed) if is_known else ()
        left -= len(members)
        for step, index, start, duration, elements_in, elements_out in each.calls:
            found.append(
                Call(
                    number, step, each.operation, each.group, members, each.size, index, start, duration,
                    elements_in, elements_out, each.type,
                )
            )  # fmt: skip
    return found
