"""A few horizontal bars with their names and values: a picture as small as a strip, for amounts instead of times."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kinetoscope.html import Html

_ROW_PX, _BAR_PX = 15, 11
_NAME_PERCENT, _BAR_PERCENT = 26, 54
"""Where the bars begin, and the width of the longest, in percent of the whole width."""


def bar_rows(rows: Sequence[tuple[str, float, str]], *, described: str, kind: str) -> Html:
    """Draw (name, amount, value as text) in a row each; an amount of 0 has no bar.

    `kind` is the CSS class that colors the bars.
    """
    most = max(amount for _, amount, _ in rows)
    lines = []
    for index, (name, amount, value) in enumerate(rows):
        y, width = index * _ROW_PX + 2, max(0.5, _BAR_PERCENT * amount / most) if amount else 0.0
        bar = f'<rect x="{_NAME_PERCENT}%" y="{y}" width="{width:.2f}%" height="{_BAR_PX}"/>' if amount else ""
        lines.append(
            f'<text x="{_NAME_PERCENT - 2}%" y="{y + 10}" text-anchor="end">{escape(name)}</text>'
            f'<g class="slice {kind}">{bar}</g>'
            f'<text x="{_NAME_PERCENT + width + 1:.2f}%" y="{y + 10}">{escape(value)}</text>'
        )
    height = len(rows) * _ROW_PX + 2
    return Html(
        f'<svg class="strip" width="100%" height="{height}" role="img" aria-label="{escape(described)}">'
        f"{''.join(lines)}</svg>"
    )
