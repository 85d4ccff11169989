"""Which portable kernels are tried on which GPU, and how exact their activations are; no GPU is needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

from snippets.fused_mlp.experiments.activations import swept
from snippets.fused_mlp.geglu import portable, ways
from snippets.fused_mlp.geglu.portable_tiles import PortableTiles, aligned
from snippets.fused_mlp.geglu.support import ACTIVATIONS
from snippets.fused_mlp.geglu.work import Sizes
from tests.chapters.fused_mlp.checks import BF16, F16

GPUS = {"A100": (80, 166_912), "RTX 3090": (86, 101_376), "L40": (89, 101_376), "B200": (100, 232_448)}
SWEPT = [*product(("gelu_tanh", "silu", "relu", "none"), (BF16, F16)), ("gelu", BF16)]
"""What every value of a dtype is tried with."""
Errors = dict[tuple[str, torch.dtype], tuple[torch.Tensor, torch.Tensor]]


@pytest.fixture(params=GPUS)
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(ways, "is_hopper", lambda device: False)
    monkeypatch.setattr(portable, "limits", lambda device: GPUS[request.param])
    return request.param


def sizes(rows: int) -> Sizes:
    return Sizes(rows, 768, 3072, BF16, torch.device("cuda", 0))


@pytest.mark.parametrize("rows", [1, 16, 100, 8192])
def test_what_is_tried_for_gate_and_up(gpu: str, rows: int) -> None:
    *found, last = ways.gate_up_ways(sizes(rows), "gelu_tanh")
    assert last == "two products"
    few = [name for name in found if name.startswith("few ")]
    assert len(few) == {1: 5, 16: 2}.get(rows, 0)
    assert 2 <= len(found) - len(few) <= 12
    assert all(name.startswith("portable ") for name in set(found) - set(few))


@pytest.mark.parametrize("has_bias", [True, False])
def test_every_linear_can_be_done(gpu: str, has_bias: bool) -> None:
    for activation in ACTIVATIONS:
        found = ways.linear_ways(sizes(300), activation, has_bias)
        assert len([name for name in found if name.startswith("portable ")]) >= 5, activation
        assert ("cuBLAS" in found) == (activation == "none" and not has_bias), activation


def test_a_launch_has_a_program_for_each_tile() -> None:
    tiles = PortableTiles(64, 32, 64, 3, 4)
    work = Sizes(130, 72, 100, F16, torch.device("cpu"))
    launch = portable.portable_gate_up_launch(work, tiles, "silu")
    assert (launch.programs, launch.options) == (3 * 4, {"num_warps": 4, "num_stages": 3})
    arguments = launch.arguments("x", "gate", "up", "out")
    assert arguments[:7] == ("x", "gate", "up", "out", 130, 100, 72)
    assert arguments[7:13] == (64, 32, 64, 8, 4, False)
    linear = portable.portable_linear_launch(work, tiles, "silu", has_bias=False)
    assert linear.arguments("x", "weight", "out")[:4] == ("x", "weight", None, "out")


@pytest.mark.parametrize(
    ("given", "expected"), [((8192, 768), 8), ((36, 100), 4), ((22, 70), 2), ((21, 64), 1), ((0, 8), 8)]
)
def test_rows_are_loaded_in_pieces_that_divide_them(given: tuple[int, int], expected: int) -> None:
    assert aligned(*given) == expected


def run_all(path: str) -> None:
    """In the process that interprets: the arithmetic, not the GPU's own instructions."""
    torch.save({each: swept(*each, "cpu") for each in SWEPT}, path)


@pytest.fixture(scope="module")
def errors(interpreted: Callable[[str], Any]) -> Errors:
    return interpreted(__name__)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["the interpreter", pytest.param("the GPU", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("activation", "dtype"), SWEPT[:-1])
def test_every_value_is_right_to_a_fiftieth_of_its_last_place(
    activation: str, dtype: torch.dtype, by: str, request: pytest.FixtureRequest
) -> None:
    """Before it is rounded: at any value, however small the result is."""
    interpreted = by == "the interpreter"
    z, units = request.getfixturevalue("errors")[activation, dtype] if interpreted else swept(activation, dtype)
    assert len(z) == {BF16: 65_280, F16: 63_488}[dtype], "all that are finite"
    assert bool((z.diff() >= 0).all())
    assert (z[0].item(), z[-1].item()) == (torch.finfo(dtype).min, torch.finfo(dtype).max)
    assert units.max().item() < 0.02


def test_erf_cancels_where_gelu_is_small(errors: Errors) -> None:
    """As PyTorch's does: 1 is added to nearly -1 in float32."""
    z, units = errors["gelu", BF16]
    assert units[z < -6].max().item() > 100
    assert units[z > -3].max().item() < 0.02
    assert not math.isnan(units.sum().item())
