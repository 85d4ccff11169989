"""The picture of a shared link: the name of the book above the forward pass of its home page."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kinetoscope.timeline.strip import Scale, selected
from kinetoscope.trace.lanes import Slice
from snippets.index.findings.waits import passes
from snippets.lab.finding import Device

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 1200, 630
"""In pixels: what sites that show a link as a card ask for."""
PROMISE = "Read a trace, and know what\nyour GPU is waiting for"
COLORS = {
    "op": ("#e9ecf1", "#7d8796"),
    "call": ("#b9c1cd", "#5d6776"),
    "gemm": ("#a9ccf8", "#1d5fb8"),
    "pointwise": ("#ffe7c4", "#a85a00"),
    "copy": ("#d5f0dc", "#1b6b3a"),
    "fill": ("#d5f0dc", "#1b6b3a"),
    "other": ("#eee3fa", "#6b3fa0"),
}
"""Kind of a slice -> fill and edge, as assets/css/drawing.css has them on paper."""
_ROWS = ((2.2, 0.7), (1.35, 0.5), (0.0, 0.9))
"""Bottom and height of operators, calls and the GPU lane."""


def card_png(device: Device, name: str) -> bytes:
    """The picture as PNG. Raises `NotRecorded`.

    Args:
        device: whose forward pass it shows.
        name: the name of the book.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    _, many = passes(device)
    rows = selected(many.step, Scale(many.begin_us, many.span_us))
    with style.context("default", after_reset=True):
        figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100, facecolor="#ffffff")
        figure.text(0.06, 0.86, name, fontsize=26, color="#4051b5", fontweight="bold")
        figure.text(0.06, 0.56, PROMISE, fontsize=40, color="#21252b", fontweight="bold", linespacing=1.25)
        axes = figure.add_axes((0.06, 0.14, 0.88, 0.34))
        axes.set(xlim=(many.begin_us, many.begin_us + 1.02 * many.span_us), ylim=(-0.2, 3.2))
        axes.axis("off")
        for slices, row in zip(rows, _ROWS, strict=True):
            _draw(axes, slices, row)
        figure.text(0.06, 0.06, many.timed.environment.device, fontsize=18, color="#5a5f66")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _draw(axes: Axes, slices: Sequence[Slice], row: tuple[float, float]) -> None:
    for each in slices:
        fill, edge = COLORS[each.kind]
        hatch = "////" if each.kind == "pointwise" else None
        span = [(each.start_us, each.duration_us)]
        axes.broken_barh(span, row, facecolor=fill, edgecolor=edge, linewidth=2, hatch=hatch)
