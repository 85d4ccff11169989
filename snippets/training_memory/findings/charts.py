"""Charts of memory: the memory of a step over its allocations and releases, and an allocator's segments as maps.

Each is a page piece, `piece(device, subject, caption)`. Data that cannot be drawn is a `ValueError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.units import format_value
from snippets.lab.charts.bar_charts import legend
from snippets.lab.charts.bars import Key
from snippets.lab.charts.numbers import chart_id, framed, numbers_caption
from snippets.lab.charts.svg import draw
from snippets.lab.finding.device import Device
from snippets.training_memory.findings.drawn import (
    HELD,
    NAMES,
    HeldStep,
    Segment,
    draw_segments,
    draw_steps_held,
    segments_height,
    steps_height,
)


def memory_timeline(device: Device, steps: Mapping[str, HeldStep], caption: str) -> Html:
    """What steps hold: heading -> step; kinds of bytes on top of each other, phases marked.

    Raises `ValueError` for a step without phases, or if nothing is held.
    """
    for heading, step in steps.items():
        ends = list(step.phases.values())
        if not ends or ends[-1] != len(step.events) or ends != sorted(ends):
            raise ValueError(f"{caption}: the phases of {heading} end at {ends}, not at its {len(step.events)} events")
    if not any(any(step.peak()[1].values()) for step in steps.values()):
        raise ValueError(f"{caption}: nothing to draw")
    used = {kind for step in steps.values() for level in step.levels() for kind, size in level.items() if size}
    keys = {NAMES[kind]: Key(letter, kind) for kind, letter in HELD.items() if kind in used}
    drawing = draw(
        steps_height(len(steps)),
        lambda figure: draw_steps_held(figure, steps),
        ident=chart_id("chart", device, caption),
        title=caption,
        description=" ".join(_in_short(heading, step) for heading, step in steps.items()),
        data=tuple(steps.items()),
    )
    head = ["step", "moment", "bytes held", *(NAMES[kind] for kind in HELD if kind in used)]
    numbers = table(
        numbers_caption(caption),
        head,
        [
            row
            for heading, step in steps.items()
            for row in _rows(heading, step, [kind for kind in HELD if kind in used])
        ],
        text_columns=2,
    )
    return framed(caption, Html(drawing + legend(keys)), numbers)


def _in_short(heading: str, step: HeldStep) -> str:
    at, level = step.peak()
    parts = sorted(((size, NAMES[kind]) for kind, size in level.items() if size), reverse=True)
    named = ", ".join(f"{name} {format_value(size, 'bytes')}" for size, name in parts[:3])
    return f"{heading}: at most {format_value(sum(level.values()), 'bytes')}, in {step.phase_at(at)}, of it {named}."


def _rows(heading: str, step: HeldStep, kinds: Sequence[str]) -> list[list[Cell]]:
    """The bytes held before the step, at its peak, and after each phase."""
    levels = list(step.levels())
    at, _ = step.peak()
    moments = {"before": 0, "at the peak": at, **{f"after {name}": end for name, end in step.phases.items()}}
    return [
        [
            heading,
            moment,
            format_value(sum(levels[index].values()), "bytes"),
            *(format_value(levels[index][kind], "bytes") for kind in kinds),
        ]
        for moment, index in moments.items()
    ]


def in_bytes(size: int) -> str:
    """A size in the format of figures: `134 MB`."""
    return format_value(size, "bytes")


def memory_map(
    device: Device, segments: Sequence[Segment], caption: str, *, size_text: Callable[[int], str] = in_bytes
) -> Html:
    """Segments cut into blocks, on one scale; what is in use and what is free. Raises `ValueError` for no blocks.

    Args:
        device: whose segments they are.
        segments: from top to bottom.
        caption: of the chart.
        size_text: how a size is written, such as in mebibytes.
    """
    if not segments or not all(segment.blocks and segment.size for segment in segments):
        raise ValueError(f"{caption}: nothing to draw")
    drawing = draw(
        segments_height(len(segments)),
        lambda figure: draw_segments(figure, segments),
        ident=chart_id("chart", device, caption),
        title=caption,
        description=" ".join(_map_in_short(segment, size_text) for segment in segments),
        data=tuple(segments),
    )
    rows: list[list[Cell]] = [
        [
            segment.heading,
            size_text(segment.size),
            f"{sum(is_used for _, is_used in segment.blocks)}",
            size_text(_used(segment)),
            f"{sum(not is_used for _, is_used in segment.blocks)}",
            size_text(_largest_free(segment)),
        ]
        for segment in segments
    ]
    head = ["segment", "size", "blocks in use", "bytes in use", "free blocks", "largest free block"]
    keys = {"in use": Key("\u00a0", "used"), "free": Key("\u00a0", "free")}
    return framed(caption, Html(drawing + legend(keys)), table(numbers_caption(caption), head, rows))


def _used(segment: Segment) -> int:
    return sum(size for size, is_used in segment.blocks if is_used)


def _largest_free(segment: Segment) -> int:
    return max((size for size, is_used in segment.blocks if not is_used), default=0)


def _map_in_short(segment: Segment, size_text: Callable[[int], str]) -> str:
    used, largest = (size_text(size) for size in (_used(segment), _largest_free(segment)))
    return f"{segment.heading}: {used} of {size_text(segment.size)} in use, largest free block {largest}."
