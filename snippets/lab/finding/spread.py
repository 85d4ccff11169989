"""The differences between a figure's processes and steps: a measure, computed on a device and on each of its parts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kinetoscope.trace.events import TraceError
from snippets.lab.finding.band import Band, Interval, agreed, contains_spread
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import Measure
from snippets.lab.finding.views import Parts, part
from snippets.lab.recording.schema import NotTimed

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
    """Compute a figure on the whole device and on each part. Raises what the measure raises, on a part, too.

    Only a part that is not timed, or whose steps lack what the measure looks for, is left out. It could be the part
    that disagrees, so the figure is then inconclusive.
    """
    read, parts, reason = Parts(), [], ""
    figure = measure(device)
    for index in PARTS:
        try:
            parts.append(measure(part(device, index, read)))
        except (NotTimed, TraceError) as error:
            reason = str(error)
    if len(parts) < len(PARTS) and figure.conclusive:
        doubt = f"only {len(parts)} of {len(PARTS)} parts have a value: {reason}"
        figure = replace(figure, conclusive=False, doubt=doubt)
    is_known = (read.were_read and bool(parts)) or figure.spread is not None
    if is_number(figure) and is_known:
        values = (each.value for each in (figure, *parts))
        ends = [*(figure.spread or ()), *(value for value in values if isinstance(value, int | float))]
        figure = replace(figure, spread=(min(ends), max(ends)))
    return Spread(figure, tuple(parts), is_known)


def is_number(figure: Figure) -> bool:
    """Whether the value is a number, not a name or a truth value."""
    return isinstance(figure.value, int | float) and not isinstance(figure.value, bool)
