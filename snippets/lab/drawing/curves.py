"""Curves of the book's charts, on logarithmic scales: a roofline, and the regimes of a sweep.

Lengths are units of the drawing, from the top left corner of the axes. Series differ by color and by marker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from snippets.lab.drawing.svg import (
    BAND,
    INK,
    LETTER,
    MARKERS,
    PAPER,
    SERIES,
    TEXT,
    WIDTH,
    canvas,
    columns,
    label,
    plain,
    plot,
    rows,
)
from snippets.lab.recording.ceilings import with_layout
from snippets.lab.recording.schema import Timing
from snippets.lab.trace.units import UNITS, format_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EDGE = 3
LINE = TEXT + 6
AXIS = 42
"""Height of an axis's tick labels and title."""
TALL, PANEL, GAP = 250, 120, 12
NAME = TEXT + 4


@dataclass(frozen=True)
class Scale:
    """A logarithmic scale from `low` at `start` to `high` at `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The position of a value."""
        return self.start + (self.end - self.start) * math.log(value / self.low) / math.log(self.high / self.low)

    def ticks(self, limit: int) -> list[float]:
        """Round values from low to high, at most `limit`."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        inside: list[float] = []
        for steps, apart in [((1, 2, 5), 1), ((1, 3), 1), *(((1,), apart) for apart in range(1, last - first + 1))]:
            values = (step * 10.0**power for power in range(first, last + 1, apart) for step in steps)
            inside = [value for value in values if self.low <= value <= self.high]
            if len(inside) <= limit:
                break
        return inside


@dataclass(frozen=True)
class RooflinePoint:
    """A step on a roofline: its work and its timing."""

    flops: int
    bytes: int
    timing: Timing

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        """FLOP/s at the median."""
        return self.flops / self.timing.median_us * 1e6

    @property
    def spread(self) -> tuple[float, float]:
        """FLOP/s at the slower and the faster end of the timing's spread."""
        fast, slow = self.timing.spread_us
        return self.flops / slow * 1e6, self.flops / fast * 1e6


@dataclass(frozen=True)
class Roof:
    """Two ceilings of a device: FLOP/s and bytes/s, and the names of their measurements."""

    flops_per_s: float
    compute: str
    bytes_per_s: float
    memory: str

    def __call__(self, intensity: float) -> float:
        """The upper limit in FLOP/s at this intensity."""
        return min(self.flops_per_s, intensity * self.bytes_per_s)

    @property
    def ridge(self) -> float:
        """FLOP per byte above which compute is the limit."""
        return self.flops_per_s / self.bytes_per_s

    def __str__(self) -> str:
        memory, compute = format_value(self.bytes_per_s, "bytes/s"), format_value(self.flops_per_s, "flop/s")
        turn = f"up to {format_value(self.ridge)} FLOP per byte"
        return f"{memory} ({self.memory}) {turn}, then {compute} ({with_layout(self.compute)})"


LEFT, ASIDE = 44, 22
"""Width of the tick labels left of the plot; distance from a marker to its name."""


def roofline_height(points: int) -> float:
    """Height of `draw_roofline` in units: each of `points` steps needs a line for its name."""
    return LINE + max(TALL, 30 * points) + AXIS


def draw_roofline(figure: Figure, points: Mapping[str, RooflinePoint], roof: Roof) -> None:
    """Draw FLOP/s over FLOP per byte: a roof that rises with the memory rate up to the compute rate, and the steps."""
    width, height = WIDTH - LEFT - EDGE, roofline_height(len(points)) - LINE - AXIS
    rates = [rate for point in points.values() for rate in point.spread]
    low = min(roof.ridge / 8, *(point.intensity for point in points.values())) / 2
    x = Scale(low, max(roof.ridge * 8, *(2 * point.intensity for point in points.values())), 0, width)
    y = Scale(min(*rates, roof(x.low)) / 2, max(*rates, roof.flops_per_s) * 4, height, 0)
    axes = plot(figure, LEFT, LINE, width, height)
    axes.set(xlim=(0, width), ylim=(height, 0))
    scale, unit = next((step for step in UNITS["flop/s"] if step[0] <= roof.flops_per_s), UNITS["flop/s"][-1])
    columns(
        axes,
        [(x(value), format_value(int(value)) if value >= 1 else f"{value:g}") for value in x.ticks(5)],
        "FLOP per byte",
    )
    rows(axes, [(y(value), f"{value / scale:,g}") for value in y.ticks(6)])
    axes.text(EDGE - LEFT, -6, unit)
    corners = (x.low, roof.ridge, x.high)
    axes.plot([x(corner) for corner in corners], [y(roof(corner)) for corner in corners], color=INK, linewidth=2.2)
    compute = f"{label(roof.compute, 24)}: {format_value(roof.flops_per_s, 'flop/s')}"
    axes.text(width, y(roof.flops_per_s) - 6, compute, ha="right")
    memory = f"{label(roof.memory, 16)}: {format_value(roof.bytes_per_s, 'bytes/s')}"
    end = max(x(math.sqrt(x.low * roof.ridge)), len(memory) * LETTER)
    axes.text(end - 4, y(roof(x.low) * (x.high / x.low) ** (end / width)) - 4, memory, ha="right")
    _points(axes, points, x, y, under=y(roof.flops_per_s))


