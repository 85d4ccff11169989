"""The kernel on the CPU, through Triton's interpreter, against float64 and plain PyTorch.

Triton reads TRITON_INTERPRET when it is imported, so one process runs all the cases and leaves what they wrote. The
interpreter multiplies bf16 wrongly, so the cases are float16 and float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from snippets.regimes.kernels import Tiles, linear_gelu, tiles_for
from tests.chapters.guarded import GUARD, save_written

SMALL = Tiles(16, 32, 32)


@dataclass(frozen=True)
class Case:
    dtype: torch.dtype
    rows: int
    dim: int
    outputs: int
    tiles: Tiles | None = SMALL

    def __str__(self) -> str:
        tiles = f"{self.tiles.block_m}x{self.tiles.block_n}x{self.tiles.block_k}" if self.tiles else "default"
        return f"{str(self.dtype).removeprefix('torch.')} {self.rows}x{self.dim}x{self.outputs} {tiles}"

    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """x, weight and bias, the same in each process."""
        generator = torch.Generator().manual_seed(7)
        shapes = (self.rows, self.dim), (self.outputs, self.dim), (self.outputs,)
        x, weight, bias = (torch.randn(shape, generator=generator) for shape in shapes)
        return x.to(self.dtype), (weight * self.dim**-0.5).to(self.dtype), bias.to(self.dtype)


CASES = [
    *(
        Case(dtype, *shape)
        for dtype in (torch.float16, torch.float32)
        for shape in ((1, 1, 1), (1, 64, 64), (33, 70, 77), (16, 32, 32), (200, 40, 136), (65, 129, 31))
    ),
    Case(torch.float16, 70, 72, 136, Tiles(64, 64, 16)),
    Case(torch.float16, 300, 40, 260, Tiles(256, 256, 32, stages=2)),
    *(Case(torch.float16, rows, 136, 72, None) for rows in (1, 17, 65, 600)),
]


def run_all(path: str) -> None:
    """In the process that interprets: all the cases, and what each of them wrote into a file."""
    save_written(path, CASES, lambda case: linear_gelu(*case.inputs(), case.tiles))


@pytest.fixture(scope="module")
def written(interpreted: Callable[[str], Any]) -> dict[str, list[Tensor]]:
    return interpreted(__name__)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_as_exact_as_plain_pytorch(case: Case, written: dict[str, list[Tensor]]) -> None:
    """Against float64, and nothing is written outside of the result."""
    inputs = case.inputs()
    exact = F.gelu(F.linear(*(tensor.double() for tensor in inputs)), approximate="tanh")
    plain = F.gelu(F.linear(*inputs), approximate="tanh")
    (buffer,) = written[str(case)]
    assert bool(torch.cat([buffer[:GUARD], buffer[-GUARD:]]).isnan().all())
    found = buffer[GUARD:-GUARD].view(exact.shape)
    error, allowed = ((tensor.double() - exact).abs() for tensor in (found, plain))
    assert error.max() <= 2 * allowed.max() + 1e-6


@pytest.mark.parametrize(
    ("tokens", "rows"), [(1, 16), (16, 16), (17, 32), (64, 64), (65, 64), (1024, 128), (65536, 128)]
)
def test_tiles_fit_the_tokens(tokens: int, rows: int) -> None:
    assert tiles_for(tokens).block_m == rows


def test_operands_that_do_not_fit_are_refused() -> None:
    x, weight, bias = CASES[-1].inputs()
    with pytest.raises(ValueError, match="do not fit"):
        linear_gelu(x, weight, bias[1:])
    with pytest.raises(ValueError, match="contiguous"):
        linear_gelu(x.t().contiguous().t(), weight, bias)
