"""A measured value and its formatting."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kinetoscope.trace.events import Step
from kinetoscope.trace.text import visible
from kinetoscope.trace.units import format_value
from snippets.lab.recording.schema import Timing


@dataclass(frozen=True)
class Figure:
    """A measured value: `#!fig` prints it in a sentence, and the band of a claim tests it."""

    value: float | int | str | bool
    unit: str = ""
    """One of UNITS; empty for counts, names and truth values."""
    spread: tuple[float, float] | None = None
    """The least and the largest of its processes or steps in the same unit; of one process, perhaps quartiles."""
    origin: str = ""
    conclusive: bool = True
    """False when the active steps of a trace disagree, or for the reason in `doubt`."""
    doubt: str = ""
    display: str = ""
    """The text to print instead of the value."""

    @property
    def text(self) -> str:
        """The value as printed: `21.5 µs`, `5`, `nvjet_...`."""
        if self.display:
            return self.display
        if isinstance(self.value, bool):
            return "yes" if self.value else "no"
        return format_value(self.value, self.unit)

    @property
    def number(self) -> float:
        """The value as a number. Raises `ValueError` for a name."""
        return float(self.value)

    @property
    def bounds(self) -> tuple[float, float]:
        """The spread; without a spread, the value twice."""
        return self.spread or (self.number, self.number)

    @property
    def spread_text(self) -> str:
        """The spread as printed, `21.3 to 21.9 µs`; empty if there is none."""
        if self.spread is None:
            return ""
        low, high = (format_value(bound, self.unit) for bound in self.spread)
        same_unit = low.rsplit(" ", 1)[-1] == high.rsplit(" ", 1)[-1] and " " in low
        return f"{low.rsplit(' ', 1)[0] if same_unit else low} to {high}"

    @classmethod
    def from_timing(cls, timing: Timing, origin: str = "") -> Figure:
        """A figure from the median of a timing, and from the medians of its processes or its quartiles."""
        return cls(timing.median_us, "us", timing.spread_us, origin)


def checked(figure: Figure) -> Figure:
    """The figure as pages and JSON show it: printable, its names without control characters.

    Raises `ValueError` for a number that is infinite or none, `OverflowError` for one that is too large to print.
    """
    numbers = [value for value in (figure.value, *(figure.spread or ())) if isinstance(value, float)]
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"a number in it is {next(value for value in numbers if not math.isfinite(value))}")
    value = visible(figure.value) if isinstance(figure.value, str) else figure.value
    shown = replace(figure, value=value, origin=visible(figure.origin), display=visible(figure.display))
    _ = shown.text, shown.spread_text
    return shown


def per_step(
    steps: Sequence[Step], of: Callable[[Step], float | int | str | bool], unit: str = "", origin: str = ""
) -> Figure:
    """Evaluate one or more steps, as `Run.per_step` does: the median number, or the middle step's name or order."""
    values = [of(step) for step in steps]
    agree = all(value == values[0] for value in values)
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        return Figure(values[len(values) // 2], unit, origin=origin, conclusive=agree)
    middle = statistics.median(numbers) if unit else statistics.median_low(numbers)
    return Figure(middle, unit, None if agree else (min(numbers), max(numbers)), origin, bool(unit) or agree)
