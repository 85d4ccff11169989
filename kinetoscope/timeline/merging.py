"""Fewer slices for a large step: invisibly short slices become a block, deep rows are omitted."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from kinetoscope.trace.events import in_whole_ns
from kinetoscope.trace.intervals import length_us, ns, union
from kinetoscope.trace.lanes import Lane, Slice, slice_of
from kinetoscope.trace.placing import Kind, PlacedLane
from kinetoscope.trace.units import format_value

Indices: TypeAlias = "array[int]"
"""Events of a row of a lane, by their places in its columns."""
_Run: TypeAlias = tuple[int, int, Indices]
"""The index of a lane, a row, events."""
MOST_LANES = 14
"""The most CPU threads and GPU streams drawn; those with the most time win."""
MOST_OP_ROWS, MOST_CALL_ROWS, MOST_GPU_ROWS = 4, 2, 4
_FIRST_SHARE = 1 / 20_000
"""Share of the time scale: shorter slices are always merged, even if there are few."""
_BLOCK = 30
"""Longest block, as a multiple of the shortest drawn slice: longer blocks would hide when the step is busy."""
_PLURAL = {
    "op": "operators",
    "call": "CUDA calls",
    "annotation": "annotations",
    "copy": "copies",
    "fill": "fills",
}


class Drawn(Struct, frozen=True):
    """The drawn and the omitted parts of a step."""

    lanes: tuple[Lane, ...]
    merged: int
    """Slices that stand in blocks."""
    deep: int
    """Slices in rows that are left out."""
    lanes_left_out: int

    def with_lanes(self, lanes: Sequence[Lane]) -> Drawn:
        """The same with other lanes."""
        return replace(self, lanes=tuple(lanes))


def left_out(drawn: Drawn) -> str:
    """The merged and omitted parts of a drawing, in a sentence; empty if there are none."""
    parts = []
    if drawn.merged:
        count = sum(each.merged > 1 for lane in drawn.lanes for each in lane.slices)
        blocks = "one block" if count == 1 else f"{count:,} blocks"
        parts.append(
            f"{drawn.merged:,} slices too short to see are drawn as {blocks}. Each block shows the count and time of "
            "its slices, and the filled part of a block shows how long its slices run"
        )
    if drawn.deep:
        parts.append(f"{drawn.deep:,} operators and calls in deeper rows are not drawn")
    if drawn.lanes_left_out:
        parts.append(f"{drawn.lanes_left_out:,} threads and streams with less work are not drawn")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}. Perfetto shows them all." if text else ""


def reduce_lanes(lanes: Sequence[PlacedLane], span_us: float, budget: int) -> Drawn:
    """Reduce lanes to about `budget` slices; events with an anchor stay alone. Pairs and overlaps are not set."""
    shown = _largest(lanes)
    rows = [_drawn_rows(lane) for lane in shown]
    drawn_events = sum(len(row) for of_lane in rows for row in of_lane.values())
    deep = sum(len(lane.sources) for lane in shown) - drawn_events
    runs = _fitting_runs(shown, rows, span_us, budget)
    drawn = [
        Lane(lane.name, lane.is_gpu, tuple(_block(lane, row, run) for at, row, run in runs if at == index))
        for index, lane in enumerate(shown)
    ]
    merged = sum(each.merged for lane in drawn for each in lane.slices if each.merged > 1)
    return Drawn(tuple(drawn), merged, deep, len(lanes) - len(shown))


def _largest(lanes: Sequence[PlacedLane]) -> list[PlacedLane]:
    """The lanes to draw, in their order: GPU streams before CPU threads, and long lanes before short ones."""
    times = [(bool(lane.anchors), sum(lane.durations_us)) for lane in lanes]
    ranked = sorted(range(len(lanes)), key=times.__getitem__, reverse=True)
    gpu = [index for index in ranked if lanes[index].is_gpu][: MOST_LANES // 2]
    cpu = [index for index in ranked if not lanes[index].is_gpu][: MOST_LANES - len(gpu)]
    return [lanes[index] for index in sorted([*cpu, *gpu])]


def _drawn_rows(lane: PlacedLane) -> dict[int, Indices]:
    """The events of each row of the drawing, from top to bottom, in start order.

    Omits deep rows; events with an anchor move into the last drawn row.
    """
    first_call = len(lane.sources) - lane.calls
    rows: dict[int, Indices] = defaultdict(lambda: array("I"))
    most, anchors = MOST_GPU_ROWS if lane.is_gpu else MOST_OP_ROWS, lane.anchors
    for index, row in enumerate(islice(lane.rows, first_call)):
        if row < most or index in anchors:
            rows[min(row, most - 1)].append(index)
    below, top = max(rows, default=-1) + 1, min(lane.rows[first_call:], default=0)
    for index, row in enumerate(islice(lane.rows, first_call, None), start=first_call):
        if row - top < MOST_CALL_ROWS or index in anchors:
            rows[below + min(row - top, MOST_CALL_ROWS - 1)].append(index)
    return dict(sorted(rows.items()))


def _fitting_runs(
    lanes: Sequence[PlacedLane], rows: Sequence[Mapping[int, Indices]], span_us: float, budget: int
) -> list[_Run]:
    """The runs for the least time with which they are at most `budget`."""
    least_us = span_us * _FIRST_SHARE
    while least_us < span_us:
        runs = list(islice(_runs(lanes, rows, least_us), budget + 1))
        if len(runs) <= budget:
            return runs
        least_us *= 1.6
    return list(_runs(lanes, rows, least_us))


def _runs(lanes: Sequence[PlacedLane], rows: Sequence[Mapping[int, Indices]], least_us: float) -> Iterator[_Run]:
    """Runs of events in a row that are shorter than `least_us`, with gaps shorter than that; other events are alone."""
    for index, (lane, of_lane) in enumerate(zip(lanes, rows, strict=True)):
        for row, indices in of_lane.items():
            first = 0
            for end in _run_ends(lane, indices, least_us):
                yield index, row, indices[first:end]
                first = end


def _run_ends(lane: PlacedLane, indices: Indices, least_us: float) -> Iterator[int]:
    """Where each run of a row ends, as a place in `indices`."""
    starts, durations, ghosts, anchors = lane.starts_us, lane.durations_us, lane.ghosts, lane.anchors
    in_run = is_ghost = False
    begin = end = 0.0
    longest_us = _BLOCK * least_us
    for place, index in enumerate(indices):
        start, duration = starts[index], durations[index]
        is_short = duration < least_us and index not in anchors
        fits = is_short and start - end < least_us and start + duration - begin < longest_us
        if in_run and fits and (index in ghosts) == is_ghost:
            end = start + duration
            continue
        if place:
            yield place
        in_run, is_ghost = is_short, index in ghosts
        begin, end = start, start + duration
    if indices:
        yield len(indices)


def _block(lane: PlacedLane, row: int, run: Indices) -> Slice:
    """One slice for a whole run, with the kind that takes most of its time."""
    if len(run) == 1:
        return slice_of(lane, run[0], row)
    starts, durations = lane.starts_us, lane.durations_us
    times: dict[Kind, float] = {}
    for index, kind in zip(run, map(lane.kind, run), strict=True):
        times[kind] = times.get(kind, 0.0) + durations[index]
    plurals = {_PLURAL.get(kind, "kernels") for kind in times}
    plural = plurals.pop() if len(plurals) == 1 else "activities"
    start, end = starts[run[0]], in_whole_ns(max([starts[index] + durations[index] for index in run]))
    busy = format_value(math.fsum([durations[index] for index in run]), "us")  # the same in every Python
    filled_us = length_us(union([(ns(starts[index]), ns(starts[index] + durations[index])) for index in run]))
    return Slice(
        f"{len(run):,} {plural}, {busy} together",
        max(times, key=times.__getitem__),
        row,
        start,
        round(end - start, 3),
        None,
        lane.sources[run[0]],
        merged=len(run),
        filled=filled_us / round(end - start, 3) if end > start else 1.0,
        is_ghost=run[0] in lane.ghosts,
    )
