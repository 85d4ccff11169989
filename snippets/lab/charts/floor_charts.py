"""Bars from the floor up: a computed floor, and what was measured, on one linear scale.

A piece is `piece(device, subject, caption)`. Without a script it is a list with bars; `curtain.js` adds the reader's
prediction as a bar of its own, and widens the scale for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from kinetoscope.html import Html, note
from kinetoscope.trace.units import format_value
from snippets.lab.charts.numbers import require_positive
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure


def floor_bars(
    device: Device, floor: tuple[str, Figure], rungs: Mapping[str, Figure], caption: str, *, conditions: str = ""
) -> Html:
    """A bar for the least time (the floor), and a bar for each variant with its multiple of the floor.

    Args:
        device: whose numbers they are.
        floor: its name and its figure. In a name, what follows the first `: ` is small print.
        rungs: name -> figure, of the floor's unit.
        caption: what the bars show.
        conditions: a line below the caption, such as the batch.

    Raises `ValueError` for an amount that is not above zero, or of another unit.
    """
    name, least = floor
    figures = {name: least, **rungs}
    require_positive(caption, {each: figure.number for each, figure in figures.items()})
    units = {figure.unit for figure in figures.values()}
    if len(units) > 1:
        raise ValueError(f"{caption}: amounts in {' and '.join(sorted(units))} have no common scale")
    top = max(figure.number for figure in figures.values())
    rows = [_row(name, least, least.text, "floor")]
    rows += [
        _row(each, figure, f"{figure.text} · {format_value(figure.number / least.number, 'x')}")
        for each, figure in rungs.items()
    ]
    listed = "".join(rows)
    return Html(
        f'<figure class="chart floor-bars" data-search-exclude><figcaption>{escape(caption)}</figcaption>'
        + note(conditions)
        + f'<ol data-unit="{least.unit}" data-top="{top:g}" style="--top: {top:g}">{listed}</ol></figure>'
    )


def _row(name: str, figure: Figure, text: str, kind: str = "") -> str:
    main, _, small = name.partition(": ")
    detail = f" <small>{escape(small)}</small>" if small else ""
    css = f' class="{kind}"' if kind else ""
    return (
        f'<li{css} style="--amount: {figure.number:g}"><span class="name">{escape(main)}{detail}</span>'
        f'<span class="track"><i></i><span class="amount">{escape(text)}</span></span></li>'
    )
