"""The slices of a timeline as tables: a text alternative to the drawing, and the details of each slice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape

from msgspec.structs import replace

from kinetoscope.html import Cell, Html, table
from kinetoscope.timeline.canvas import SLICE_KINDS, duration_text, exact_time, slice_names
from kinetoscope.trace.events import GpuActivity
from kinetoscope.trace.lanes import Lane, Slice
from kinetoscope.trace.units import format_value

_NOTHING = Html("")


def slice_tables(caption: str, heading: str, step_lanes: Sequence[Lane]) -> Html:
    """Tables of a step's slices in drawing order; the first cell of a row is the slice's label."""
    step_lanes = [replace(lane, slices=tuple(piece for piece in lane.slices if piece.is_own)) for lane in step_lanes]
    work: dict[int | None, list[str]] = defaultdict(list)
    for piece in (piece for lane in step_lanes if lane.is_gpu for piece in lane.slices):
        work[piece.pair].append(slice_names(piece)[1])
    cpu = [
        _cpu_row(f"{heading}: {lane.name}", piece, work)
        for lane in step_lanes
        if not lane.is_gpu
        for piece in lane.slices
    ]
    gpu = [_gpu_row(f"{heading}: {lane.name}", piece) for lane in step_lanes if lane.is_gpu for piece in lane.slices]
    cpu_head = ["name", "what", "lane", "starts on the GPU", "begins after", "lasts"]
    gpu_head = ["what", "name", "lane", "operator", "call", "begins after", "lasts", "launch delay", "grid", "block"]
    gpu_head += ["registers", "shared memory, bytes", "moved, bytes"]
    cpu_table = table(f"{caption}: {heading}, CPU", cpu_head, cpu, text_columns=4, scrolls=True) if cpu else _NOTHING
    gpu_table = table(f"{caption}: {heading}, GPU", gpu_head, gpu, text_columns=5, scrolls=True) if gpu else _NOTHING
    return Html(cpu_table + gpu_table)


def _cpu_row(lane: str, piece: Slice, work: Mapping[int | None, Sequence[str]]) -> list[Cell]:
    started = work.get(piece.pair, ()) if piece.pair is not None else ()
    launched = ", ".join(started) if len(started) < 4 else f"{len(started):,} activities"
    return [
        _code(piece.name),
        SLICE_KINDS[piece.kind],
        lane,
        launched or None,
        exact_time(piece.start_us),
        duration_text(piece),
    ]


def _gpu_row(lane: str, piece: Slice) -> list[Cell]:
    activity = piece.source
    assert isinstance(activity, GpuActivity)
    op, launch, delay = activity.op, activity.launch, activity.launch_delay_us
    return [
        slice_names(piece)[0],
        _code(piece.name),
        lane,
        _code(op.name) if op else None,
        _code(launch.name) if launch else None,
        exact_time(piece.start_us),
        duration_text(piece),
        None if delay is None else format_value(delay, "us"),
        _sizes(activity.grid),
        _sizes(activity.block),
        activity.registers,
        _count(activity.shared_memory_bytes),
        _count(activity.moved_bytes),
    ]


def _code(name: str) -> Html:
    return Html(f"<code>{escape(name, quote=False)}</code>")


def _sizes(sizes: tuple[int, int, int] | None) -> str | None:
    return None if sizes is None else "x".join(map(str, sizes))


def _count(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"
