"""Bands: the values of a figure for which a claim holds. Any function from a figure to a truth value is one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from kinetoscope.trace.units import format_value
from snippets.lab.finding.figure import Figure

Band = Callable[[Figure], bool]
"""Whether a claim holds for a figure."""


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, inclusive."""

    low: float = -math.inf
    high: float = math.inf

    def __call__(self, figure: Figure) -> bool:
        """Whether a claim holds for a figure."""
        return self.low <= figure.number <= self.high

    def text(self, unit: str) -> str:
        """The interval as printed: `at least 1.20x`, `1.80x to 2.20x`."""
        low, high = (format_value(limit, unit) for limit in (self.low, self.high))
        if math.isinf(self.high):
            return f"at least {low}"
        return f"at most {high}" if math.isinf(self.low) else f"{low} to {high}"


@dataclass(frozen=True)
class OneOf:
    """Some numbers, names or truth values."""

    values: tuple[object, ...]

    def __call__(self, figure: Figure) -> bool:
        """Whether a claim holds for a figure."""
        return figure.value in self.values


@dataclass(frozen=True)
class Pattern:
    """Names that fully match a regular expression."""

    expression: str

    def __call__(self, figure: Figure) -> bool:
        """Whether a claim holds for a figure."""
        return re.fullmatch(self.expression, str(figure.value)) is not None


def equals(*values: object) -> Band:
    """The figure equals one of these values."""
    return OneOf(values)


def at_least(limit: float) -> Band:
    """The figure is at or above a limit."""
    return Interval(low=limit)


def at_most(limit: float) -> Band:
    """The figure is at or below a limit."""
    return Interval(high=limit)


def between(low: float, high: float) -> Band:
    """The figure is between two limits, inclusive."""
    return Interval(low, high)


def matches(expression: str) -> Band:
    """The figure is a name that fully matches a regular expression."""
    return Pattern(expression)


def contains_spread(band: Band, figure: Figure) -> bool | None:
    """Whether a band contains all of a number's spread (True), none of it (False), or only a part (None)."""
    low, high = figure.bounds
    if isinstance(band, Interval):
        if band.low <= low and high <= band.high:
            return True
        return None if low <= band.high and high >= band.low else False
    if isinstance(band, OneOf) and low < high:
        return None if any(isinstance(value, int | float) and low <= value <= high for value in band.values) else False
    return agreed({band(replace(figure, value=value)) for value in (figure.value, low, high)})


def agreed(answers: set[bool]) -> bool | None:
    """The only answer; None if there are two."""
    return None if len(answers) > 1 else next(iter(answers))
