"""The portable kernels on whatever GPU is there: every candidate at odd sizes, beyond 2^31 elements, each value of a
16-bit dtype, and what is compiled for an A100 on a newer GPU."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from snippets.fused_mlp.experiments import absent_gpus, activations
from snippets.fused_mlp.geglu import portable
from snippets.fused_mlp.geglu.portable_tiles import PORTABLE, PORTABLE_GATED, PortableTiles, shared_bytes
from tests.chapters.fused_mlp import checks
from tests.chapters.fused_mlp.checks import ACTIVATIONS, BF16, F16, ODD, gated, inputs, linear
from tests.chapters.guarded import check_written

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120, method="thread")]

SHAPES = (ODD, (300, 256, 264))


def check(found: Tensor, plain: Callable[..., Tensor], *arguments: object) -> None:
    """The largest error at most twice eager's, and all of it together not above eager's, but for luck."""
    checks.check(found, plain, *arguments, times_eager=1.1 if found.numel() >= 10_000 else 1.0)


def fits(tiles: PortableTiles, weights: int, compiled_for: int | None = None) -> bool:
    capability, limit = portable.limits(torch.device("cuda", 0))
    return shared_bytes(tiles, 2, compiled_for or capability, weights) <= limit


@pytest.mark.parametrize(("place", "tiles"), list(enumerate(PORTABLE_GATED)))
def test_every_candidate_for_gate_and_up(place: int, tiles: PortableTiles, guarded: list[Tensor]) -> None:
    if not fits(tiles, 2):
        pytest.skip("its shared memory is too small")
    *tensors, _ = inputs(*SHAPES[place % 2], BF16)
    found = portable.portable_gate_up(*tensors, "gelu_tanh", tiles)
    check_written(guarded)
    check(found, gated, *tensors)


@pytest.mark.parametrize(("place", "tiles"), list(enumerate(PORTABLE)))
def test_every_candidate_for_a_linear(place: int, tiles: PortableTiles, guarded: list[Tensor]) -> None:
    if not fits(tiles, 1):
        pytest.skip("its shared memory is too small")
    x, weight, _, bias = inputs(*SHAPES[place % 2], F16)
    found = portable.portable_linear(x, weight, bias, "gelu_tanh", tiles)
    check_written(guarded)
    check(found, linear, x, weight, bias)


@pytest.mark.parametrize(
    ("rows", "dim", "hidden"),
    [(1, 64, 8), (77, 136, 200), (64, 64, 64), (50, 100, 36), (33, 70, 22), (17, 35, 21), (5, 0, 24), (0, 64, 8)],
)
def test_any_size(rows: int, dim: int, hidden: int) -> None:
    """Also rows that 8, 4, 2 and 1 divide, none to sum, and none at all."""
    check_both(rows, dim, hidden, BF16, "gelu_tanh")


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_activations(activation: str, dtype: torch.dtype) -> None:
    check_both(*ODD, dtype, activation)


def check_both(rows: int, dim: int, hidden: int, dtype: torch.dtype, activation: str) -> None:
    x, gate, up, bias = inputs(rows, dim, hidden, dtype)
    found = portable.portable_gate_up(x, gate, up, activation, PORTABLE_GATED[-5])
    one = portable.portable_linear(x, gate, bias, activation, PORTABLE[-4])
    if not rows:
        assert found.shape == one.shape == (0, hidden)
        return
    check(found, gated, x, gate, up, activation)
    check(one, linear, x, gate, bias, activation)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_and_infinity_are_passed_on(activation: str) -> None:
    """By the row that holds them, and by no other one."""
    x, gate, up, _ = inputs(200, 64, 72, BF16)
    x[3, 5], x[190, 60] = math.nan, math.inf
    found = portable.portable_gate_up(x, gate, up, activation, PORTABLE_GATED[0])
    expected = gated(x, gate, up, activation)
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.isinf(), expected.isinf())
    rest = torch.ones(200, dtype=torch.bool, device="cuda")
    rest[[3, 190]] = False
    assert bool(found[rest].isfinite().all())


@pytest.mark.parametrize(("rows", "dim", "hidden"), [(270_000, 8192, 64), (270_000, 64, 8192)])
def test_more_elements_than_32_bits_count(rows: int, dim: int, hidden: int) -> None:
    """The last rows are as they are alone: in the same place of a tile, since 128 divides their number."""
    if torch.cuda.get_device_properties(0).total_memory < 16 * 2**30:
        pytest.skip("its memory is too small")
    gate, up = (torch.randn(hidden, dim, device="cuda", dtype=BF16) * dim**-0.5 for _ in range(2))
    x = torch.randn(rows, dim, device="cuda", dtype=BF16)
    assert rows * max(dim, hidden) > 2**31
    last = x[rows // 128 * 128 - 256 :].clone()
    for run in (
        lambda x: portable.portable_gate_up(x, gate, up, "silu", PORTABLE_GATED[0]),
        lambda x: portable.portable_linear(x, gate, None, "none", PORTABLE[0]),
    ):
        assert torch.equal(run(x)[-last.shape[0] :], run(last))


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_what_a_rough_tanh_does_to_small_results(dtype: torch.dtype) -> None:
    """All digits are gone where 1 + tanh cancels; above -0.5 the result is as good as bfloat16 can show."""
    z, units = activations.swept("rough_gelu_tanh", dtype)
    assert units[z < -2].max().item() > 2
    assert units[(z > -0.5) & (z < 4)].max().item() < (0.5 if dtype == BF16 else 4)


# What is compiled for an A100


@pytest.mark.parametrize("place", [0, 1, 3, 6, 7, 10, 11, 13])
@pytest.mark.parametrize(("rows", "dim", "hidden"), [ODD, (77, 128, 200)])
def test_a_kernel_for_an_a100(place: int, rows: int, dim: int, hidden: int, guarded: list[Tensor]) -> None:
    """The driver makes this GPU's machine code of PTX for compute capability 8.0: copies and products of Ampere."""
    dtype = F16 if place % 2 else BF16
    tiles = PORTABLE_GATED[place]
    if not fits(tiles, 2, compiled_for=80):
        pytest.skip("its shared memory is too small")
    *tensors, _ = inputs(rows, dim, hidden, dtype)
    found = absent_gpus.gate_up_for(80, tiles, dtype, dim, hidden)(*tensors)
    check_written(guarded)
    check(found, gated, *tensors)


@pytest.mark.parametrize("activation", ["gelu", "silu", "relu", "none"])
def test_activations_of_a_kernel_for_an_a100(activation: str) -> None:
    *tensors, _ = inputs(*ODD, BF16)
    found = absent_gpus.gate_up_for(80, PORTABLE_GATED[7], BF16, *ODD[1:], activation)(*tensors)
    check(found, gated, *tensors, activation)
