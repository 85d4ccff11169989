"""One step of a trace as lanes of slices: the data of `timeline`, without the drawing.

Each CPU thread is a lane with its operators nested in rows and its CUDA calls below them. Each GPU stream is a lane.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

from snippets.lab.trace.events import CpuOp, CudaCall, GpuActivity, Span, Step, by_start
from snippets.lab.trace.kernel_names import decode_kernel_name
from snippets.lab.trace.queries import overlaps_us

Kind = Literal["label", "annotation", "op", "call", "gemm", "pointwise", "other", "copy", "fill", "idle", "outside"]
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


@dataclass(frozen=True)
class Slice:
    """An operator, call or activity on a lane, `start_us` after the start of its step."""

    name: str
    kind: Kind
    row: int
    """In its lane, counted from the top: an operator's nesting depth; CUDA calls are below all operators."""
    start_us: float
    duration_us: float
    pair: int | None
    """A number shared by a call and the GPU work it launched; None if the trace has only one of them."""
    source: Span
    """What it shows: an operator, a call or an activity; of merged ones, the first."""
    overlap_us: float = 0.0
    """Time from its start during which the activity before on its stream was still running."""
    merged: int = 1
    """How many slices this one stands for; of several, `name` says what they are."""
    anchor: str = ""
    """An id to link to, unique on its page."""

    @property
    def end_us(self) -> float:
        """Where it ends, on the clock of `start_us`."""
        return round(self.start_us + self.duration_us, 3)


@dataclass(frozen=True)
class Lane:
    """A CPU thread or a GPU stream; its operators, calls and activities are each in start order."""

    name: str
    is_gpu: bool
    slices: tuple[Slice, ...]

    @property
    def rows(self) -> int:
        """Number of rows that the slices use."""
        return max((each.row for each in self.slices), default=-1) + 1


class _Rows:
    """Assigns slices to the rows of a lane; stores the end of the last slice in each row."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def place(self, span: Span, first: int = 0) -> int:
        """Put `span` into the first row, from `first` on, that is free when it starts; return the row."""
        row = first
        while row < min(len(self.ends), first + MOST_ROWS) and self.ends[row] > span.start_us + _CLOCK_NOISE_US:
            row += 1
        self.ends += [-math.inf] * (row + 1 - len(self.ends))
        self.ends[row] = span.end_us
        return row


def lanes(step: Step, label: str = "") -> tuple[Lane, ...]:
    """Return a lane for each CPU thread, in order of its first event, then one for each stream.

    Omits the step's own span, which is the time axis. `label` names the annotation to mark.
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
    streams: dict[tuple[int, int], list[tuple[GpuActivity, float]]] = defaultdict(list)
    for activity, overlap_us in zip(step.activities, overlaps_us(step), strict=True):
        streams[activity.device, activity.stream].append((activity, overlap_us))
    one_device = len({device for device, _ in streams}) == 1
    all_lanes = []
    for thread, (ops, calls) in threads.items():
        name = "CPU" if len(threads) == 1 else f"CPU thread {thread.rpartition('/')[2]}"
        all_lanes.append(Lane(name, False, _on_thread(step, ops, calls, pairs, marked)))
    for (device, stream), activities in sorted(streams.items(), key=itemgetter(0)):
        name = f"GPU stream {stream}" if one_device else f"GPU {device}, stream {stream}"
        all_lanes.append(Lane(name, True, _on_stream(step, activities, pairs)))
    return tuple(all_lanes)


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


def _on_stream(
    step: Step, activities: Sequence[tuple[GpuActivity, float]], pairs: Mapping[int | None, int]
) -> tuple[Slice, ...]:
    rows = _Rows()
    return tuple(
        _slice(step, activity, activity_kind(activity), rows.place(activity), pairs.get(activity.correlation), overlap)
        for activity, overlap in activities
    )


def _slice(
    step: Step, source: CpuOp | CudaCall | GpuActivity, kind: Kind, row: int, pair: int | None, overlap_us: float = 0.0
) -> Slice:
    start = round(source.start_us - step.start_us, 3)
    return Slice(source.name, kind, row, start, source.duration_us, pair, source, overlap_us)


def activity_kind(activity: GpuActivity) -> Kind:
    """How a GPU activity is drawn."""
    if activity.kind != "kernel":
        return "copy" if activity.kind == "memcpy" else "fill"
    return _KIND_OF_OPERATION.get(decode_kernel_name(activity.name).operation, "other")