def _named(name: str, point: RooflinePoint) -> str:
    return f"{label(name, 24)}: {format_value(point.rate, 'flop/s')}"


def _points(axes: Axes, points: Mapping[str, RooflinePoint], x: Scale, y: Scale, under: float) -> None:
    """Draw each step as a marker with its spread; name and rate have their own line below `under`, beside it."""
    ordered = sorted(enumerate(points.items()), key=lambda item: -item[1][1].rate)
    lines = _lines_apart([y(point.rate) for _, (_, point) in ordered], under + NAME, y.start)
    for (index, (name, point)), line in zip(ordered, lines, strict=True):
        across, down, color = x(point.intensity), y(point.rate), SERIES[index % len(SERIES)]
        text = _named(name, point)
        aside = min(across + ASIDE, x.end - LETTER * len(text))
        is_before = aside <= across and abs(line - down) < NAME and across - ASIDE > LETTER * len(text)
        if is_before:  # no room right of the marker
            aside = across - ASIDE
        end = (aside + 4, line) if is_before else (aside - 4, line) if aside > across else (across, line - TEXT)
        axes.plot([across, end[0]], [down, end[1]], color=color, linewidth=1)
        axes.plot([across, across], [y(rate) for rate in point.spread], color=color, linewidth=2)
        axes.plot([across], [down], MARKERS[index % len(MARKERS)], color=color, markeredgecolor=PAPER, markersize=9)
        mark = axes.text(aside, line + TEXT / 3, text, ha="right" if is_before else "left")
        if is_before:  # the text may cover the roof
            mark.set_bbox({"facecolor": PAPER, "linewidth": 0, "pad": 1})


def _lines_apart(wanted: Sequence[float], under: float, bottom: float) -> list[float]:
    """Place lines of text between two heights, each as close as possible to its wanted height, without overlap."""
    lines: list[float] = []
    for height in wanted:
        lines.append(max(height, (lines[-1] if lines else under) + NAME))
    return [min(line, bottom - NAME * left) for line, left in zip(lines, range(len(lines), 0, -1), strict=True)]


@dataclass(frozen=True)
class Sweep:
    """Steps of growing size: GPU time, the CPU's enqueue time, and the time per step of a Python loop."""

    sizes: tuple[float, ...]
    interleaved: tuple[Timing, ...]
    enqueue: tuple[Timing, ...]
    from_python: tuple[Timing, ...]

    @property
    def overhead_bound(self) -> int:
        """Number of sizes, from the smallest, up to the last at which the CPU is slower than the GPU."""
        slower = [cpu.median_us > gpu.median_us for cpu, gpu in zip(self.enqueue, self.interleaved, strict=True)]
        return max((index for index, is_slower in enumerate(slower, 1) if is_slower), default=0)

    @property
    def crossing(self) -> float:
        """The size of the last crossing of the CPU and GPU lines on logarithmic scales; else the first or last size."""
        count = self.overhead_bound
        if count in (0, len(self.sizes)):
            return self.sizes[max(0, count - 1)]
        before, after = (
            math.log(self.enqueue[index].median_us / self.interleaved[index].median_us) for index in (count - 1, count)
        )
        share = before / (before - after)
        return math.exp((1 - share) * math.log(self.sizes[count - 1]) + share * math.log(self.sizes[count]))

    def regime(self, unit: str) -> str:
        """A sentence: up to how many of `unit` the step waits for the CPU."""
        if not self.overhead_bound:
            return "never overhead-bound"
        if self.overhead_bound == len(self.sizes):
            return "overhead-bound throughout"
        return f"overhead-bound up to {self.sizes[self.overhead_bound - 1]:,.0f} {unit}"


