"""Fewer slices for a large step: invisibly short slices become a block, deep rows are omitted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from kinetoscope.trace.events import by_start
from kinetoscope.trace.lanes import Kind, Lane, Slice
from kinetoscope.trace.units import format_value

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
        parts.append(f"{drawn.merged:,} slices too short to see are drawn as {blocks} with their count and time")
    if drawn.deep:
        parts.append(f"{drawn.deep:,} operators and calls in deeper rows are not drawn")
    if drawn.lanes_left_out:
        parts.append(f"{drawn.lanes_left_out:,} threads and streams with less work are not drawn")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}. Perfetto shows them all." if text else ""


def reduce_lanes(lanes: Sequence[Lane], span_us: float, budget: int) -> Drawn:
    """Reduce lanes to about `budget` slices; slices with an anchor stay unchanged."""
    shown = _largest(lanes)
    cut = [_cut(lane) for lane in shown]
    deep = sum(len(lane.slices) for lane in shown) - sum(len(lane.slices) for lane in cut)
    rows = [_rows(lane) for lane in cut]
    least_us = span_us * _FIRST_SHARE
    while least_us < span_us and _are_more(budget, (run for each in rows for run in _runs(each, least_us))):
        least_us *= 1.6
    drawn = [
        replace(lane, slices=tuple(map(_block, _runs(each, least_us)))) for lane, each in zip(cut, rows, strict=True)
    ]
    merged = sum(each.merged for lane in drawn for each in lane.slices if each.merged > 1)
    return Drawn(tuple(drawn), merged, deep, len(lanes) - len(shown))


def _largest(lanes: Sequence[Lane]) -> list[Lane]:
    """The lanes to draw, in their order: GPU streams before CPU threads, and long lanes before short ones."""
    times = [(lane.is_gpu, sum(each.duration_us for each in lane.slices)) for lane in lanes]
    anchored = [any(each.anchor for each in lane.slices) for lane in lanes]
    ranked = sorted(range(len(lanes)), key=lambda index: (anchored[index], times[index][1]), reverse=True)
    gpu = [index for index in ranked if times[index][0]][: MOST_LANES // 2]
    cpu = [index for index in ranked if not times[index][0]][: MOST_LANES - len(gpu)]
    return [lanes[index] for index in sorted([*cpu, *gpu])]


def _cut(lane: Lane) -> Lane:
    """Omit deep rows of operators of a CPU lane; anchored slices move into the last drawn row."""
    if lane.is_gpu:
        return replace(lane, slices=tuple(_limited(lane.slices, 0, MOST_GPU_ROWS)))
    ops = [each for each in lane.slices if each.kind != "call"]
    calls = [each for each in lane.slices if each.kind == "call"]
    kept = list(_limited(ops, 0, MOST_OP_ROWS))
    top = min((call.row for call in calls), default=0)
    below = max((op.row for op in kept), default=-1) + 1
    moved = _limited([replace(call, row=call.row - top) for call in calls], below, MOST_CALL_ROWS)
    return replace(lane, slices=(*kept, *moved))


def _limited(slices: Sequence[Slice], first: int, rows: int) -> Iterator[Slice]:
    for each in slices:
        if each.row < rows or each.anchor:
            row = first + min(each.row, rows - 1)
            yield each if row == each.row else replace(each, row=row)


def _rows(lane: Lane) -> list[list[Slice]]:
    """The slices of each row from top to bottom, in start order."""
    rows: dict[int, list[Slice]] = defaultdict(list)
    for each in lane.slices:
        rows[each.row].append(each)
    return [sorted(rows[row], key=by_start) for row in sorted(rows)]


def _runs(rows: Iterable[Sequence[Slice]], least_us: float) -> Iterator[list[Slice]]:
    """Runs of slices in a row that are shorter than `least_us`, with gaps shorter than that; other slices are alone."""
    for row in rows:
        yield from _runs_in(row, least_us)


def _runs_in(row: Sequence[Slice], least_us: float) -> Iterator[list[Slice]]:
    run: list[Slice] = []
    begin = end = 0.0
    for each in row:
        start, duration = each.start_us, each.duration_us
        is_short = duration < least_us and not each.anchor
        if run:
            fits = start + duration - begin < _BLOCK * least_us and each.is_ghost == run[0].is_ghost
            if not (is_short and fits and start - end < least_us):
                yield run
                run = []
        if is_short:
            begin = begin if run else start
            end = start + duration
            run.append(each)
        else:
            yield [each]
    if run:
        yield run


def _are_more(count: int, items: Iterable[object]) -> bool:
    """Whether there are more than `count` items; stops there."""
    return next(islice(items, count, None), None) is not None


def _block(run: Sequence[Slice]) -> Slice:
    """One slice for a whole run, with the kind that takes most of its time."""
    if len(run) == 1:
        return run[0]
    times: Counter[Kind] = Counter()
    for each in run:
        times[each.kind] += each.duration_us  # type: ignore[assignment]
    start, end = run[0].start_us, max(each.end_us for each in run)
    plural = next(iter({_PLURAL.get(each.kind, "kernels") for each in run}))
    if len({_PLURAL.get(each.kind, "kernels") for each in run}) > 1:
        plural = "activities"
    busy = format_value(sum(each.duration_us for each in run), "us")
    return Slice(
        f"{len(run):,} {plural}, {busy} together",
        times.most_common(1)[0][0],
        run[0].row,
        start,
        round(end - start, 3),
        None,
        run[0].source,
        merged=len(run),
        is_ghost=run[0].is_ghost,
    )
