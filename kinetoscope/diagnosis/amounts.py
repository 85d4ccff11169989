"""Amounts as text: `1.23 ms`, `12 %`, `3 calls`."""

from __future__ import annotations

from kinetoscope.trace.units import format_value


def duration_text(us: float) -> str:
    """`1.23 s`, `45.6 ms`, `7.80 µs`: three digits."""
    return format_value(float(us), "us")


def share_text(part: float, whole: float) -> str:
    """`12 %`; of nothing: `0 %`."""
    return f"{100 * part / whole if whole else 0:.0f} %"


def count_text(count: float, noun: str, plural: str = "") -> str:
    """`1 call`, `2 copies`, `0.5 calls`: a mean may be a fraction."""
    number = f"{count:,.0f}" if count >= 100 else f"{count:.3g}"
    regular = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if count == 1 else plural or regular}"
