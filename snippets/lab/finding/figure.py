"""A measured value and its formatting."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from snippets.lab.recording.schema import Timing
from snippets.lab.trace.events import Step


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
    """False when the active steps of a trace disagree."""
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


UNITS: Mapping[str, tuple[tuple[float, str], ...]] = {
    "us": ((1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns")),
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes")),
    "flop": ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1.0, "FLOP")),
    "flop/s": ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1.0, "FLOP/s")),
    "bytes/s": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")),
    "J": ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ")),
    "W": ((1.0, "W"),),
    "MHz": ((1.0, "MHz"),),
    "%": ((1.0, "%"),),
    "x": ((1.0, "x"),),
}
"""Unit -> the scaled units to print, largest first."""


def format_value(value: float | int | str, unit: str = "") -> str:
    """Format a value with three significant digits and a scaled unit: (1455.2, "us") -> `1.46 ms`; a clock to 1 MHz."""
    if isinstance(value, str):
        return value
    if unit == "MHz":
        return f"{value:,.0f} MHz"
    if not unit:
        return f"{value:,}" if isinstance(value, int) else _three_digits(value)
    steps = UNITS[unit]
    rounded = float(f"{value:.2e}")  # first: 999.7 us is 1.00 ms
    scale, name = next(((s, n) for s, n in steps if abs(rounded) >= s), steps[-1])
    if value == 0:
        name = next(n for s, n in steps if s == 1.0)
    is_count = isinstance(value, int) and scale == 1.0 and name in ("bytes", "FLOP")
    digits = f"{value:,}" if is_count else _three_digits(rounded / scale)
    return f"{digits}{name}" if unit == "x" else f"{digits} {name}"


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    value = float(f"{value:.2e}")
    if abs(value) < 1e-2 or abs(value) >= 1e6:
        return f"{value:.1e}"
    decimals = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{decimals}f}"


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
