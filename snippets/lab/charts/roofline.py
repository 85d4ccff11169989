"""A roofline as SVG: a mark for each measurement, their numbers along one line, names and values next to it.

Labels cannot cover each other: numbers keep a distance on their line, and a mark that has another above or below it
gets an elbow. It is drawn once for a page and once for a phone, so that its letters are as large there. Lengths are
pixels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from kinetoscope.html import Html
from kinetoscope.trace.units import UNITS, format_value
from snippets.lab.charts.curves import Roof, RooflinePoint, Scale
from snippets.lab.charts.svg import label

WIDTHS = (530, 310)
"""Widths of the drawing for a page and for a phone."""
LETTER = 7.2
"""Approximate width of a letter at 13 px in a wide font."""
LEFT, RIGHT, TOP, TALL = 46, 14, 40, 220
"""Room for the labels beside and above the plot; its height."""
LINE, AXIS = 24, 44
"""From the plot down to the numbers, and from them to the bottom."""
RADIUS, APART, SAME = 9.5, 21.0, 8.0
"""Of a number's circle; least distance of two; distance at which marks stand above each other."""


@dataclass(frozen=True)
class Label:
    """A text in the drawing, and its box."""

    text: str
    left: float
    top: float
    right: float
    bottom: float


@dataclass
class Roofline:
    """One drawing of marks below a roof."""

    points: Sequence[RooflinePoint]
    roof: Roof
    width: int
    labels: list[Label] = field(default_factory=list)
    x: Scale = field(init=False)
    y: Scale = field(init=False)

    def __post_init__(self) -> None:
        """Choose the scales: the ridge and all marks with their spread are inside."""
        intensities = [point.intensity for point in self.points]
        low = min(self.roof.ridge / 8, *intensities) / 2
        high = max(self.roof.ridge * 6, *(2 * intensity for intensity in intensities))
        rates = [rate for point in self.points for rate in point.spread]
        self.x = Scale(low, high, LEFT, self.width - RIGHT)
        self.y = Scale(min(*rates, self.roof(low)) / 1.6, max(*rates, self.roof.flops_per_s) * 1.6, TOP + TALL, TOP)

    @property
    def height(self) -> int:
        """The height of the drawing."""
        return TOP + TALL + LINE + AXIS

    def svg(self, ident: str, title: str, description: str) -> Html:
        """The drawing, with texts for a screen reader; `ident` is the prefix of its ids."""
        self.labels.clear()
        inside = "".join([self._axes(), self._roofs(), *self._marks()])
        box = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}"'
        ident = f"{ident}-{self.width}"
        read = (
            f'<title id="{ident}-title">{escape(one_line(title))}</title>'
            f'<desc id="{ident}-desc">{escape(one_line(description))}</desc>'
        )
        described = f'role="img" aria-labelledby="{ident}-title {ident}-desc"'
        return Html(f'<svg class="w{self.width}" {box} {described}>{read}{inside}</svg>')

    def _text(self, x: float, y: float, text: str, *, anchor: str = "middle", slope: float = 0.0) -> str:
        """A text at its baseline; `slope` rotates it by that many degrees around its middle."""
        length = len(text) * LETTER
        left = x - {"start": 0.0, "middle": length / 2, "end": length}[anchor]
        middle, across, down = left + length / 2, length / 2, 8.0
        turn = math.radians(abs(slope))
        half = across * math.cos(turn) + down * math.sin(turn), across * math.sin(turn) + down * math.cos(turn)
        center = y - 4.5
        self.labels.append(Label(text, middle - half[0], center - half[1], middle + half[0], center + half[1]))
        turned = f' transform="rotate({slope:.1f} {x:.1f} {center:.1f})"' if slope else ""
        ends = "" if anchor == "start" else f' text-anchor="{anchor}"'
        return f'<text x="{x:.1f}" y="{y:.1f}"{ends}{turned}>{escape(text)}</text>'

    def _axes(self) -> str:
        """The unit, lines at round rates, and round intensities below the numbers."""
        scale, unit = next((step for step in UNITS["flop/s"] if step[0] <= self.roof.flops_per_s), UNITS["flop/s"][-1])
        parts = [self._text(0, 13, unit, anchor="start")]
        for rate in self.y.ticks(5):
            y = self.y(rate)
            parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{self.width - RIGHT}"/>')
            parts.append(self._text(LEFT - 6, y + 4.5, f"{rate / scale:,g}", anchor="end"))
        bottom = self.height - AXIS + 22
        for intensity in self.x.ticks(5 if self.width > 400 else 4):
            x = self.x(intensity)
            text = format_value(int(intensity)) if intensity >= 1 else f"{intensity:g}"
            parts.append(f'<path class="grid" d="M{x:.1f} {TOP}V{TOP + TALL}"/>')
            parts.append(self._text(min(x, self.width - len(text) * LETTER / 2), bottom + 2, text))
        parts.append(self._text(self.width, self.height - 4, "FLOP per byte", anchor="end"))
        return "".join(parts)

    def _roofs(self) -> str:
        """The slope of the memory's rate and the level of the compute rate, each with its name along it."""
        (left, right), ridge = (self.x.low, self.x.high), self.roof.ridge
        start, turn = (self.x(left), self.y(self.roof(left))), (self.x(ridge), self.y(self.roof(ridge)))
        end = self.x(right), self.y(self.roof(right))
        slope = math.degrees(math.atan2(turn[1] - start[1], turn[0] - start[0]))
        along = math.hypot(turn[0] - start[0], turn[1] - start[1])
        memory = _fitting(along, self.roof.memory, format_value(self.roof.bytes_per_s, "bytes/s"))
        x, y = (start[0] + turn[0]) / 2, (start[1] + turn[1]) / 2
        aside = math.radians(slope - 90)
        compute = _fitting(self.width - RIGHT - LEFT, self.roof.compute, format_value(self.roof.flops_per_s, "flop/s"))
        return (
            f'<path class="roof copy" d="M{start[0]:.1f} {start[1]:.1f}L{turn[0]:.1f} {turn[1]:.1f}"/>'
            f'<path class="roof gemm" d="M{turn[0]:.1f} {turn[1]:.1f}H{end[0]:.1f}"/>'
            + self._text(x + 12 * math.cos(aside), y + 12 * math.sin(aside) + 4.5, memory, slope=slope)
            + self._text(end[0], end[1] - 9, compute, anchor="end")
        )

    def _marks(self) -> list[str]:
        """Each mark with its spread, the distance to its roof, and the line down to its number."""
        places = [(self.x(point.intensity), self.y(point.rate)) for point in self.points]
        numbers = numbers_apart(places, LEFT + RADIUS, self.width - RADIUS - 1)
        line = TOP + TALL + LINE
        parts = []
        for index, (point, (x, y), at) in enumerate(zip(self.points, places, numbers, strict=True), 1):
            roof, (slow, fast) = self.y(self.roof(point.intensity)), (self.y(rate) for rate in point.spread)
            elbow = f"L{at:.1f} {y + 0.5 * abs(at - x):.1f}" if abs(at - x) > 0.5 else ""
            above = f'<path class="free" d="M{x:.1f} {y:.1f}V{roof:.1f}"/>' if roof < y else ""
            parts.append(
                f'<path class="lead" d="M{x:.1f} {y:.1f}{elbow}V{line - RADIUS:.1f}"/>{above}'
                f'<path class="spread" d="M{x:.1f} {slow:.1f}V{fast:.1f}"/>'
            )
            parts.append(f'<circle class="number" cx="{at:.1f}" cy="{line}" r="{RADIUS}"/>')
            parts.append(f'<text class="number" x="{at:.1f}" y="{line + 4.5:.1f}" text-anchor="middle">{index}</text>')
            box = at - RADIUS, line - RADIUS, at + RADIUS, line + RADIUS
            self.labels.append(Label(str(index), *box))
        parts += [f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>' for x, y in places]
        return parts


def numbers_apart(places: Sequence[tuple[float, float]], low: float, high: float) -> list[float]:
    """The places of the marks' numbers on their line: near their marks, in their order, and apart.

    Of marks above each other the lowest is in the middle, so that no line crosses another.
    """
    order = _outward(sorted(range(len(places)), key=lambda index: places[index][0]), places)
    apart = min(APART, (high - low) / max(1, len(places) - 1))
    groups: list[tuple[float, int]] = []  # middle and size of numbers that touch each other
    for index in order:
        middle, size = min(max(places[index][0], low), high), 1
        while groups and middle - apart * (size - 1) / 2 < groups[-1][0] + apart * (groups[-1][1] + 1) / 2:
            before, more = groups.pop()
            middle, size = (before * more + middle * size) / (more + size), more + size
            half = apart * (size - 1) / 2
            middle = min(max(middle, low + half), high - half)
        groups.append((middle, size))
    line = [middle + apart * (rank - (size - 1) / 2) for middle, size in groups for rank in range(size)]
    return [x for _, x in sorted(zip(order, line, strict=True))]


def _outward(order: Sequence[int], places: Sequence[tuple[float, float]]) -> list[int]:
    """The order from left to right; among marks at about the same place, the lowest in the middle."""
    arranged: list[int] = []
    rest = list(order)
    while rest:
        same = [index for index in rest if places[index][0] - places[rest[0]][0] < SAME]
        rest = rest[len(same) :]
        row: list[int] = []
        for rank, index in enumerate(sorted(same, key=lambda index: -places[index][1])):
            row.insert(0 if rank % 2 else len(row), index)
        arranged += row
    return arranged


def _fitting(length: float, name: str, rate: str) -> str:
    """A name with its rate, shortened to a length; only the rate if nothing else fits."""
    letters = int(length / LETTER) - len(rate) - 2
    return f"{label(name, min(24, letters))}: {rate}" if letters >= 4 else rate


def one_line(text: str) -> str:
    """Text for an invisible element: its whole length, without control characters."""
    return label(text, len(text))


def roofline_html(
    points: Mapping[str, RooflinePoint],
    roof: Roof,
    shares: Sequence[str | None],
    *,
    ident: str,
    title: str,
    description: str,
) -> Html:
    """The drawings, and next to them a list: number, name, rate, time and share of the roof of each mark."""
    pictures = [Roofline(list(points.values()), roof, width) for width in WIDTHS]
    drawings = "".join(picture.svg(ident, title, description) for picture in pictures)
    rows = [_entry(name, point, share, roof) for (name, point), share in zip(points.items(), shares, strict=True)]
    return Html(f'<div class="roofline">{drawings}<ol>{"".join(rows)}</ol></div>')


def _entry(name: str, point: RooflinePoint, share: str | None, roof: Roof) -> str:
    kind = "gemm" if point.intensity > roof.ridge else "copy"
    percent = 100 * point.rate / roof(point.intensity)
    bar = f'<svg class="{kind}" aria-hidden="true"><rect width="{percent:.1f}%" height="100%"/></svg>' if share else ""
    time = format_value(point.timing.median_us, "us")
    return (
        f"<li><span>{escape(label(name, 40))}</span> <span>{format_value(point.rate, 'flop/s')}"
        f"<small>{time}</small></span> <span>{share or ''}{bar}</span></li>"
    )
