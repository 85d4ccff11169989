"""Bars of the book's charts: stacked bars for the parts of a total, and pairs with their spread.

Lengths are units of the drawing, from the top left corner of the axes. Kinds differ by color and by pattern. The label
of a bar is next to it; the letter of a part stands for its name.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from kinetoscope.trace.units import format_value
from snippets.lab.charts.axis import LinearAxis
from snippets.lab.charts.svg import (
    EDGES,
    FILLS,
    INK,
    LETTER,
    PAPER,
    TEXT,
    WIDTH,
    columns,
    label,
    plain,
    plot,
)
from snippets.lab.recording.schema import Timing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Stacks = Mapping[str, Sequence[tuple[str, float]]]
"""Heading of a bar -> its parts in order: name and amount."""
EDGE = 3
ACROSS = WIDTH - 2 * EDGE
LINE = TEXT + 6
BAR, THIN, GAP = 26, 22, 14
AXIS = 44
"""Height of an axis's tick labels and title."""
OF_CPU = re.compile(r"\bCPU\b|\bPython\b|^enqueue$")
"""The name of a time that the CPU takes, or a loop that waits for both; all others are the GPU's."""
BEHIND, NAME = 110, 11
"""Least width of the text to the right of a bar; letters of a timing's name in it."""


@dataclass(frozen=True)
class Key:
    """The style of a part of a bar: its letter, and its kind, one of `KINDS`."""

    letter: str
    kind: str


def joined(groups: Stacks, limit: int) -> Stacks:
    """Limit the groups to `limit` names: join the smallest names into the last part of each group."""
    totals = _sums(chain.from_iterable(groups.values()))
    if len(totals) <= limit:
        return groups
    kept = set(heapq.nlargest(limit - 1, totals, key=totals.__getitem__))
    rest = f"{len(totals) - len(kept)} others"

    def join(parts: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
        left_over = math.fsum(amount for name, amount in parts if name not in kept)
        return [*(part for part in parts if part[0] in kept), (rest, left_over)]

    return {heading: join(parts) for heading, parts in groups.items()}


def in_short(heading: str, parts: Sequence[tuple[str, float]], unit: str) -> str:
    """Describe a bar: its total and its three largest names."""
    sums = _sums(parts)
    largest = heapq.nlargest(3, sums, key=sums.__getitem__)
    named = ", ".join(f"{name} {format_value(sums[name], unit)}" for name in largest)
    return f"{heading}: {format_value(math.fsum(sums.values()), unit)}, most of it {named}."


def _sums(parts: Iterable[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for name, amount in parts:
        sums[name] += amount
    return sums


def stacks_height(bars: int) -> float:
    """Height of `draw_stacks` in units."""
    return bars * (LINE + BAR + GAP) + AXIS


def stacks_axis(groups: Stacks, unit: str) -> LinearAxis:
    """The axis of `draw_stacks`: the longest bar takes the width."""
    longest = max(math.fsum(amount for _, amount in parts) for parts in groups.values())
    return LinearAxis(unit, EDGE, longest, ACROSS, len(groups) * (LINE + BAR + GAP))


def draw_stacks(figure: Figure, groups: Stacks, keys: Mapping[str, Key], unit: str, axis: str) -> None:
    """Draw a bar for each group, from top to bottom on one scale, with its parts in order."""
    totals = {heading: math.fsum(amount for _, amount in parts) for heading, parts in groups.items()}
    scale = stacks_axis(groups, unit).scale
    axes = _axes(figure, len(groups) * (LINE + BAR + GAP))
    for index, (heading, parts) in enumerate(groups.items()):
        top, left = index * (LINE + BAR + GAP), 0.0
        axes.text(0, top + TEXT, f"{label(heading, 30)}: {format_value(totals[heading], unit)}", weight="bold")
        for name, amount in parts:
            width = amount * scale
            _box(axes, left, top + LINE, width, BAR, keys[name].kind)
            text = _fitting(width, f"{keys[name].letter} {format_value(amount, unit)}", keys[name].letter)
            chip = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
            axes.text(left + width / 2, top + LINE + BAR / 2, text, ha="center", va="center", bbox=chip)
            left += width
    _amounts(axes, scale, unit, axis)


def _axes(figure: Figure, height: float) -> Axes:
    axes = plot(figure, EDGE, 0, ACROSS, height)
    axes.set(xlim=(0, ACROSS), ylim=(height, 0), yticks=[])
    return axes


def _box(axes: Axes, left: float, top: float, width: float, height: float, kind: str) -> None:
    from matplotlib.patches import Rectangle

    edge = PAPER if kind == "gpu" else EDGES[kind]
    rim = 1 if width > 4 else 0  # a narrower part would be all rim
    axes.add_patch(Rectangle((left, top), width, height, facecolor=FILLS[kind], edgecolor=edge, linewidth=rim))


def _fitting(width: float, *texts: str) -> str:
    """The first text that fits, else an empty text."""
    return next((text for text in texts if max(2, len(text)) * LETTER < width), "")


def _amounts(axes: Axes, scale: float, unit: str, title: str) -> None:
    """Draw an axis from zero with three to five round amounts; `scale` is the width of one unit."""
    from matplotlib.ticker import MaxNLocator

    ticks = MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]).tick_values(0, ACROSS / scale)
    columns(axes, [(value * scale, plain(value, unit)) for value in ticks if value * scale <= ACROSS], title)


def pairs_height(groups: int, bars: int) -> float:
    """Height of `draw_pairs` in units for `groups` groups with `bars` bars in total."""
    return groups * (LINE + GAP) + bars * (THIN + 4) + AXIS


def pairs_axis(groups: Mapping[str, Mapping[str, Timing]]) -> LinearAxis:
    """The axis of `draw_pairs`: to the right of the longest bar there is room for its name."""
    timings = [timing for pair in groups.values() for timing in pair.values()]
    letters = max(len(label(name, NAME)) for pair in groups.values() for name in pair) + 8
    length = ACROSS - max(BEHIND, letters * LETTER + 7)
    return LinearAxis("us", EDGE, max(map(_reach, timings)), length, pairs_height(len(groups), len(timings)) - AXIS)


def draw_pairs(figure: Figure, groups: Mapping[str, Mapping[str, Timing]], axis: str) -> None:
    """Draw a bar for each timing under its heading, from zero, with its spread, and its name to the right."""
    across = pairs_axis(groups)
    scale = across.scale
    axes = _axes(figure, across.height)
    top = 0.0
    for heading, pair in groups.items():
        axes.text(0, top + TEXT, label(heading, 50), weight="bold")
        top += LINE
        for name, timing in pair.items():
            _box(axes, 0, top, timing.median_us * scale, THIN, "call" if OF_CPU.search(name) else "gpu")
            low, high = timing.spread_us
            _spread(axes, (low * scale, high * scale), top + THIN / 2)
            text = f"{label(name, NAME)} {format_value(timing.median_us, 'us')}"
            axes.text(_reach(timing) * scale + 7, top + THIN / 2, text, va="center")
            top += THIN + 4
        top += GAP
    _amounts(axes, scale, "us", axis)


def _reach(timing: Timing) -> float:
    return max(timing.median_us, timing.spread_us[1])


def _spread(axes: Axes, ends: tuple[float, float], middle: float) -> None:
    """Draw a line from end to end with caps at both ends and a rim for contrast with the bar."""
    for color, thick in ((PAPER, 4.5), (INK, 1.5)):
        axes.hlines(middle, *ends, color=color, linewidth=thick)
        axes.vlines(ends, middle - 5, middle + 5, color=color, linewidth=thick)
