"""Values with their units as text: `21.5 µs`."""

from __future__ import annotations

from collections.abc import Mapping

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
    digits = f"{value:,}" if is_count else _three_digits(value / scale)
    return f"{digits}{name}" if unit == "x" else f"{digits} {name}"


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    rounded = float(f"{value:.2e}")  # 9.996 has one decimal, as 10.0
    if abs(rounded) < 1e-2 or abs(rounded) >= 1e6:
        return f"{value:.1e}"
    if abs(rounded) >= 100:
        return f"{rounded:,.0f}"
    return f"{value:.{2 if abs(rounded) < 10 else 1}f}"  # not of `rounded`: 0.5853 would be 0.585, and then 0.58
