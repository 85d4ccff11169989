"""One step of a trace in numbers: the data of the command `summary`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TypeVar

from kinetoscope.trace.averages import Average, key_averages
from kinetoscope.trace.communication import collectives, computing_times, exposed_collectives_us
from kinetoscope.trace.device_rows import summarize_counters, summarize_waits
from kinetoscope.trace.events import GpuActivity, Step, Trace
from kinetoscope.trace.metadata import Metadata, device_name
from kinetoscope.trace.missing_gpu import Dropped, counter_ranges, dropped_kernels, why_no_kernels
from kinetoscope.trace.processes import COMPARE_RANKS, merged_text
from kinetoscope.trace.queries import (
    busy_us,
    by_device,
    copies,
    count_launches,
    durations_sum_us,
    extent_us,
    kernel_time_us,
    overlaps_us,
    require_steps,
    step_us,
    steps_agree,
    syncs,
)
from kinetoscope.trace.soundness import clock_text, damage_texts
from kinetoscope.trace.step_kinds import kinds_of_step
from kinetoscope.trace.summaries import (
    DeviceSummary,
    KernelSummary,
    KindSummary,
    OperatorSummary,
    Summary,
    UncountedSummary,
)

N = TypeVar("N", int, float)


def summarize(trace: Trace, averages: Sequence[Average] | None = None) -> Summary:
    """Summarize a trace; `averages`: its rows of `key_averages()`, if they are known.

    Raises `TraceError` if the trace has no CPU or GPU event.
    """
    require_steps(trace)
    by_step = [step.activities for step in trace.steps]
    kinds = [Counter(map(attrgetter("kind"), activities)) for activities in by_step]
    busy = _mean(map(busy_us, by_step))
    dropped = dropped_kernels(trace) or Dropped(0)
    overlaps = [overlaps_us(step) for step in trace.steps]
    computing = None if trace.processes else computing_times(trace.activities)

    def mean(of: Callable[[Step], float]) -> float:
        return round(_mean(map(of, trace.steps)), 3)

    return Summary(
        device=trace.device,
        steps=len(by_step),
        steps_agree=steps_agree(trace),
        kernels_per_step=low_median(kind["kernel"] for kind in kinds),
        memcpy_per_step=low_median(kind["memcpy"] for kind in kinds),
        memset_per_step=low_median(kind["memset"] for kind in kinds),
        launches_per_step=low_median(map(count_launches, trace.steps)),
        kernel_time_us_per_step=round(_mean(map(kernel_time_us, by_step)), 3),
        overlap_us_per_step=round(_mean(map(math.fsum, overlaps)), 3),
        gpu_busy_us_per_step=round(busy, 3),
        gpu_idle_us_per_step=round(max(0.0, _mean(map(extent_us, by_step)) - busy), 3),
        unattributed=len(trace.unattributed),
        steps_from=trace.steps_from,
        uncounted=tuple(
            UncountedSummary(group.reason, len(group.activities), kernel_time_us(group.activities))
            for group in trace.uncounted
        ),
        step_us=low_median(map(step_us, trace.steps)),
        syncs_per_step=low_median(len(syncs(step)) for step in trace.steps),
        h2d_us_per_step=mean(lambda step: durations_sum_us(copies(step, "HtoD"))),
        d2h_us_per_step=mean(lambda step: durations_sum_us(copies(step, "DtoH"))),
        collectives_us_per_step=mean(lambda step: durations_sum_us(collectives(step))),
        exposed_collectives_us_per_step=mean(lambda step: exposed_collectives_us(step, computing)),
        devices=_devices(trace),
        processes=trace.processes,
        is_cut=trace.is_cut,
        stream_waits=summarize_waits(trace),
        counters=summarize_counters(trace),
        launches=dropped.launches,
        launches_without_kernel=dropped.without_kernel,
        damaged=trace.damaged,
        notes=tuple(_notes(trace, dropped)),
        kernels=_kernels(trace, overlaps),
        kinds_of_step=tuple(
            KindSummary(len(kind.steps), kind.step_us, kind.gpu_busy_us, kind.name) for kind in kinds_of_step(trace)
        ),
        operators=() if trace.activities else _operators(key_averages(trace) if averages is None else averages),
    )


def _devices(trace: Trace) -> tuple[DeviceSummary, ...]:
    by_step = [by_device(step.activities) for step in trace.steps]
    indices = sorted({index for devices in by_step for index in devices})
    if len(indices) < 2:
        return ()
    found = []
    for index, known in zip(indices, Metadata(trace.devices).find_devices(indices), strict=True):
        works = [devices[index] for devices in by_step if index in devices]
        kernels = low_median(sum(activity.kind == "kernel" for activity in work) for work in works)
        time, busy = _mean(map(kernel_time_us, works)), _mean(map(busy_us, works))
        found.append(DeviceSummary(index, device_name(known), kernels, round(time, 3), round(busy, 3)))
    return tuple(found)


def _notes(trace: Trace, dropped: Dropped) -> Iterator[str]:
    yield from damage_texts(trace, dropped)
    if clocks := clock_text(trace):
        yield clocks
    if trace.processes:
        steps = "each has steps of its own"
        yield f"{merged_text(trace.processes)}: {f'{steps}, and {COMPARE_RANKS}' if trace.is_merged else steps}"
    if not any(activity.kind == "kernel" for activity in trace.activities):
        yield why_no_kernels(trace)
    if not trace.activities:
        for category, count in () if counter_ranges(trace) else trace.unread:
            yield f"{count:,} {category[:80] or 'other'} events are of a kind that is not read"


def _operators(averages: Sequence[Average]) -> tuple[OperatorSummary, ...]:
    rows = sorted(averages, key=lambda row: (-row.self_cpu_us, row.name))
    return tuple(OperatorSummary(row.name, row.calls, round(row.self_cpu_us, 3), round(row.cpu_us, 3)) for row in rows)


class _KernelTotal:
    """The launches of one kernel with one shape."""

    def __init__(self, first: GpuActivity) -> None:
        self.first = first
        self.durations_us: list[float] = []
        self.overlaps_us: list[float] = []
        self.ops: Counter[str | None] = Counter()

    def summary(self) -> KernelSummary:
        """The sums of all launches."""
        total_us, first = round(math.fsum(self.durations_us), 3), self.first
        return KernelSummary(
            name=first.name,
            calls=len(self.durations_us),
            total_us=total_us,
            mean_us=round(total_us / len(self.durations_us), 3),
            op=min(self.ops, key=lambda name: (-self.ops[name], name or "")),
            grid=first.grid,
            block=first.block,
            registers=first.registers,
            shared_memory_bytes=first.shared_memory_bytes,
            overlap_us=round(math.fsum(self.overlaps_us), 3),
        )


def _kernels(trace: Trace, overlaps: Iterable[Sequence[float]]) -> tuple[KernelSummary, ...]:
    groups: dict[tuple[object, ...], _KernelTotal] = {}
    for step, of_step in zip(trace.steps, overlaps, strict=True):
        for activity, us in zip(step.activities, of_step, strict=True):
            if activity.kind == "kernel":
                shape = _shape(activity)
                group = groups[shape] if shape in groups else groups.setdefault(shape, _KernelTotal(activity))
                group.durations_us.append(activity.duration_us)
                group.overlaps_us.append(us)
                group.ops[None if activity.op is None else activity.op.name] += 1
    return tuple(sorted((group.summary() for group in groups.values()), key=_order))


_shape = attrgetter("name", "grid", "block", "registers", "shared_memory_bytes")


def _order(kernel: KernelSummary) -> tuple[float, str, str]:
    return -kernel.total_us, kernel.name, repr(_shape(kernel))


def low_median(values: Iterable[N]) -> N:
    """The low median, the value of a real step. Importing `statistics` would add a tenth to the start-up."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


def _mean(times: Iterable[float]) -> float:
    listed = list(times)
    return sum(listed) / len(listed)
