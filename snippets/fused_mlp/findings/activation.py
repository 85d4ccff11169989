"""How exact the activation is: a sigmoid against one rough instruction for tanh, over all bf16 inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kinetoscope.html import Html, note, table
from snippets.fused_mlp.findings.ideas import step_ratio
from snippets.fused_mlp.findings.probes import probed
from snippets.lab.cache import code_key
from snippets.lab.charts.curves import Scale
from snippets.lab.charts.numbers import chart_id, framed, numbers_caption
from snippets.lab.charts.svg import EDGES, TEXT, WIDTH, canvas, columns, draw, plot, rows
from snippets.lab.finding import Device, Figure, at_least, at_most, claim, largest
from snippets.lab.page import show as show

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

FORMS = {
    "gelu_tanh": "GELU, as a sigmoid",
    "rough_gelu_tanh": "GELU, one rough tanh",
    "silu": "SiLU, as a sigmoid",
    "rough_silu": "SiLU, one rough tanh",
    "gelu": "GELU, by erf",
}
"""Form in the recording -> its name on the page."""
EXACT, ROUGH = ("gelu_tanh", "silu"), ("rough_gelu_tanh", "rough_silu")
DRAWN = ("gelu_tanh", "rough_gelu_tanh")
ROUNDING = 0.5
"""The largest error of one rounding, in units of the result's last place in bf16."""
WHOLE = 128
"""Of these units, where an error is as large as the result: bf16 has eight bits, of which the first is 1."""
SIZES = 2.0**-6, 16.0
"""The inputs that the chart shows: for smaller ones GELU is half of z, for larger ones zero."""
LEAST_ERROR, LARGEST_ERROR = 1e-5, 1e3
_SIDE, _PANEL, _LINE, _AXIS = 58, 150, TEXT + 6, 42
_LOOKS: Mapping[str, Mapping[str, Any]] = {
    "gelu_tanh": {"color": EDGES["gpu"], "marker": "o", "markersize": 6},
    "rough_gelu_tanh": {"color": EDGES["call"], "marker": "s", "markersize": 7, "markerfacecolor": "none"},
}
_DASHED: Mapping[str, Any] = {"color": EDGES["gpu"], "linewidth": 1.2, "linestyle": "--"}


class Range(NamedTuple):
    """All inputs between two powers of two, and the largest error among them, in units of the last place in bf16."""

    least: float
    largest: float
    error: float

    @property
    def sizes(self) -> tuple[float, float]:
        """The least and the largest |z|."""
        low, high = sorted((abs(self.least), abs(self.largest)))
        return low, high


def errors(device: Device, form: str) -> list[Range]:
    """The errors of one form, over all bf16 inputs."""
    found = probed(device["fused_mlp/activation_errors"], "forms", form)
    return [Range(*map(float, one)) for one in found]


def negative(device: Device, form: str) -> list[Range]:
    """The errors of negative inputs, the smallest |z| first."""
    found = [one for one in errors(device, form) if one.largest < 0]
    return sorted(found, key=lambda one: one.sizes)


def worst(device: Device, form: str) -> Figure:
    """The largest error of a form."""
    return Figure(max(one.error for one in errors(device, form)), origin=f"fused_mlp/activation_errors, {form}")


@claim("F95", at_most(ROUNDING / 100), scope="this-gpu")
def error_as_sigmoid(device: Device) -> Figure:
    """GELU and SiLU with a sigmoid have errors of at most 1 % of the largest rounding error at every bf16 input, apart
    from errors below 2^-119."""
    return largest(*(worst(device, form) for form in EXACT))


@claim("F96", at_least(WHOLE), scope="this-gpu")
def error_of_rough_tanh(device: Device) -> Figure:
    """GELU with one rough tanh has an error as large as its result at some inputs."""
    return worst(device, "rough_gelu_tanh")


@claim("F109", at_most(1.05), scope="timing")
def cost_of_right_digits(device: Device) -> Figure:
    """The ping-pong kernel takes at most 5 % longer with GELU as a sigmoid than with GELU by one rough tanh."""
    return step_ratio(device, "activation", "gelu_tanh", "rough_gelu_tanh")


def rough_from(device: Device) -> Figure:
    """The least |z| from which one rough tanh adds a larger error to GELU than rounding to bf16."""
    found = next(one for one in negative(device, "rough_gelu_tanh") if one.error > ROUNDING)
    return Figure(found.sizes[0], origin="fused_mlp/activation_errors")


def activation_chart(device: Device) -> Html:
    """The largest error of both forms of GELU over the size of negative inputs; all forms in the numbers."""
    found = {form: [one for one in negative(device, form) if SIZES[0] <= one.sizes[0] < SIZES[1]] for form in DRAWN}
    caption = "Largest error of GELU over all negative bf16 inputs"
    drawing = draw(
        (len(DRAWN) + 1) * _LINE + _PANEL + _AXIS,
        lambda picture: _paint(picture, found),
        ident=chart_id("chart", device, caption),
        title=caption,
        description="; ".join(f"{FORMS[form]}: {worst(device, form).text} units at most" for form in DRAWN) + ".",
        data=(found, code_key(Path(__file__))),
    )
    ranges = zip(*(negative(device, form) for form in FORMS), strict=True)
    numbers = [["{:.3g} to {:.3g}".format(*row[0].sizes), *(f"{one.error:.1e}" for one in row)] for row in ranges]
    unit = (
        "The unit is the value of the last digit of the exact result in bf16. Rounding adds an error of at most half a "
        "unit. Errors up to 2^-119 count as zero, because the GPU flushes a sigmoid below 2^-126 to zero."
    )
    folded = table(numbers_caption(caption), ["|z|", *FORMS.values()], numbers)
    return Html(framed(caption, drawing, folded) + note(unit))


def _paint(picture: Picture, found: Mapping[str, Sequence[Range]]) -> None:
    """The key above, both scales logarithmic."""
    width, top = WIDTH - _SIDE - 20, (len(found) + 1) * _LINE
    every = [size for ranges in found.values() for one in ranges for size in one.sizes]
    x, y = Scale(min(every), max(every), 8, width - 8), Scale(LEAST_ERROR, LARGEST_ERROR, _PANEL, 0)
    key = canvas(picture, 0, top)
    for index, form in enumerate(found):
        line = index * _LINE + TEXT
        key.plot([4, 15, 26], [line - 4] * 3, markevery=[1], **_LOOKS[form])
        key.text(34, line, FORMS[form])
    line = len(found) * _LINE + TEXT
    key.plot([4, 26], [line - 4] * 2, **_DASHED)
    key.text(34, line, "rounding to bf16")
    axes = plot(picture, _SIDE, top, width, _PANEL)
    axes.set(xlim=(0, width), ylim=(_PANEL, 0))
    columns(axes, [(x(tick), f"{tick:g}") for tick in x.ticks(6)], "size of the input, |z|")
    rows(axes, [(y(tick), f"{tick:g}") for tick in (1e-4, 1e-2, 1, 100)])
    axes.plot([0, width], [y(ROUNDING)] * 2, **_DASHED)
    for form, ranges in found.items():
        across = [x(math.sqrt(math.prod(one.sizes))) for one in ranges]
        up = [y(min(max(one.error, LEAST_ERROR), LARGEST_ERROR)) for one in ranges]
        axes.plot(across, up, linewidth=1.8, **_LOOKS[form])
