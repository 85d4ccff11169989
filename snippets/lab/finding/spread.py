"""The differences between a figure's processes and steps: a measure, computed on a device and on each of its parts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from snippets.lab.finding.band import Band, Interval, agreed, contains_spread
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import Measure
from snippets.lab.finding.part import Reads

PARTS = range(3)
"""Processes of an experiment, thirds of a sweep's samples, active steps of a trace."""


@dataclass(frozen=True)
class Spread:
    """A figure of the whole, and of the parts that it is the middle of."""

    figure: Figure
    """A number has the spread of the parts, joined with its own; a name or a truth value has none."""
    parts: tuple[Figure, ...]
    is_known: bool
    """Whether the figure has a spread of its own, or some part of a recording went into it."""

    def is_in(self, band: Band) -> bool | None:
        """Whether the band contains all of the spread (True), none of it (False), or only a part (None)."""
        if is_number(self.figure):
            return contains_spread(band, self.figure)
        return agreed({band(figure) for figure in (self.figure, *self.parts)})

    def contradiction(self, band: Band) -> str:
        """Why the spread is neither in the band nor out of it."""
        if not is_number(self.figure):
            texts = dict.fromkeys(figure.text for figure in (self.figure, *self.parts))
            return f"parts of the samples disagree: {'; '.join(texts)}"
        limits = f" ({band.text(self.figure.unit)})" if isinstance(band, Interval) else ""
        return f"only a part of the spread is in the band{limits}"


def measure_spread(measure: Measure, device: Device) -> Spread:
    """Compute a figure on the whole device and on each part. Raises what the measure raises on the whole device.

    The whole has a figure, so a part without one is left out, for whatever reason: a measure that compares two steps of
    a trace finds only one there.
    """
    reads, parts = Reads(), []
    figure = measure(device)
    for index in PARTS:
        with suppress(Exception):
            parts.append(measure(replace(device.part(index), reads=reads)))
    is_known = (reads.has_parts and bool(parts)) or figure.spread is not None
    if is_number(figure) and is_known:
        values = (each.value for each in (figure, *parts))
        ends = [*(figure.spread or ()), *(value for value in values if isinstance(value, int | float))]
        figure = replace(figure, spread=(min(ends), max(ends)))
    return Spread(figure, tuple(parts), is_known)


def is_number(figure: Figure) -> bool:
    """Whether the value is a number, not a name or a truth value."""
    return isinstance(figure.value, int | float) and not isinstance(figure.value, bool)
