"""The events of a step placed in rows, as columns: a step may have millions of events, of which few are drawn."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import floor
from operator import itemgetter
from typing import Literal

from msgspec import Struct

from kinetoscope.trace.events import CpuOp, CudaCall, GpuActivity, Span, Step, by_start, in_whole_ns, last_end_us
from kinetoscope.trace.kernel_names import decode_kernel_name

Kind = Literal["label", "annotation", "op", "call", "gemm", "pointwise", "other", "copy", "fill", "idle", "unrecorded"]
_KIND_OF_OPERATION: dict[str, Kind] = {
    "gemm": "gemm",
    "gemv": "gemm",
    "elementwise": "pointwise",
    "copy": "copy",
    "memset": "fill",
}
CLOCK_NOISE_US = 0.002
MOST_ROWS = 100
"""Spans that overlap and are drawn apart; of more, the rest share a row. A hostile trace would take quadratic time."""


class PlacedLane(Struct, frozen=True):
    """A CPU thread or a GPU stream; each column has an entry for each event.

    The events of a thread are its operators and then its calls, each in start order; those of a stream are its work in
    start order.
    """

    name: str
    is_gpu: bool
    sources: Sequence[CpuOp | CudaCall | GpuActivity]
    starts_us: array[float]
    """Starts after the start of the step."""
    durations_us: array[float]
    rows: array[int]
    """The row in the lane, counted from the top: an operator's nesting depth; calls are below all operators."""
    calls: int = 0
    """Number of calls, which are the last events."""
    ghosts: frozenset[int] = frozenset()
    """Indices of the work of other steps, which is cropped to the time shown."""
    marked: CpuOp | None = None
    """The annotation to mark."""
    anchors: dict[int, str] = {}
    """Index -> an id to link to, unique on its page."""

    def kind(self, index: int) -> Kind:
        """The kind by which an event is drawn."""
        source = self.sources[index]
        if isinstance(source, GpuActivity):
            return activity_kind(source)
        if isinstance(source, CudaCall):
            return "call"
        return "label" if source is self.marked else "annotation" if source.is_annotation else "op"


def place_events(
    step: Step, label: str, activities: Sequence[GpuActivity], shown: tuple[float, float]
) -> list[PlacedLane]:
    """Place a step's events: CPU threads in order of their first event, then streams.

    Args:
        step: the step.
        label: names the annotation to mark; empty without one.
        activities: all GPU work of the trace. Work of other steps in the time shown becomes ghosts.
        shown: `time_shown` of the step.
    """
    marked = step.find_annotation(label) if label else None
    threads: dict[str, tuple[list[CpuOp], list[CudaCall]]] = defaultdict(lambda: ([], []))
    for op in step.ops:
        threads[op.thread][0].append(op)
    for call in step.calls:
        threads[call.thread][1].append(call)
    for ops, calls in threads.values():
        ops.sort(key=by_start)
        calls.sort(key=by_start)
    placed = []
    for thread, (ops, calls) in sorted(threads.items(), key=_first_start):
        name = "CPU" if len(threads) == 1 else f"CPU thread {thread.rpartition('/')[2]}"
        placed.append(_on_thread(step, name, ops, calls, marked))
    return placed + _on_streams(step, activities, shown)


def time_shown(step: Step) -> tuple[float, float]:
    """Begin and end of the time in which a step is drawn, after its start: its span, and all work that it launched."""
    lists: tuple[Sequence[Span], ...] = (step.ops, step.calls, step.activities)
    begin = min([step.start_us, *(spans[0].start_us for spans in lists if spans)])
    end = max(step.end_us, *map(last_end_us, lists))
    return in_whole_ns(begin - step.start_us), in_whole_ns(end - step.start_us)


def activity_kind(activity: GpuActivity) -> Kind:
    """The kind by which a GPU activity is drawn."""
    if activity.kind != "kernel":
        return "copy" if activity.kind == "memcpy" else "fill"
    return _KIND_OF_OPERATION.get(decode_kernel_name(activity.name).operation, "other")


