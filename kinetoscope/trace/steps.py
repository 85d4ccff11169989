"""Find the steps of a trace and their GPU work, and list the work outside all steps by reason."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter

from msgspec import Struct, structs

from kinetoscope.trace.events import CpuOp, CudaCall, GpuActivity, Span, Step, Uncounted, by_start, starting_in
from kinetoscope.trace.gpu_marks import with_gpu_annotations
from kinetoscope.trace.marks import PROFILER_STEP, WHOLE, find_marks
from kinetoscope.trace.process_events import Mark, Part, launched_us
from kinetoscope.trace.profiler_steps import number_of
from kinetoscope.trace.queries import is_sync

BEFORE, BETWEEN, AFTER = "launched before the first step", "launched between steps", "launched after the last step"
NO_LAUNCH, NO_PROCESS = "no launch in the trace", "could be of several of the merged processes"
REASONS = (BEFORE, BETWEEN, AFTER, NO_LAUNCH, NO_PROCESS)


class FoundSteps(Struct, frozen=True):
    """The steps in start order, the kind of their marks, and the GPU work outside all steps."""

    steps: tuple[Step, ...]
    steps_from: str
    uncounted: tuple[Uncounted, ...]
    unattributed: tuple[GpuActivity, ...]


def find_steps(
    cpu_ops: tuple[CpuOp, ...],
    calls: tuple[CudaCall, ...],
    activities: tuple[GpuActivity, ...],
    gpu_annotations: Sequence[CpuOp],
    process_of: Mapping[str, str],
    activity_processes: Sequence[str],
) -> FoundSteps:
    """Find the steps of each process.

    `gpu_annotations`: with device and stream as the thread.

    `process_of`: thread -> process, and `activity_processes`, one for each activity, are empty for a single process.
    """
    steps: list[Step] = []
    marked_by: dict[str, None] = {}
    reasons: dict[str, list[GpuActivity]] = defaultdict(list)
    for part in _parts(cpu_ops, calls, activities, process_of, activity_processes):
        if process_of and not part.process:
            reasons[NO_PROCESS] += part.activities
        elif part.ops or part.calls or part.activities:
            on_gpu = None if process_of else with_gpu_annotations(part, gpu_annotations)
            steps_from, marks = find_marks(part, on_gpu)
            marked_by[steps_from] = None
            windows = () if process_of or steps_from != PROFILER_STEP else _gpu_windows(gpu_annotations, marks)
            placed = on_gpu and on_gpu.placed
            found = _steps(structs.replace(part, placed=placed), marks, windows, reasons, takes_all=steps_from == WHOLE)
            steps += _without_unfinished(found) if steps_from == PROFILER_STEP else found
    uncounted = tuple(Uncounted(reason, tuple(reasons[reason])) for reason in REASONS if reasons[reason])
    rest = [activity for group in uncounted for activity in group.activities]
    if len(uncounted) > 1:
        rest.sort(key=by_start)
    steps.sort(key=by_start)
    return FoundSteps(tuple(steps), "; ".join(marked_by) or WHOLE, uncounted, tuple(rest))


def _parts(
    cpu_ops: Sequence[CpuOp],
    calls: Sequence[CudaCall],
    activities: Sequence[GpuActivity],
    process_of: Mapping[str, str],
    activity_processes: Sequence[str],
) -> Iterable[Part]:
    if not process_of:
        return [Part("", cpu_ops, calls, activities)]
    ops_of: dict[str, list[CpuOp]] = defaultdict(list)
    calls_of: dict[str, list[CudaCall]] = defaultdict(list)
    activities_of: dict[str, list[GpuActivity]] = defaultdict(list)
    for op in cpu_ops:
        ops_of[process_of.get(op.thread, "")].append(op)
    for call in calls:
        calls_of[process_of.get(call.thread, "")].append(call)
    for activity, process in zip(activities, activity_processes, strict=True):
        activities_of[process].append(activity)
    names = dict.fromkeys((*ops_of, *calls_of, *activities_of))
    return [Part(name, ops_of[name], calls_of[name], activities_of[name]) for name in names]


def _steps(
    part: Part,
    marks: Sequence[Mark],
    windows: Sequence[Window],
    reasons: dict[str, list[GpuActivity]],
    *,
    takes_all: bool,
) -> list[Step]:
    """The steps of a process with their ops, calls and GPU work; adds the GPU work outside all steps to `reasons`."""
    if takes_all:
        (mark,) = marks
        everything = tuple(part.ops), tuple(part.calls), tuple(part.activities)
        return [Step(mark.number, mark.name, mark.start_us, mark.end_us, *everything, part.process)]
    starts, ends = [mark.start_us for mark in marks], [mark.end_us for mark in marks]
    work: list[list[GpuActivity]] = [[] for _ in marks]
    for activity in part.activities:
        at = launched_us(part, activity)
        if at is None:
            index = _window(windows, activity.start_us)
            (reasons[NO_LAUNCH] if index is None else work[index]).append(activity)
            continue
        index = bisect_right(starts, at) - 1
        if index >= 0 and at < ends[index]:
            work[index].append(activity)
        elif part.placed is not None:
            reasons[NO_LAUNCH].append(activity)
        else:
            reasons[BEFORE if index < 0 else AFTER if index == len(marks) - 1 else BETWEEN].append(activity)
    return [
        Step(
            mark.number,
            mark.name,
            mark.start_us,
            mark.end_us,
            tuple(op for op in starting_in(part.ops, mark.start_us, mark.end_us) if op is not mark.op),
            tuple(starting_in(part.calls, mark.start_us, mark.end_us)),
            tuple(here),
            part.process,
        )
        for mark, here in zip(marks, work, strict=True)
    ]


def _without_unfinished(steps: list[Step]) -> list[Step]:
    """Omit a last step without any work: `prof.step()` began it, and the loop ended."""
    worked = list(map(_has_work, steps))
    return steps[:-1] if any(worked) and not worked[-1] else steps


def _has_work(step: Step) -> bool:
    """Whether a step has anything but annotations and waiting."""
    if step.activities or any(not is_sync(call.name) for call in step.calls):
        return True
    return any(not op.is_annotation for op in step.ops)


Window = tuple[float, float, int]  # start, end, index of the step


def _gpu_windows(annotations: Iterable[Span], marks: Sequence[Mark]) -> list[Window]:
    """Each step's span on the GPU, over all streams."""
    indices = {mark.number: index for index, mark in enumerate(marks)}
    spans: dict[int, list[Span]] = defaultdict(list)
    for span in annotations:
        if (number := number_of(span.name)) is not None and number in indices:
            spans[indices[number]].append(span)
    return sorted(
        (min(map(by_start, step_spans)), max(map(attrgetter("end_us"), step_spans)), index)
        for index, step_spans in spans.items()
    )


def _window(windows: Sequence[Window], time_us: float) -> int | None:
    """The index of the step whose window contains `time_us`; a window excludes its end."""
    before = bisect_right(windows, time_us, key=itemgetter(0))
    return windows[before - 1][2] if before and time_us < windows[before - 1][1] else None
