"""Charts made of lines: figures of one unit over growing sizes, below limits that do not grow.

A piece is `piece(device, subject, caption)`. Data that cannot be drawn is a `ValueError`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.units import format_value
from snippets.lab.charts.curves import AXIS, EDGE, GAP, LINE, Scale
from snippets.lab.charts.numbers import chart_id, figure_cell, framed, numbers_caption, require_positive
from snippets.lab.charts.svg import EDGES, INK, TEXT, WIDTH, canvas, columns, draw, label, plain, plot, rows
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

SIDE, PANEL = 76, 170
"""Width left of the panel, which has room for `500 GB/s`, and the panel's height."""
LOOKS = ((EDGES["gpu"], "o"), (EDGES["call"], "^"), (EDGES["gemm"], "s"), (EDGES["copy"], "D"))
"""Color and marker of each line."""
MAX_TICKS = 5
Line = Mapping[float, Figure]
"""Size -> figure."""


def line_chart(
    device: Device,
    lines: Mapping[str, Line],
    caption: str,
    *,
    axis: str,
    size_text: Callable[[float], str],
    limits: Mapping[str, Figure] | None = None,
) -> Html:
    """Figures over sizes: the sizes are on a logarithmic scale, and the figures are on a linear scale from zero.

    Args:
        device: whose numbers they are.
        lines: name -> sizes and figures; at most four.
        caption: what the chart shows.
        axis: what the sizes count.
        size_text: a size as text: `64 KiB`.
        limits: name -> figure, each a dashed line across the chart.

    Raises `ValueError` for too many lines, a line of one size, sizes or figures that are not above zero, and two units.
    """
    below = dict(limits or {})
    points = {f"{name} at {size_text(size)}": each for name, line in lines.items() for size, each in line.items()}
    _require_lines(caption, lines, [*points.values(), *below.values()])
    require_positive(caption, {name: figure.number for name, figure in (points | below).items()})
    drawing = draw(
        (len(lines) + len(below)) * LINE + GAP + PANEL + AXIS,
        lambda figure: _draw(figure, lines, below, axis, size_text),
        ident=chart_id("chart", device, caption),
        title=caption,
        description="; ".join(f"{name} {figure.text}" for name, figure in (points | below).items()) + ".",
        data=(lines, below, axis, [size_text(size) for size in _sizes(lines)]),
    )
    return framed(caption, drawing, _numbers(lines, below, caption, axis, size_text))


def _require_lines(caption: str, lines: Mapping[str, Line], figures: Sequence[Figure]) -> None:
    if not 1 <= len(lines) <= len(LOOKS):
        raise ValueError(f"{caption}: {len(lines)} lines; draw one to {len(LOOKS)}")
    for name, line in lines.items():
        if len(line) < 2 or min(line) <= 0:
            raise ValueError(f"{caption}: {name} has the sizes {sorted(line)}, not two or more above zero")
    if len(units := {figure.unit for figure in figures}) > 1:
        raise ValueError(f"{caption}: amounts in {' and '.join(sorted(units))} have no common scale")


def _sizes(lines: Mapping[str, Line]) -> list[float]:
    return sorted({size for line in lines.values() for size in line})


def _numbers(
    lines: Mapping[str, Line],
    limits: Mapping[str, Figure],
    caption: str,
    axis: str,
    size_text: Callable[[float], str],
) -> Html:
    """A row for each size, and one with the limits."""
    body: list[Sequence[Cell]] = [
        [size_text(size), *(figure_cell(line[size]) if size in line else None for line in lines.values())]
        for size in _sizes(lines)
    ]
    body += [[name, figure_cell(figure), *[None] * (len(lines) - 1)] for name, figure in limits.items()]
    return table(numbers_caption(caption), [axis, *lines], body)


def _draw(
    figure: Drawing,
    lines: Mapping[str, Line],
    limits: Mapping[str, Figure],
    axis: str,
    size_text: Callable[[float], str],
) -> None:
    """A key above one panel; each figure's spread is a vertical line."""
    top = (len(lines) + len(limits)) * LINE
    _key(canvas(figure, 0, top), lines, limits)
    width = WIDTH - SIDE - 20
    axes = plot(figure, SIDE, top + GAP, width, PANEL)
    sizes, figures = _sizes(lines), [each for line in lines.values() for each in line.values()]
    highest = max(bound for each in [*figures, *limits.values()] for bound in each.bounds)
    step = _round_step(highest)
    across = Scale(sizes[0], sizes[-1], 8, width - 8)
    end = step * math.ceil(highest / step)
    axes.set(xlim=(0, width), ylim=(0, end))
    columns(axes, _some([(across(size), size_text(size)) for size in sizes]), axis)
    axes.get_xticklabels()[0].set_horizontalalignment("left")  # beside the 0 of the other axis
    unit = figures[0].unit
    rows(axes, [(step * index, plain(step * index, unit) if index else "0") for index in range(round(end / step) + 1)])
    for limit in limits.values():
        axes.axhline(limit.number, color=INK, linewidth=1.2, linestyle="--")
    for (color, marker), line in zip(LOOKS, lines.values(), strict=False):
        _line(axes, line, across, color, marker)


def _line(axes: Axes, line: Line, across: Scale, color: str, marker: str) -> None:
    sizes = sorted(line)
    for size in sizes:
        axes.plot([across(size)] * 2, line[size].bounds, color=color, linewidth=1.2)
    axes.plot(
        [across(size) for size in sizes],
        [line[size].number for size in sizes],
        color=color,
        marker=marker,
        linewidth=1.8,
        markersize=6,
    )


def _round_step(highest: float) -> float:
    """1, 2 or 5 times a power of ten: at most `MAX_TICKS` of it reach `highest`."""
    power = 10.0 ** math.floor(math.log10(highest / MAX_TICKS))
    return next(power * step for step in (1, 2, 5, 10) if power * step * MAX_TICKS >= highest)


def _some(ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Every tick, and the label of every third from the last."""
    last = len(ticks) - 1
    return [(at, text if (last - index) % 3 == 0 else "") for index, (at, text) in enumerate(ticks)]


def _key(strip: Axes, lines: Mapping[str, Line], limits: Mapping[str, Figure]) -> None:
    for index, (name, (color, marker)) in enumerate(zip(lines, LOOKS, strict=False)):
        middle = index * LINE + TEXT - 4
        strip.plot([EDGE + 1, EDGE + 12, EDGE + 23], [middle] * 3, color=color, marker=marker, markevery=[1])
        strip.text(EDGE + 30, middle + 4, label(name, 40))
    for index, (name, limit) in enumerate(limits.items(), start=len(lines)):
        middle = index * LINE + TEXT - 4
        strip.plot([EDGE + 1, EDGE + 23], [middle] * 2, color=INK, linewidth=1.2, linestyle="--")
        strip.text(EDGE + 30, middle + 4, label(f"{name}: {format_value(limit.number, limit.unit)}", 40))
