"""Functions of any trace: how long the GPU was busy, which kernels overlap, whether the steps agree, which to show."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Literal

from kinetoscope.trace.events import CpuOp, CudaCall, GpuActivity, Span, Step, Trace, TraceError, in_whole_ns
from kinetoscope.trace.foreign import foreign_text, is_foreign
from kinetoscope.trace.intervals import covered_us
from kinetoscope.trace.missing_gpu import why_no_kernels

Direction = Literal["HtoD", "DtoH", "DtoD", "HtoH"]
_DIRECTIONS: dict[str, Direction] = {
    "HD": "HtoD",
    "DH": "DtoH",
    "DD": "DtoD",
    "PP": "DtoD",  # from GPU to GPU
    "HH": "HtoH",
    "MD": "HtoD",  # Intel's profiler: M is the host's memory
    "DM": "DtoH",
}
_DIRECTION = re.compile(r"(?<![A-Za-z])([HDMP])(?:to|2)([HDMP])(?![A-Za-z])")
_SYNC = re.compile(r"[sS]ynchronize|^(?:cuda|hip)Memcpy$|^hipMemcpyWithStream$|^(?:pi|ur)QueueFinish$")


def busy_us(activities: Iterable[GpuActivity]) -> float:
    """Time during which at least one activity ran: the union of the intervals over all streams, not their sum."""
    return covered_us(activities if isinstance(activities, Sequence) else list(activities))


def extent_us(activities: Sequence[GpuActivity]) -> float:
    """Time from the first start to the last end."""
    first = min((a.start_us for a in activities), default=0.0)
    return round(max((a.start_us + a.duration_us for a in activities), default=0.0) - first, 3)


def idle_us(activities: Sequence[GpuActivity]) -> float:
    """Time between the first start and the last end during which no activity ran."""
    return max(0.0, round(extent_us(activities) - busy_us(activities), 3))


def kernel_time_us(activities: Iterable[GpuActivity]) -> float:
    """Sum of the kernel durations, without memcpys and memsets; the common time of two concurrent kernels counts
    twice."""
    return round(math.fsum(a.duration_us for a in activities if a.kind == "kernel"), 3)


def overlaps_us(step: Step) -> tuple[float, ...]:
    """For each activity of a step, the time during which an earlier one on its stream was still running.

    Only programmatic dependent launch starts a kernel before its predecessor has ended. Such a kernel waits for its
    inputs, so in this time it may only have waited.
    """
    reached: dict[tuple[int, int], float] = {}
    overlaps = []
    for activity in step.activities:
        stream = activity.device, activity.stream
        before = reached.get(stream, -math.inf)
        start = activity.start_us
        end = start + activity.duration_us
        overlaps.append(in_whole_ns(min(before, end) - start) if before > start else 0.0)
        if end > before:
            reached[stream] = end
    return tuple(overlaps)


def overlap_us(activity: GpuActivity, step: Step) -> float:
    """The time during which an earlier activity on its stream was still running; see `overlaps_us`."""
    return overlaps_us(step)[step.activities.index(activity)]


def steps_agree(trace: Trace) -> bool:
    """Whether all steps ran the same GPU work in the same order. True for one step, False for none."""
    sequences = ([(a.kind, a.name) for a in step.activities] for step in trace.steps)
    first = next(sequences, None)
    return first is not None and all(sequence == first for sequence in sequences)


def require_steps(trace: Trace) -> None:
    """Raise `TraceError` if the trace has no step."""
    if is_foreign(trace):
        raise TraceError(foreign_text(trace))
    if not trace.steps:
        raise TraceError(
            "no active steps: the trace is empty or has no ProfilerStep annotation. Profile with a schedule, call "
            "prof.step() after each iteration and run at least wait + warmup + active iterations"
        )


def require_kernels(trace: Trace) -> None:
    """Raise `TraceError` if the trace has no kernel, in or outside steps."""
    if not any(activity.kind == "kernel" for activity in trace.activities):
        raise TraceError(why_no_kernels(trace))


def op_name(activity: GpuActivity) -> str:
    """Name of the operator that launched an activity, empty if the trace links it to no operator."""
    return activity.op.name if activity.op else ""


def kernel_names(step: Step) -> str:
    """Names of a step's kernels, in start order."""
    return ", ".join(kernel.name for kernel in step.kernels)


