"""Ceilings by name: the rates that a device reached in a recording's session."""

from __future__ import annotations

from collections.abc import Mapping

COPY, LARGE_MATMUL = "copy", "matmul 8192x8192x8192"
LINEAR = "x @ weight.t()"
"""The layout of a matmul whose second factor is stored transposed, as `nn.Linear` stores its weight."""
CeilingRates = Mapping[str, float]
"""Name of a ceiling -> its rate: bytes/s for a copy, else FLOP/s."""


def matmul_name(m: int, k: int, n: int, layout: str = LINEAR, dtype: str = "bfloat16") -> str:
    """The name of a bare matmul's ceiling: `matmul 64x64x64`, `matmul 64x64x64, x @ w, float16`."""
    other = [value for value, usual in ((layout, LINEAR), (dtype, "bfloat16")) if value != usual]
    return ", ".join([f"matmul {m}x{k}x{n}", *other])


def layout_of(name: str) -> str:
    """The layout of a bare matmul's ceiling: `matmul 64x64x64, x @ w, float16` -> `x @ w`."""
    return next((part for part in name.split(", ")[1:] if "@" in part), LINEAR)


def with_layout(name: str) -> str:
    """A ceiling's name with its layout, even the usual layout: `matmul 64x64x64, x @ weight.t()`; `copy` has no
    layout."""
    if not name.startswith("matmul "):
        return name
    shape, *others = name.split(", ")
    return ", ".join([shape, layout_of(name), *(part for part in others if "@" not in part)])
