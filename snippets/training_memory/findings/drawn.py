"""Draw the memory of a step over its allocations and releases, and the blocks of an allocator's segments.

Lengths are units of the drawing, from the top left corner of the axes. Kinds of bytes differ by color and by pattern.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinetoscope.trace.units import format_value
from snippets.lab.charts.svg import EDGES, FILLS, GRID, INK, LETTER, PAPER, TEXT, WIDTH, label, plain, plot, rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HELD: Mapping[str, str] = {
    "parameters": "A",
    "states": "B",
    "others": "C",
    "gradients": "D",
    "activations": "E",
    "temporaries": "F",
}
"""Kind of bytes, from the bottom up -> its letter."""
NAMES: Mapping[str, str] = {
    "parameters": "parameters",
    "states": "optimizer states",
    "others": "batch and workspaces",
    "gradients": "gradients",
    "activations": "activations, kept for backward",
    "temporaries": "temporaries",
}
EDGE, SIDE, LINE, PANEL, GAP, AXIS = 3, 58, TEXT + 6, 130, 16, 26
ACROSS = WIDTH - SIDE - EDGE
BLOCKS = WIDTH - 2 * EDGE
"""Width of the widest segment."""
BAR = 26


@dataclass(frozen=True)
class HeldStep:
    """The bytes of one step by kind: bytes held throughout, and each allocation or release."""

    base: Mapping[str, int]
    events: tuple[tuple[str, int], ...]
    """Kind and bytes, below zero for a release, in order."""
    phases: Mapping[str, int]
    """Name -> number of events at its end."""

    def levels(self) -> Iterator[dict[str, int]]:
        """The bytes of each kind before the step, and after each event."""
        level = {kind: self.base.get(kind, 0) for kind in HELD}
        yield dict(level)
        for kind, size in self.events:
            level[kind] += size
            yield dict(level)

    def peak(self) -> tuple[int, dict[str, int]]:
        """The number of events after which most bytes are held for the first time, and these bytes."""
        before = sum(self.base.get(kind, 0) for kind in HELD)
        totals = list(itertools.accumulate((size for _, size in self.events), initial=before))
        at = totals.index(max(totals))
        return at, next(itertools.islice(self.levels(), at, None))

    def phase_at(self, index: int) -> str:
        """The phase after `index` events."""
        return next(name for name, end in self.phases.items() if index <= end)


def steps_height(panels: int) -> float:
    """Height of `draw_steps_held` in units."""
    return panels * (2 * LINE + PANEL + GAP) + AXIS


def draw_steps_held(figure: Figure, steps: Mapping[str, HeldStep]) -> None:
    """Draw a panel for each step on one scale of bytes: an area for each kind on top of the others."""
    highest = max(sum(step.peak()[1].values()) for step in steps.values())
    for index, (heading, step) in enumerate(steps.items()):
        top = index * (2 * LINE + PANEL + GAP) + 2 * LINE
        axes = plot(figure, SIDE, top, ACROSS, PANEL)
        axes.set(xlim=(0, ACROSS), ylim=(0, highest * 1.04), xticks=[])
        at, level = step.peak()
        peak = format_value(sum(level.values()), "bytes")
        _text(axes, EDGE - SIDE, -LINE - 6, f"{label(heading, 22)}: {peak}, in {step.phase_at(at)}", weight="bold")
        rows(axes, [(value, plain(value, "bytes") if value else "0") for value in _ticks(highest)])
        _areas(axes, step, highest)
        _phases(axes, step)
        x = ACROSS * at / max(1, len(step.events))
        axes.plot([x], [sum(level.values())], marker="o", markersize=6, color=INK, markeredgecolor=PAPER)
        if index == len(steps) - 1:
            axes.set_xlabel("allocations and releases, in order")


def _ticks(highest: float) -> list[float]:
    from matplotlib.ticker import MaxNLocator

    ticks = MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]).tick_values(0, highest)
    return [float(value) for value in ticks if 0 <= value <= highest * 1.04]


def _text(axes: Axes, x: float, down: float, text: str, **style: Any) -> None:
    """Text at units from the top left corner of the axes."""
    axes.annotate(text, (0, 1), (x, -down), xycoords="axes fraction", textcoords="offset points", **style)


def _areas(axes: Axes, step: HeldStep, highest: float) -> None:
    levels = list(step.levels())
    width = ACROSS / max(1, len(levels) - 1)
    bottoms = [0] * len(levels)
    for kind, letter in HELD.items():
        tops = [bottom + level[kind] for bottom, level in zip(bottoms, levels, strict=True)]
        if any(level[kind] for level in levels):
            upper, lower = corners(tops, width), corners(bottoms, width)
            x, y = zip(*upper, *reversed(lower), strict=True)
            axes.fill(x, y, facecolor=FILLS[kind], edgecolor=EDGES[kind], linewidth=0.8)
            at = max(range(len(levels)), key=lambda index: tops[index] - bottoms[index])
            thick = (tops[at] - bottoms[at]) / highest * PANEL
            if thick > 2 * TEXT:
                x_of_letter = min(max(at * width, LETTER), ACROSS - LETTER)
                chip = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
                middle = (tops[at] + bottoms[at]) / 2
                axes.text(x_of_letter, middle, letter, ha="center", va="center", bbox=chip)
        bottoms = tops


def corners(values: Sequence[int], width: float) -> list[tuple[float, int]]:
    """The corners of a line that keeps each value until the next, `width` further; no corner within a level stretch."""
    points = [(0.0, values[0])]
    for index, (before, after) in enumerate(itertools.pairwise(values), start=1):
        if before != after:
            points += [(index * width, before), (index * width, after)]
    return [*points, ((len(values) - 1) * width, values[-1])]


def _phases(axes: Axes, step: HeldStep) -> None:
    """Draw a line at the end of each phase, with its name above unless that overlaps the previous name."""
    scale, begin, free = ACROSS / max(1, len(step.events)), 0.0, -1.0
    for name, events in step.phases.items():
        end, width = events * scale, len(name) * TEXT / 2
        axes.axvline(end, color=GRID, linewidth=1.2)
        left = min(max(0.0, (begin + end - width) / 2), ACROSS - width)
        if left > free:
            _text(axes, left + width / 2, -5, name, ha="center")
            free = left + width
        begin = end


@dataclass(frozen=True)
class Segment:
    """Memory from the driver, cut into blocks: (bytes, whether it is in use)."""

    heading: str
    blocks: tuple[tuple[int, bool], ...]

    @property
    def size(self) -> int:
        """Bytes of all its blocks."""
        return sum(size for size, _ in self.blocks)


def segments_height(segments: int) -> float:
    """Height of `draw_segments` in units."""
    return segments * (LINE + BAR + GAP)


def draw_segments(figure: Figure, segments: Sequence[Segment]) -> None:
    """Draw a bar for each segment on one scale: blocks in use in ink, free ones hatched."""
    from matplotlib.patches import Rectangle

    height = segments_height(len(segments))
    axes = plot(figure, EDGE, 0, BLOCKS, height)
    axes.set(xlim=(0, BLOCKS), ylim=(height, 0), xticks=[], yticks=[])
    scale = BLOCKS / max(segment.size for segment in segments)
    for index, segment in enumerate(segments):
        top, left = index * (LINE + BAR + GAP), 0.0
        axes.text(0, top + TEXT, label(segment.heading, 44), weight="bold")
        for size, is_used in segment.blocks:
            width = size * scale
            kind = "used" if is_used else "free"
            looks: dict[str, Any] = {"facecolor": FILLS[kind], "edgecolor": EDGES[kind], "linewidth": 0.8}
            axes.add_patch(Rectangle((left, top + LINE), width, BAR, **looks))
            left += width
