"""Amounts as text: `1.23 ms`, `12 %`, `3 calls`."""

from __future__ import annotations


def duration_text(us: float) -> str:
    """`1.23 s`, `45.6 ms`, `7.8 us`: three digits."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{_three_digits(us / size)} {unit}"
    return f"{_three_digits(us)} us"


def share_text(part: float, whole: float) -> str:
    """`12 %`; of nothing: `0 %`."""
    return f"{100 * part / whole if whole else 0:.0f} %"


def count_text(count: float, noun: str, plural: str = "") -> str:
    """`1 call`, `2 calls`, `0.5 calls`: a mean may be a fraction."""
    number = f"{count:,.0f}" if count >= 100 else f"{count:.3g}"
    return f"{number} {noun if count == 1 else plural or noun + 's'}"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
