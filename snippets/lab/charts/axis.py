"""The linear axis of a drawing, as data in its SVG: `curtain.js` draws the reader's guess to scale with it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from html import escape

from kinetoscope.html import Html


@dataclass(frozen=True)
class LinearAxis:
    """An axis from left to right that begins at zero; lengths are units of the drawing."""

    unit: str
    """The unit of the amounts, a key of `UNITS`."""
    zero: float
    """Distance of the amount zero from the left edge."""
    amount: float
    """The longest bar's."""
    length: float
    """The longest bar's."""
    height: float
    """The height of the bars, from the top edge of the drawing."""

    @property
    def scale(self) -> float:
        """Length of an amount of one."""
        return self.length / self.amount

    def written_into(self, drawing: Html) -> Html:
        """The drawing with the axis in `data-axis`, lengths to 0.1 unit and amounts to 0.01."""
        numbers = {**asdict(self), "amount": round(self.amount, 2), "length": round(self.length, 1)}
        return Html(drawing.replace("<svg ", f'<svg data-axis="{escape(json.dumps(numbers))}" ', 1))
