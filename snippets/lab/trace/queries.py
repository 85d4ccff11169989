"""Functions of any trace: how long the GPU was busy, which kernels overlap, whether the steps agree, which to show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from snippets.lab.trace.events import CpuOp, GpuActivity, Step, Trace, TraceError, by_start


def busy_us(activities: Iterable[GpuActivity]) -> float:
    """Time during which at least one activity ran: the union of the intervals over all streams, not their sum."""
    busy, reached = 0.0, -math.inf
    for activity in sorted(activities, key=by_start):
        start, end = activity.start_us, activity.start_us + activity.duration_us
        if end > reached:
            busy += end - max(start, reached)
            reached = end
    return round(busy, 3)


def extent_us(activities: Sequence[GpuActivity]) -> float:
    """From the first start to the last end."""
    first = min((a.start_us for a in activities), default=0.0)
    return round(max((a.start_us + a.duration_us for a in activities), default=0.0) - first, 3)


def idle_us(activities: Sequence[GpuActivity]) -> float:
    """Time between the first start and the last end during which no activity ran."""
    return max(0.0, round(extent_us(activities) - busy_us(activities), 3))


def kernel_time_us(activities: Iterable[GpuActivity]) -> float:
    """Sum of the kernel durations, without memcpys and memsets: time of two kernels at once counts twice."""
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
        overlaps.append(max(0.0, round(min(before, activity.end_us) - activity.start_us, 3)))
        reached[stream] = max(before, activity.end_us)
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
    if not trace.steps:
        raise TraceError(
            "no active steps: the trace has no ProfilerStep annotation. Profile with a schedule, call prof.step() "
            "after each iteration and run at least wait + warmup + active iterations"
        )


def require_kernels(trace: Trace) -> None:
    """Raise `TraceError` if the trace has no kernel, in or outside steps."""
    if not any(activity.kind == "kernel" for activity in trace.activities):
        raise TraceError(
            "no GPU kernels (CPU trace?); on a GPU check: ProfilerActivity.CUDA among the activities; that warm-up did "
            "not swallow the steps; that the work ran on the GPU; that the driver lets this user profile "
            "(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: load it with NVreg_RestrictProfilingToAdminUsers=0)"
        )


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
    return len({activity.launch.start_us for activity in step.activities if activity.launch is not None})


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
    """Overlaps of each activity of the middle step, of the same steps as `durations_us`."""
    return _by_activity(trace, overlaps_us)


def _by_activity(trace: Trace, of: Callable[[Step], Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    steps = trace.steps if steps_agree(trace) else (middle_step(trace),)
    return tuple(zip(*map(of, steps), strict=True))