def longest_kernel(step: Step) -> GpuActivity:
    """The longest kernel of a step. Raises `TraceError` if the step has no kernel."""
    if not step.kernels:
        raise TraceError(f"{step.name} has no kernel")
    return max(step.kernels, key=lambda kernel: kernel.duration_us)


def gpu_names(step: Step) -> str:
    """Names of a step's GPU activities, in start order: `gemm + add`."""
    return " + ".join(activity.name for activity in step.activities)


def find_op(step: Step, name: str) -> CpuOp:
    """The first operator or annotation with this name. Raises `TraceError` if the step has none."""
    op = next((op for op in step.ops if op.name == name), None)
    if op is None:
        raise TraceError(f"{step.name} has no {name}")
    return op


def count_launches(step: Step) -> int:
    """Runtime and driver calls that put the step's work on the GPU."""
    return len({id(activity.launch) for activity in step.activities if activity.launch is not None})


def syncs(step: Step) -> tuple[CudaCall, ...]:
    """The calls of a step that make the CPU wait for the GPU: synchronize calls and blocking copies."""
    return tuple(call for call in step.calls if is_sync(call.name))


@cache
def is_sync(call_name: str) -> bool:
    """Whether a call of this name makes the CPU wait, in CUDA, HIP, XPU or MTIA."""
    return _SYNC.search(call_name) is not None


def copies(step: Step, direction: Direction) -> tuple[GpuActivity, ...]:
    """The memcpys of a step in one direction, by their names: `Memcpy HtoD (Pageable -> Device)`."""
    return tuple(copy for copy in step.memcpys if copy_direction(copy.name) == direction)


@cache
def copy_direction(name: str) -> Direction | None:
    """The direction of a memcpy, also as Intel's profiler writes it (`M2D`); None if its name does not tell."""
    match = _DIRECTION.search(name)
    return _DIRECTIONS.get(match[1] + match[2]) if match else None


def by_device(activities: Iterable[GpuActivity]) -> dict[int, list[GpuActivity]]:
    """The activities of each GPU, by its index."""
    devices: dict[int, list[GpuActivity]] = {}
    for activity in activities:
        devices.setdefault(activity.device, []).append(activity)
    return dict(sorted(devices.items()))


def durations_sum_us(spans: Iterable[Span]) -> float:
    """Sum of the durations; the common time of two concurrent spans counts twice."""
    return round(math.fsum(span.duration_us for span in spans), 3)


def step_us(step: Step) -> float:
    """Time from the start of a step to its end on the CPU."""
    return round(step.end_us - step.start_us, 3)


def recorded_step_us(steps: Sequence[Step]) -> float:
    """The time of a step in a trace: its span on the CPU, or its GPU work if that is longer; medians of the steps."""
    spans_us, works_us = map(step_us, steps), (busy_us(step.activities) for step in steps)
    return max(statistics.median(spans_us), statistics.median(works_us))


def annotation_us(step: Step, label: str) -> float:
    """CPU time between entering and leaving an annotation of the step. Raises `TraceError` if there is none."""
    annotation = step.find_annotation(label)
    if annotation is None:
        raise TraceError(f"{step.name} has no annotation {label!r}")
    return annotation.duration_us


def middle_step(trace: Trace) -> Step:
    """The middle step: the first may include start-up, the last the final wait. Raises `TraceError` if none."""
    require_steps(trace)
    return trace.steps[len(trace.steps) // 2]


def durations_us(trace: Trace) -> tuple[tuple[float, ...], ...]:
    """Durations of each activity of the middle step: in every step if they agree, else in the middle step only."""
    return _by_activity(trace, lambda step: [activity.duration_us for activity in step.activities])


def step_overlaps_us(trace: Trace) -> tuple[tuple[float, ...], ...]:
    """Overlaps of each activity of the middle step, in the same steps as `durations_us`."""
    return _by_activity(trace, overlaps_us)


def _by_activity(trace: Trace, of: Callable[[Step], Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    steps = trace.steps if steps_agree(trace) else (middle_step(trace),)
    return tuple(zip(*map(of, steps), strict=True))
