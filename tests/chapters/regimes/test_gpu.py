"""The kernel on a GPU, at shapes that no tile divides and with each choice of tiles, against float64."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from snippets.regimes.kernels import Tiles, linear_gelu

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120, method="thread")]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("tokens", "dim", "outputs"),
    [(1, 64, 64), (3, 72, 40), (17, 200, 136), (65, 1024, 4096), (600, 136, 328), (2100, 1032, 520)],
)
def test_as_exact_as_plain_pytorch(tokens: int, dim: int, outputs: int, dtype: torch.dtype) -> None:
    """The largest error is at most twice that of two kernels, which also round between them."""
    torch.manual_seed(7)
    x, weight, bias = (
        torch.randn(shape, dtype=dtype, device="cuda") for shape in ((tokens, dim), (outputs, dim), (outputs,))
    )
    weight *= dim**-0.5
    exact = F.gelu(F.linear(x.double(), weight.double(), bias.double()), approximate="tanh")
    plain = F.gelu(F.linear(x, weight, bias), approximate="tanh")
    error, allowed = ((result.double() - exact).abs().max() for result in (linear_gelu(x, weight, bias), plain))
    assert error <= 2 * allowed


@pytest.mark.parametrize("tiles", [Tiles(64, 32, 16, stages=2), Tiles(128, 128, 32), Tiles(256, 128, 32, stages=2)])
def test_tiles_change_the_time_and_not_the_result(tiles: Tiles) -> None:
    torch.manual_seed(7)
    x, weight = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for shape in ((300, 520), (264, 520)))
    bias = torch.randn(264, dtype=torch.bfloat16, device="cuda")
    torch.testing.assert_close(linear_gelu(x, weight, bias, tiles), linear_gelu(x, weight, bias), rtol=1e-2, atol=1e-2)
