"""One step of a trace as lanes of slices: the data of the timeline, without the drawing.

Each CPU thread is a lane with its operators nested in rows and its CUDA calls below them. Each GPU stream is a lane,
with its work for other steps in the time shown: if the GPU lags behind, a step begins while the previous step still
runs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from kinetoscope.trace.events import CpuOp, CudaCall, GpuActivity, Span, Step, by_start, in_whole_ns, last_end_us
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.queries import overlaps_us

Kind = Literal["label", "annotation", "op", "call", "gemm", "pointwise", "other", "copy", "fill", "idle", "unrecorded"]
_KIND_OF_OPERATION: Mapping[str, Kind] = {
    "gemm": "gemm",
    "gemv": "gemm",
    "elementwise": "pointwise",
    "copy": "copy",
    "memset": "fill",
}
_CLOCK_NOISE_US = 0.002
MOST_ROWS = 100
"""Spans that overlap and are drawn apart; of more, the rest share a row. A hostile trace would take quadratic time."""


class Slice(Struct, frozen=True, gc=False):
    """An operator, call or activity on a lane, `start_us` after the start of its step."""

    name: str
    kind: Kind
    row: int
    """The row in its lane, counted from the top: an operator's nesting depth; CUDA calls are below all operators."""
    start_us: float
    duration_us: float
    pair: int | None
    """A number shared by a call and the GPU work it launched; None if the trace has only one of them."""
    source: Span
    """The event shown: an operator, a call or an activity; of merged events, the first."""
    overlap_us: float = 0.0
    """Time from its start during which the activity before on its stream was still running."""
    merged: int = 1
    """Number of slices that this one replaces; if several, `name` describes them."""
    anchor: str = ""
    """An id to link to, unique on its page."""
    is_ghost: bool = False
    """Whether another step launched it; it is cropped to the time shown."""

    @property
    def is_own(self) -> bool:
        """Whether it is an event of this step, and not a ghost or a gap."""
        return not self.is_ghost and self.kind not in ("idle", "unrecorded")

    @property
    def end_us(self) -> float:
        """Where it ends, on the clock of `start_us`."""
        return in_whole_ns(self.start_us + self.duration_us)


class Lane(Struct, frozen=True):
    """A CPU thread or a GPU stream; its operators, calls and activities are each in start order."""

    name: str
    is_gpu: bool
    slices: tuple[Slice, ...]

    @property
    def rows(self) -> int:
        """Number of rows in use."""
        return max((each.row for each in self.slices), default=-1) + 1