class _Rows:
    """Assigns events to the rows of a lane; stores the end of the last event in each row."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def place(self, start_us: float, duration_us: float, first: int = 0) -> int:
        """Put an event into the first row, from `first` on, that is free when it starts; return the row."""
        ends, row, free_by = self.ends, first, start_us + CLOCK_NOISE_US
        while row < len(ends) and ends[row] > free_by and row < first + MOST_ROWS:
            row += 1
        if row >= len(ends):
            ends += [-math.inf] * (row + 1 - len(ends))
        ends[row] = floor((start_us + duration_us) * 1000 + 0.5) / 1000  # as in_whole_ns, inlined
        return row


def _first_start(thread: tuple[str, tuple[Sequence[CpuOp], Sequence[CudaCall]]]) -> tuple[float, bool]:
    """Where the first event of a thread starts; of two threads that start together, an operator comes before a call."""
    _, (ops, calls) = thread
    starts = [(spans[0].start_us, is_call) for spans, is_call in ((ops, False), (calls, True)) if spans]
    return min(starts)


def _on_thread(
    step: Step, name: str, ops: Sequence[CpuOp], calls: Sequence[CudaCall], marked: CpuOp | None
) -> PlacedLane:
    """Put each operator below its caller, and calls below all operators."""
    begin, rows = step.start_us, _Rows()
    places = array("I", _op_rows(ops, rows))
    below = len(rows.ends)
    places.extend(rows.place(call.start_us, call.duration_us, below) for call in calls)
    sources: Sequence[CpuOp | CudaCall] = [*ops, *calls] if calls else ops
    durations = array("d", [span.duration_us for span in sources])
    return PlacedLane(name, False, sources, _starts(sources, begin), durations, places, calls=len(calls), marked=marked)


def _starts(spans: Iterable[Span], begin_us: float) -> array[float]:
    """The starts after `begin_us`, rounded as `in_whole_ns` does."""
    return array("d", (floor((span.start_us - begin_us) * 1000 + 0.5) / 1000 for span in spans))


def _op_rows(ops: Sequence[CpuOp], rows: _Rows) -> Iterator[int]:
    """The row of each operator; keeps those of open operators only."""
    row_of: dict[CpuOp | None, int] = {}
    open_ops: list[tuple[float, CpuOp]] = []
    for op in ops:
        start, duration = op.start_us, op.duration_us
        while open_ops and open_ops[-1][0] <= start:
            del row_of[open_ops.pop()[1]]
        row = rows.place(start, duration, row_of.get(op.parent, -1) + 1)
        row_of[op] = row
        open_ops.append((start + duration, op))
        yield row


def _on_streams(step: Step, activities: Sequence[GpuActivity], shown: tuple[float, float]) -> list[PlacedLane]:
    """The work of each stream, side by side where it overlaps."""
    sources: dict[tuple[int, int], list[GpuActivity]] = defaultdict(list)
    for activity in step.activities:
        sources[activity.device, activity.stream].append(activity)
    own = {stream: len(work) for stream, work in sources.items()}
    cropped: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for activity, start, duration in _ghosts(step, activities, shown):
        stream = activity.device, activity.stream
        sources[stream].append(activity)
        cropped[stream].append((start, duration))
    one_device = len({device for device, _ in sources}) == 1
    placed = []
    for (device, number), work in sorted(sources.items(), key=itemgetter(0)):
        stream = device, number
        count, begin = own.get(stream, 0), step.start_us
        starts = _starts(work[:count], begin)
        starts.extend(start for start, _ in cropped[stream])
        durations = array("d", [activity.duration_us for activity in work[:count]])
        durations.extend(duration for _, duration in cropped[stream])
        name = f"GPU stream {number}" if one_device else f"GPU {device}, stream {number}"
        placed.append(_on_stream(name, work, starts, durations, count))
    return placed


def _on_stream(
    name: str, work: Sequence[GpuActivity], starts: array[float], durations: array[float], own: int
) -> PlacedLane:
    """A stream's work in start order; that after the first `own` is of other steps."""
    ghosts: frozenset[int] = frozenset()
    if own < len(work):
        order = array("I", sorted(range(len(work)), key=starts.__getitem__))
        starts = array("d", [starts[index] for index in order])
        durations = array("d", [durations[index] for index in order])
        work = [work[index] for index in order]
        ghosts = frozenset(place for place, index in enumerate(order) if index >= own)
    rows = array("I", map(_Rows().place, starts, durations))
    return PlacedLane(name, True, work, starts, durations, rows, ghosts=ghosts)


def _ghosts(
    step: Step, activities: Sequence[GpuActivity], shown: tuple[float, float]
) -> Iterator[tuple[GpuActivity, float, float]]:
    """Work of other steps in the time shown, with its start and duration in that time."""
    begin, end = shown
    own = iter(step.activities)
    next_own = next(own, None)
    for activity in activities:
        if activity is next_own:
            next_own = next(own, None)
            continue
        start = max(activity.start_us - step.start_us, begin)
        stop = min(activity.end_us - step.start_us, end)
        if stop > start:
            yield activity, in_whole_ns(start), in_whole_ns(stop - start)
