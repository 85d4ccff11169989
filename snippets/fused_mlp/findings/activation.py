"""How exact the activation is: a sigmoid beside one rough instruction for tanh, over all bf16 inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from snippets.fused_mlp.findings.ideas import step_ratio
from snippets.fused_mlp.findings.probes import probed
from snippets.lab.cache import code_key
from snippets.lab.drawing.curves import Scale
from snippets.lab.drawing.numbers import chart_id, framed, numbers_caption
from snippets.lab.drawing.svg import EDGES, TEXT, WIDTH, canvas, columns, draw, plot, rows
from snippets.lab.finding import Device, Figure, at_least, at_most, claim, largest
from snippets.lab.html import Html, table
from snippets.lab.page import show as show

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

FORMS = {
    "gelu_tanh": "GELU, as a sigmoid",
    "rough_gelu_tanh": "GELU, one rough tanh",
    "silu": "SiLU, as a sigmoid",
    "rough_silu": "SiLU, one rough tanh",
}
"""Form in the recording -> its name on the page."""
EXACT, ROUGH = ("gelu_tanh", "silu"), ("rough_gelu_tanh", "rough_silu")
DRAWN = ("gelu_tanh", "rough_gelu_tanh")
ROUNDING = 2.0**-9
"""The largest relative error of one rounding to bf16."""
RIGHT = 2.0**-12
"""An eighth of that."""
LEAST_ERROR = 1e-8
_SIDE, _PANEL, _LINE, _AXIS = 58, 150, TEXT + 6, 42
_LOOKS: Mapping[str, Mapping[str, Any]] = {
    "gelu_tanh": {"color": EDGES["gpu"], "marker": "o", "markersize": 6},
    "rough_gelu_tanh": {"color": EDGES["call"], "marker": "s", "markersize": 7, "markerfacecolor": "none"},
}
_DASHED: Mapping[str, Any] = {"color": EDGES["gpu"], "linewidth": 1.2, "linestyle": "--"}


class Range(NamedTuple):
    """All inputs from `least` to `largest`, without their sign, and the largest relative error among them."""

    least: float
    largest: float
    error: float


def errors(device: Device, form: str) -> list[Range]:
    """The errors of one form, from the smallest inputs on."""
    found = probed(device["fused_mlp/activation_errors"], "forms", form)
    return sorted(Range(*map(float, one)) for one in found)


def worst(device: Device, form: str, least: float = 0.0) -> Figure:
    """The largest relative error of a form, of inputs from `least` on."""
    found = (one.error for one in errors(device, form) if one.least >= least)
    return Figure(max(found), origin=f"fused_mlp/activation_errors, {form}")


@claim("F95", at_most(RIGHT), scope="this-gpu")
def error_as_sigmoid(device: Device) -> Figure:
    """As a sigmoid, GELU and SiLU err at every bf16 input by less than an eighth of what rounding to bf16 may cost."""
    return largest(*(worst(device, form) for form in EXACT))


@claim("F96", at_least(0.99), scope="this-gpu")
def error_of_rough_tanh(device: Device) -> Figure:
    """With one rough tanh, GELU has inputs at which its error is as large as its result."""
    return worst(device, "rough_gelu_tanh")


@claim("F109", at_most(1.05), scope="timing")
def cost_of_right_digits(device: Device) -> Figure:
    """The ping-pong kernel takes at most 5 % longer with GELU as a sigmoid than with one rough tanh."""
    return step_ratio(device, "activation", "gelu_tanh", "rough_gelu_tanh")


def rough_from(device: Device) -> Figure:
    """The least |z| from which on one rough tanh costs GELU more than rounding to bf16 does."""
    found = next(one for one in errors(device, "rough_gelu_tanh") if one.error > ROUNDING)
    return Figure(found.least, origin="fused_mlp/activation_errors")


def activation_chart(device: Device) -> Html:
    """The largest relative error of both forms of GELU over the size of the input; SiLU's in the numbers."""
    found = {form: errors(device, form) for form in DRAWN}
    caption = "Largest relative error of GELU over all bf16 inputs"
    drawing = draw(
        (len(DRAWN) + 1) * _LINE + _PANEL + _AXIS,
        lambda picture: _paint(picture, found),
        ident=chart_id("chart", device, caption),
        title=caption,
        description="; ".join(f"{FORMS[form]}: {worst(device, form).text} at most" for form in DRAWN) + ".",
        data=(found, code_key(Path(__file__))),
    )
    numbers = [
        [f"{one.least:g} to {one.largest:g}", *(_error_at(device, form, one) for form in FORMS)]
        for one in found["gelu_tanh"]
    ]
    head = ["|z|", *FORMS.values()]
    return framed(caption, drawing, table(numbers_caption(caption), head, numbers))


def _error_at(device: Device, form: str, where: Range) -> str:
    """The largest error of a form in a range of another form."""
    inside = [one.error for one in errors(device, form) if where.least <= one.least <= where.largest]
    return f"{max(inside):.1e}" if inside else ""


def _paint(picture: Picture, found: Mapping[str, Sequence[Range]]) -> None:
    """The key above, both scales logarithmic."""
    width, top = WIDTH - _SIDE - 20, (len(found) + 1) * _LINE
    drawn = {form: [one for one in ranges if one.least > 0] for form, ranges in found.items()}
    every = [one for ranges in drawn.values() for one in ranges]
    x = Scale(min(one.least for one in every), max(one.largest for one in every), 8, width - 8)
    y = Scale(LEAST_ERROR, 3.0, _PANEL, 0)
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
    rows(axes, [(y(10.0**power), f"1e{power}" if power else "1") for power in range(-8, 1, 2)])
    axes.plot([0, width], [y(ROUNDING)] * 2, **_DASHED)
    for form, ranges in drawn.items():
        across = [x((one.least * one.largest) ** 0.5) for one in ranges]
        up = [y(min(max(one.error, LEAST_ERROR), 3.0)) for one in ranges]
        axes.plot(across, up, linewidth=1.8, **_LOOKS[form])
