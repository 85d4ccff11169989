"""A trace reduced to a small file, and several of them merged: the data that a report about ranks needs.

Times are whole nanoseconds, so sums are exact, and merging in any order or tree gives the same digest.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from kinetoscope.trace.communication import collectives, exposed_collectives_us, is_collective
from kinetoscope.trace.events import GpuActivity, Step, Trace, TraceError
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.queries import busy_us, extent_us, require_steps
from kinetoscope.trace.text import shortened

FORMAT, VERSION = "profiling-pytorch digest", 1
MAX_STEPS, MAX_KERNELS, MAX_COLLECTIVES = 64, 300, 1000
"""Of a digest: first steps, longest kernels (the others become one), first collectives. About 200 KB in JSON."""
OTHER = "other kernels"
BINS_PER_OCTAVE = 4
WAITING = ("allreduce", "allgather", "reducescatter", "alltoall")
"""Collectives that no rank can finish before all have started; a broadcast or a send lets some go on."""

Count = Annotated[int, Meta(ge=0, le=2**62)]
Name = Annotated[str, Meta(max_length=200)]
Bin = Annotated[int, Meta(ge=0, le=1000)]


class RankStep(Struct, frozen=True, array_like=True):
    """One step of one rank, in ns."""

    number: int
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


class RankDigest(Struct, frozen=True):
    """One rank: a process and its GPU."""

    rank: Annotated[int, Meta(ge=0)] | None
    world_size: Annotated[int, Meta(ge=1)] | None
    device: Name
    steps_from: Name
    step_count: Annotated[int, Meta(ge=1)]  # `steps` has the first 64
    steps: Annotated[tuple[RankStep, ...], Meta(min_length=1, max_length=MAX_STEPS)]
    operations_ns: dict[Name, Count]  # gemm, attention, ... -> over all steps, summed; memcpy and memset, too
    collectives: Count  # kernels that communicate
    uncounted: Count  # GPU activities in no step


class KernelDigest(Struct, frozen=True):
    """All calls of the kernels that decode to one name, with one launch shape, on all ranks."""

    name: Name
    operation: Name
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    calls: Annotated[int, Meta(ge=1)]
    total_ns: Count
    min_ns: Count
    max_ns: Count
    durations: dict[Bin, Count]  # bin -> calls; a duration of d ns is in bin floor(4 log2(d + 1))


class CollectiveDigest(Struct, frozen=True, array_like=True):
    """One collective on the merged ranks: number `index` with its group and name in a step."""

    step: int
    index: Count
    group: Name
    name: Name
    group_size: Count  # 0: not in the trace
    ranks: Annotated[int, Meta(ge=1)]
    total_ns: Count
    shortest_ns: Count
    shortest_rank: int  # -1: unknown
    longest_ns: Count
    longest_rank: int

    @property
    def key(self) -> tuple[int, int, str, str]:
        """Equal on all ranks of the group."""
        return self.step, self.index, self.group, self.name

    @property
    def waited_ns(self) -> int:
        """The time by which the other ranks' calls exceed the shortest call, summed over the ranks."""
        return self.total_ns - self.ranks * self.shortest_ns


class Digest(Struct, frozen=True):
    """A trace, or several merged."""

    format: str
    version: int
    ranks: Annotated[tuple[RankDigest, ...], Meta(min_length=1)]  # in the order of their numbers
    kernels: tuple[KernelDigest, ...]  # in the order of their keys
    collectives: Annotated[tuple[CollectiveDigest, ...], Meta(max_length=MAX_COLLECTIVES)]  # in the order of their keys
    collectives_left_out: bool  # there are more


def digest(trace: Trace, rank: int | None = None) -> Digest:
    """Reduce a trace. `rank` applies if the trace does not tell its rank.

    Raises `TraceError` if the trace has no step, or several ranks: only digests of one rank can be merged.
    """
    require_steps(trace)
    if len(trace.processes) > 1:
        raise TraceError(f"the file holds {len(trace.processes)} merged processes; give the trace of each rank")
    number = rank if trace.rank is None else trace.rank
    activities = [activity for step in trace.steps for activity in step.activities]
    matched = sorted(_collectives(trace.steps, -1 if number is None else number), key=lambda each: each.key)
    operations: Counter[str] = Counter()
    for activity in activities:
        operations[operation(activity)] += nanoseconds(activity.duration_us)
    of_rank = RankDigest(
        rank=number,
        world_size=trace.world_size,
        device=shortened(trace.device or ""),
        steps_from=shortened(trace.steps_from),
        step_count=len(trace.steps),
        steps=tuple(map(step_times, trace.steps[:MAX_STEPS])),
        operations_ns=dict(sorted(operations.items())),
        collectives=sum(map(is_collective, activities)),
        uncounted=len(trace.unattributed),
    )
    return Digest(
        FORMAT,
        VERSION,
        (of_rank,),
        _kernels(activities),
        tuple(matched[:MAX_COLLECTIVES]),
        len(matched) > MAX_COLLECTIVES,
    )


def nanoseconds(us: float) -> int:
    """Whole nanoseconds; NaN or infinity of a damaged trace counts as 0."""
    return max(0, min(2**53, round(us * 1000))) if math.isfinite(us) else 0


def operation(activity: GpuActivity) -> str:
    """The operation in a kernel's name, or memcpy or memset."""
    return decode_kernel_name(activity.name).operation if activity.kind == "kernel" else activity.kind


def step_times(step: Step) -> RankStep:
    """The times of a step. A concurrent kernel hides a collective; a concurrent copy does not."""
    return RankStep(
        number=step.number,
        wall_ns=nanoseconds(step.end_us - step.start_us),
        extent_ns=nanoseconds(extent_us(step.activities)),
        busy_ns=nanoseconds(busy_us(step.activities)),
        compute_ns=nanoseconds(busy_us(kernel for kernel in step.kernels if not is_collective(kernel))),
        communication_ns=nanoseconds(busy_us(collectives(step))),
        exposed_ns=nanoseconds(exposed_collectives_us(step)),
    )


def _collectives(steps: Iterable[Step], rank: int) -> Iterable[CollectiveDigest]:
    """The collectives at which ranks wait for each other, numbered within step, group and name."""
    for step in steps:
        seen: Counter[tuple[str, str]] = Counter()
        for kernel in collectives(step):
            name = collective_name(kernel)
            if name is None:
                continue
            collective = kernel.collective
            group, size = (shortened(collective.group), collective.group_size or 0) if collective else ("", 0)
            index, ns = seen[group, name], nanoseconds(kernel.duration_us)
            seen[group, name] += 1
            yield CollectiveDigest(step.number, index, group, name, max(0, size), 1, ns, ns, rank, ns, rank)


def collective_name(kernel: GpuActivity) -> str | None:
    """`allreduce` from `_allreduce_base` or `ncclDevKernel_AllReduce_Sum_f16_RING_LL`; None if ranks need not wait."""
    stated = kernel.collective.name if kernel.collective else ""
    text = "".join(filter(str.isalpha, stated or kernel.name[:200])).lower()
    return next((name for name in WAITING if name in text), None)


def bin_of(ns: int) -> int:
    """The bin of a duration."""
    return int(BINS_PER_OCTAVE * math.log2(ns + 1))


def bin_middle_ns(index: int) -> float:
    """The geometric middle of a bin."""
    return max(0.0, 2 ** ((index + 0.5) / BINS_PER_OCTAVE) - 1)


def _kernels(activities: Sequence[GpuActivity]) -> tuple[KernelDigest, ...]:
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