LINES = (("interleaved", "on the GPU"), ("enqueue", "on the CPU"), ("from_python", "from Python"))
SIDE = 58


def regimes_height(panels: int) -> float:
    """Height of `draw_regimes` in units."""
    return 2 * LINE + panels * (GAP + LINE + PANEL) + AXIS


def draw_regimes(figure: Figure, sweeps: Mapping[str, Sweep], axis: str) -> None:
    """Draw a panel for each sweep on the same scales: time over size, with a band as wide as the spread."""
    width = WIDTH - SIDE - 20
    sizes = sorted({size for sweep in sweeps.values() for size in sweep.sizes})
    timings = [timing for sweep in sweeps.values() for name, _ in LINES for timing in getattr(sweep, name)]
    bounds = [us for timing in timings for us in timing.spread_us]
    x = Scale(sizes[0], sizes[-1], 8, width - 8)
    y = Scale(min(bounds) / 1.4, max(bounds) * 1.4, PANEL, 0)
    _key(canvas(figure, 0, 2 * LINE))
    for index, (heading, sweep) in enumerate(sweeps.items()):
        axes = plot(figure, SIDE, 2 * LINE + index * (GAP + LINE + PANEL) + GAP + LINE, width, PANEL)
        axes.set(xlim=(0, width), ylim=(PANEL, 0))
        axes.text(EDGE - SIDE, -6, f"{label(heading, 24)}: {sweep.regime(axis)}", weight="bold")
        is_last = index == len(sweeps) - 1
        labels = [(x(size), f"{size:,.0f}" if is_last else "") for size in sizes]
        columns(axes, _apart(labels), axis if is_last else "")
        rows(axes, [(y(us), plain(us, "us")) for us in y.ticks(4)])
        if sweep.overhead_bound:
            end = width if sweep.overhead_bound == len(sweep.sizes) else x(sweep.crossing)
            axes.axvspan(0, end, color=BAND, linewidth=0, zorder=0)
        _lines(axes, sweep, x, y)


def _apart(ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Drop each tick label that would overlap a later one: the end of a scale needs its label."""
    free, kept = math.inf, []
    for index, text in reversed(ticks):
        half = len(text) * LETTER / 2
        fits = index + half <= free
        kept.append((index, text if fits else ""))
        free = index - half - LETTER if fits else free
    return kept[::-1]


def _lines(axes: Axes, sweep: Sweep, x: Scale, y: Scale) -> None:
    across = [x(size) for size in sweep.sizes]
    for index, (name, _) in reversed(list(enumerate(LINES))):
        timings: Sequence[Timing] = getattr(sweep, name)
        low, high = zip(*(timing.spread_us for timing in timings), strict=True)
        around = [*map(y, low), *map(y, reversed(high))]
        axes.fill([*across, *reversed(across)], around, color=SERIES[index], alpha=0.3, linewidth=0)
        axes.plot(across, [y(timing.median_us) for timing in timings], **_mark(index))


def _mark(index: int) -> dict[str, Any]:
    """Marker style: filled on solid lines for CPU and GPU, the two limits; open on dots for the resulting time."""
    is_open = index == 2
    return {
        "color": SERIES[index],
        "marker": MARKERS[index],
        "linestyle": ":" if is_open else "-",
        "linewidth": 1.8,
        "markersize": 11 if is_open else 7,
        "markeredgewidth": 1.6 if is_open else 0.8,
        "markerfacecolor": "none" if is_open else SERIES[index],
    }


def _key(strip: Axes) -> None:
    for left, index in ((EDGE, 0), (EDGE + 128, 1), (EDGE + 256, 2)):
        strip.plot([left + 1, left + 12, left + 23], [TEXT - 4] * 3, markevery=[1], **_mark(index))
        strip.text(left + 30, TEXT, LINES[index][1])
    strip.fill([EDGE, EDGE + 25, EDGE + 25, EDGE], [LINE + 1, LINE + 1, LINE + TEXT + 1, LINE + TEXT + 1], color=BAND)
    strip.text(EDGE + 30, LINE + TEXT, "overhead-bound: the CPU takes longer than the GPU")
