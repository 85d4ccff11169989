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