class _Rows:
    """Assigns slices to the rows of a lane; stores the end of the last slice in each row."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def place(self, span: Span | Slice, first: int = 0) -> int:
        """Put `span` into the first row, from `first` on, that is free when it starts; return the row."""
        ends, row, free_by = self.ends, first, span.start_us + _CLOCK_NOISE_US
        while row < len(ends) and ends[row] > free_by and row < first + MOST_ROWS:
            row += 1
        if row >= len(ends):
            ends += [-math.inf] * (row + 1 - len(ends))
        ends[row] = span.end_us
        return row


def lanes(step: Step, label: str = "", activities: Sequence[GpuActivity] = ()) -> tuple[Lane, ...]:
    """Return a lane for each CPU thread, in order of its first event, then one for each stream.

    Omits the step's own span, which is the time axis.

    Args:
        step: the step.
        label: names the annotation to mark.
        activities: all GPU work of the trace. Work of other steps in the time shown becomes ghosts.
    """
    launched = {activity.correlation for activity in step.activities}
    pairs: dict[int | None, int] = {}
    for index, call in enumerate(step.calls):
        if call.correlation and call.correlation in launched:
            pairs.setdefault(call.correlation, index)
    marked = step.find_annotation(label) if label else None
    on_cpu: list[CpuOp | CudaCall] = [*step.ops, *step.calls]
    threads: dict[str, tuple[list[CpuOp], list[CudaCall]]] = {}
    for each in sorted(on_cpu, key=by_start):
        ops, calls = threads.setdefault(each.thread, ([], []))
        ops.append(each) if isinstance(each, CpuOp) else calls.append(each)
    streams: dict[tuple[int, int], list[Slice]] = defaultdict(list)
    for activity, overlap_us in zip(step.activities, overlaps_us(step), strict=True):
        own = _slice(step, activity, activity_kind(activity), 0, pairs.get(activity.correlation), overlap_us)
        streams[activity.device, activity.stream].append(own)
    for ghost in _ghosts(step, activities):
        source = ghost.source
        assert isinstance(source, GpuActivity)
        streams[source.device, source.stream].append(ghost)
    one_device = len({device for device, _ in streams}) == 1
    all_lanes = []
    for thread, (ops, calls) in threads.items():
        name = "CPU" if len(threads) == 1 else f"CPU thread {thread.rpartition('/')[2]}"
        all_lanes.append(Lane(name, False, _on_thread(step, ops, calls, pairs, marked)))
    for (device, stream), slices in sorted(streams.items(), key=itemgetter(0)):
        name = f"GPU stream {stream}" if one_device else f"GPU {device}, stream {stream}"
        all_lanes.append(Lane(name, True, _in_rows(slices)))
    return tuple(all_lanes)


def time_shown(step: Step) -> tuple[float, float]:
    """Begin and end of the time in which a step is drawn, after its start: its span, and all work that it launched."""
    lists: tuple[Sequence[Span], ...] = (step.ops, step.calls, step.activities)
    begin = min(step.start_us, *(min(map(by_start, spans), default=step.start_us) for spans in lists))
    end = max(step.end_us, *map(last_end_us, lists))
    return in_whole_ns(begin - step.start_us), in_whole_ns(end - step.start_us)


def with_gaps(
    step: Step, step_lanes: Sequence[Lane], activities: Sequence[GpuActivity], least_us: float
) -> tuple[Lane, ...]:
    """Put times of at least `least_us` in which no GPU works into the first GPU lane: the other lanes are empty then,
    too.

    Before the first of `activities`, all GPU work of the trace, the GPU's state is unknown: a profiler drops earlier
    work.
    """
    first = next((index for index, lane in enumerate(step_lanes) if lane.is_gpu), None)
    if first is None:
        return tuple(step_lanes)
    known = min(map(by_start, activities)) - step.start_us
    gaps = []
    for start, end in _gaps(step, activities):
        if end - start >= least_us:
            kind: Kind = "idle" if end > known + _CLOCK_NOISE_US else "unrecorded"
            gaps.append(Slice("", kind, 0, round(start, 3), round(end - start, 3), None, Span("", start, end - start)))
    lane = replace(step_lanes[first], slices=(*gaps, *step_lanes[first].slices))
    return (*step_lanes[:first], lane, *step_lanes[first + 1 :])


def _gaps(step: Step, activities: Iterable[GpuActivity]) -> list[tuple[float, float]]:
    """Times in the time shown in which no GPU works: start and end, after the start of the step."""
    begin, end = time_shown(step)
    gaps, reached = [], begin
    for activity in sorted(activities, key=by_start):
        start = activity.start_us - step.start_us
        if start >= end:
            break
        if start > reached:
            gaps.append((reached, start))
        reached = max(reached, start + activity.duration_us)
    return [*gaps, (reached, end)] if end > reached else gaps


def _ghosts(step: Step, activities: Iterable[GpuActivity]) -> list[Slice]:
    begin, end = time_shown(step)
    own = iter(step.activities)
    next_own = next(own, None)
    ghosts = []
    for activity in activities:
        if activity is next_own:
            next_own = next(own, None)
            continue
        start = max(activity.start_us - step.start_us, begin)
        stop = min(activity.end_us - step.start_us, end)
        if stop > start:
            lasts = in_whole_ns(stop - start)
            kind = activity_kind(activity)
            ghosts.append(Slice(activity.name, kind, 0, in_whole_ns(start), lasts, None, activity, is_ghost=True))
    return ghosts


def _on_thread(
    step: Step,
    ops: Sequence[CpuOp],
    calls: Sequence[CudaCall],
    pairs: Mapping[int | None, int],
    marked: CpuOp | None,
) -> tuple[Slice, ...]:
    """Put each operator below its caller, and CUDA calls below all operators."""
    rows, row_of = _Rows(), dict[CpuOp | None, int]()
    slices = []
    for op in ops:
        row = row_of[op] = rows.place(op, row_of.get(op.parent, -1) + 1)
        kind: Kind = "label" if op is marked else "annotation" if op.is_annotation else "op"
        slices.append(_slice(step, op, kind, row, None))
    below = len(rows.ends)
    for call in calls:
        slices.append(_slice(step, call, "call", rows.place(call, below), pairs.get(call.correlation)))
    return tuple(slices)


def _in_rows(slices: Iterable[Slice]) -> tuple[Slice, ...]:
    """The work of a stream in start order, side by side where it overlaps."""
    rows = _Rows()
    placed = ((each, rows.place(each)) for each in sorted(slices, key=by_start))
    return tuple(each if row == each.row else replace(each, row=row) for each, row in placed)


def _slice(
    step: Step, source: CpuOp | CudaCall | GpuActivity, kind: Kind, row: int, pair: int | None, overlap_us: float = 0.0
) -> Slice:
    start = in_whole_ns(source.start_us - step.start_us)
    return Slice(source.name, kind, row, start, source.duration_us, pair, source, overlap_us)


def activity_kind(activity: GpuActivity) -> Kind:
    """The kind by which a GPU activity is drawn."""
    if activity.kind != "kernel":
        return "copy" if activity.kind == "memcpy" else "fill"
    return _KIND_OF_OPERATION.get(decode_kernel_name(activity.name).operation, "other")
