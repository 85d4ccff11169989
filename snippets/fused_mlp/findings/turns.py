"""Who works when, with one group of warps and with two that take turns: a scheme, without measured times."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from snippets.lab.drawing.svg import HATCHES, PAPER, SERIES, TEXT, WIDTH, canvas, draw
from snippets.lab.finding import Device
from snippets.lab.html import Html
from snippets.lab.page import show as show

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEFT, _MULTIPLY, _FINISH, _AHEAD = 100, 66, 46, 18
_ROW, _BAR = 24, 20
_HEIGHT = 12 * _ROW
LOADS, MULTIPLIES, FINISHES = 2, 0, 1
"""Indices in the palette."""


class Bar(NamedTuple):
    """One role at one tile."""

    left: float
    width: float
    kind: int
    tile: int


def turns(_: Device) -> Html:
    """The picture; of every device the same."""
    drawing = draw(
        _HEIGHT,
        _paint,
        ident="fused-mlp-turns",
        title="Who works when: one group of warps, and two consumers in turns",
        description="One group multiplies a tile, then finishes it, and meanwhile the tensor cores are idle. Two "
        "consumers take turns: while one finishes a tile, the other multiplies the next, and the tensor cores always "
        "work. The producer loads ahead of both.",
    )
    caption = "Who works when (a scheme, not measured). The numbers are tiles"
    return Html(
        f'<figure class="chart" data-search-exclude><figcaption>{escape(caption)}</figcaption>{drawing}</figure>'
    )


def _lanes() -> list[tuple[str, list[Bar]]]:
    """Heading and bars of each row; a row without bars is a title."""
    alone = [Bar(_AHEAD + (_MULTIPLY + _FINISH) * index, _MULTIPLY, MULTIPLIES, index + 1) for index in range(3)]
    shared = [Bar(_AHEAD + _MULTIPLY * index, _MULTIPLY, MULTIPLIES, index + 1) for index in range(5)]
    return [
        ("One group of warps", []),
        ("loads", [Bar(bar.left - _AHEAD, _MULTIPLY, LOADS, bar.tile) for bar in alone]),
        ("warps", _with_finish(alone)),
        ("tensor cores", alone),
        ("Two consumers in turns", []),
        ("producer", [Bar(bar.left - _AHEAD, _MULTIPLY, LOADS, bar.tile) for bar in shared]),
        ("consumer 0", _with_finish(shared[::2])),
        ("consumer 1", _with_finish(shared[1::2])),
        ("tensor cores", shared),
    ]


def _with_finish(multiplied: list[Bar]) -> list[Bar]:
    """Each tile multiplied, then finished by the same warps."""
    return [part for bar in multiplied for part in (bar, Bar(bar.left + bar.width, _FINISH, FINISHES, bar.tile))]


_KEYS = ((LOADS, "loads blocks"), (MULTIPLIES, "multiplies"), (FINISHES, "finishes: activation, rounding, store"))


def _paint(figure: Figure) -> None:
    axes = canvas(figure, 0, _HEIGHT)
    lanes = _lanes()
    for index, (name, bars) in enumerate(lanes):
        top = index * _ROW + 2
        axes.text(0, top + TEXT + 2, name, weight="normal" if bars else "bold")
        for bar in bars:
            if _LEFT + bar.left + bar.width <= WIDTH:
                _draw_bar(axes, _LEFT + bar.left, top, bar.width, bar.kind, str(bar.tile))
    for index, (kind, text) in enumerate(_KEYS, len(lanes)):
        top = index * _ROW + 4
        _draw_bar(axes, 0, top, 26, kind, "")
        axes.text(34, top + TEXT + 2, text)


def _draw_bar(axes: Axes, left: float, top: float, width: float, kind: int, text: str) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(
        Rectangle((left, top), width, _BAR, facecolor=SERIES[kind], edgecolor=PAPER, hatch=HATCHES[kind], linewidth=1.2)
    )
    if text:
        chip = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
        axes.text(left + width / 2, top + _BAR / 2, text, ha="center", va="center", bbox=chip)
