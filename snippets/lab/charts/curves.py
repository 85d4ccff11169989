"""Draw the regimes of a sweep; logarithmic scales, and the parts of a roofline.

Lengths are units of the drawing, from the top left corner of the axes. Series differ by color and by marker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinetoscope.trace.units import format_value
from snippets.lab.charts.svg import (
    BAND,
    EDGES,
    LETTER,
    TEXT,
    WIDTH,
    canvas,
    columns,
    label,
    plain,
    plot,
    rows,
)
from snippets.lab.finding.crossing import crossing
from snippets.lab.recording.ceilings import with_layout
from snippets.lab.recording.schema import Timing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EDGE = 3
LINE = TEXT + 6
AXIS = 42
"""Height of an axis's tick labels and title."""
PANEL, GAP = 120, 12


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


@dataclass(frozen=True)
class Sweep:
    """Steps of growing size: GPU time, the CPU's enqueue time, and the time per step of a Python loop."""

    sizes: tuple[float, ...]
    interleaved: tuple[Timing, ...]
    enqueue: tuple[Timing, ...]
    from_python: tuple[Timing, ...]
    turn: float | None = None
    """The size at which the GPU's own limit turns from memory to arithmetic."""

    @property
    def overhead_bound(self) -> int:
        """Number of sizes, from the smallest, up to the last at which the CPU is slower than the GPU."""
        slower = [cpu.median_us > gpu.median_us for cpu, gpu in zip(self.enqueue, self.interleaved, strict=True)]
        return max((index for index, is_slower in enumerate(slower, 1) if is_slower), default=0)

    @property
    def crossing(self) -> float:
        """The size of the last crossing of the CPU and GPU lines on logarithmic scales; else the first or last size."""
        cpu, gpu = ([timing.median_us for timing in timings] for timings in (self.enqueue, self.interleaved))
        found = crossing(self.sizes, cpu, gpu)
        return found if found is not None else self.sizes[max(0, self.overhead_bound - 1)]

    def regime(self, unit: str) -> str:
        """A sentence: up to how many of `unit` the step waits for the CPU."""
        if not self.overhead_bound:
            return "never overhead-bound"
        if self.overhead_bound == len(self.sizes):
            return "overhead-bound throughout"
        return f"overhead-bound up to {self.sizes[self.overhead_bound - 1]:,.0f} {unit}"


LINES = (("interleaved", "on the GPU"), ("enqueue", "on the CPU"), ("from_python", "from Python"))
LOOKS = ((EDGES["gpu"], "o"), (EDGES["call"], "^"), (EDGES["call"], "s"))
"""Color and marker of each line."""
TURN: Mapping[str, Any] = {"color": EDGES["gpu"], "linewidth": 1.2, "linestyle": "--"}
SIDE = 58


def regimes_height(sweeps: Mapping[str, Sweep]) -> float:
    """Height of `draw_regimes` in units."""
    return _key_lines(sweeps) * LINE + len(sweeps) * (GAP + 2 * LINE + PANEL) + AXIS


def _key_lines(sweeps: Mapping[str, Sweep]) -> int:
    return 4 if any(sweep.turn is not None for sweep in sweeps.values()) else 3


def draw_regimes(figure: Figure, sweeps: Mapping[str, Sweep], axis: str) -> None:
    """Draw a panel for each sweep on the same scales: time over size, with a band as wide as the spread."""
    width, top = WIDTH - SIDE - 20, _key_lines(sweeps) * LINE
    sizes = sorted({size for sweep in sweeps.values() for size in sweep.sizes})
    timings = [timing for sweep in sweeps.values() for name, _ in LINES for timing in getattr(sweep, name)]
    bounds = [us for timing in timings for us in timing.spread_us]
    x = Scale(sizes[0], sizes[-1], 8, width - 8)
    y = Scale(min(bounds) / 1.4, max(bounds) * 1.4, PANEL, 0)
    _key(canvas(figure, 0, top))
    for index, (heading, sweep) in enumerate(sweeps.items()):
        axes = plot(figure, SIDE, top + index * (GAP + 2 * LINE + PANEL) + GAP + 2 * LINE, width, PANEL)
        axes.set(xlim=(0, width), ylim=(PANEL, 0))
        axes.text(EDGE - SIDE, -6 - LINE, label(heading, 40), weight="bold")
        axes.text(EDGE - SIDE, -6, sweep.regime(axis))
        is_last = index == len(sweeps) - 1
        labels = [(x(size), f"{size:,.0f}" if is_last else "") for size in sizes]
        columns(axes, _apart(labels), axis if is_last else "")
        rows(axes, [(y(us), plain(us, "us")) for us in y.ticks(4)])
        if sweep.overhead_bound:
            end = width if sweep.overhead_bound == len(sweep.sizes) else x(sweep.crossing)
            axes.axvspan(0, end, color=BAND, linewidth=0, zorder=0)
        if sweep.turn is not None:
            axes.axvline(x(sweep.turn), **TURN)
        _lines(axes, sweep, x, y)


def _apart(ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Drop each tick label that would overlap a later one: the end of a scale needs its label."""
    free, kept = math.inf, []
    for index, text in reversed(ticks):
        half = len(text) * LETTER / 2
        fits = index + half <= free
        kept.append((index, text if fits else ""))
        free = index - half - 2 * LETTER if fits else free
    return kept[::-1]


def _lines(axes: Axes, sweep: Sweep, x: Scale, y: Scale) -> None:
    across = [x(size) for size in sweep.sizes]
    for index, (name, _) in reversed(list(enumerate(LINES))):
        timings: Sequence[Timing] = getattr(sweep, name)
        low, high = zip(*(timing.spread_us for timing in timings), strict=True)
        around = [*map(y, low), *map(y, reversed(high))]
        axes.fill([*across, *reversed(across)], around, color=LOOKS[index][0], alpha=0.25, linewidth=0)
        axes.plot(across, [y(timing.median_us) for timing in timings], **_mark(index))


def _mark(index: int) -> dict[str, Any]:
    """Marker style: filled on solid lines for CPU and GPU, the two limits; open on dots for the resulting time."""
    is_open = index == 2
    return {
        "color": LOOKS[index][0],
        "marker": LOOKS[index][1],
        "linestyle": ":" if is_open else "-",
        "linewidth": 1.8,
        "markersize": 11 if is_open else 7,
        "markeredgewidth": 1.6 if is_open else 0.8,
        "markerfacecolor": "none" if is_open else LOOKS[index][0],
    }


def _key(strip: Axes) -> None:
    for index, (left, row) in enumerate(((EDGE, 0), (EDGE + 150, 0), (EDGE, 1))):
        line = row * LINE + TEXT
        strip.plot([left + 1, left + 12, left + 23], [line - 4] * 3, markevery=[1], **_mark(index))
        strip.text(left + 30, line, LINES[index][1])
    top, bottom = 2 * LINE + 1, 2 * LINE + TEXT + 1
    strip.fill([EDGE, EDGE + 25, EDGE + 25, EDGE], [top, top, bottom, bottom], color=BAND)
    strip.text(EDGE + 30, 2 * LINE + TEXT, "overhead-bound: the CPU is slower")
    if strip.get_ylim()[0] > 3 * LINE:
        strip.plot([EDGE + 12, EDGE + 12], [3 * LINE + 1, 3 * LINE + TEXT + 1], **TURN)
        strip.text(EDGE + 30, 3 * LINE + TEXT, "the GPU's limit: memory before, arithmetic after")
