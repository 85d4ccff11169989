"""The kernels for few tokens on whatever GPU is there: every candidate at odd sizes, the same bits each time, and what
the kernel before writes is seen although they start before its end."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from snippets.fused_mlp.geglu import few_tokens, portable
from snippets.fused_mlp.geglu.few_tokens import FEW_GATE_UP, FEW_LINEAR, ONE_TOKEN, FewTiles
from snippets.fused_mlp.geglu.support import gated_reference
from snippets.fused_mlp.geglu.ways import is_hopper
from tests.chapters.fused_mlp.test_portable_gpu import GUARD, check, check_guards, gated, inputs, linear

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120, method="thread")]

BF16, F16 = torch.bfloat16, torch.float16
SIZES = [(72, 136), (1000, 264), (224, 72)]
"""Dim and hidden: no multiples of a block, nor of 16."""
DEVICE = torch.device("cuda", 0)
Run = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    torch.manual_seed(0)


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Results and the sums of slices are made inside buffers filled with NaN."""
    buffers: list[Tensor] = []

    def new_empty(like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        buffer = torch.full((math.prod(shape) + 2 * GUARD,), math.nan, dtype=dtype or like.dtype, device=like.device)
        buffers.append(buffer)
        return buffer[GUARD:-GUARD].view(shape)

    monkeypatch.setattr(torch.Tensor, "new_empty", new_empty)
    return buffers


def fits(tiles: FewTiles, gated: bool) -> bool:
    capability, limit = portable.limits(DEVICE)
    return few_tokens.shared_bytes(tiles, gated, 2, capability) <= limit


def candidates(rows: int, dim: int, gated: bool) -> list[tuple[str, Run]]:
    """Name and function of (x, gate, up, activation) or (x, weight, bias, activation), for this GPU."""
    block_m = few_tokens.tokens_of_a_tile(rows)
    found: list[tuple[str, Run]] = []
    for tiles in (*(ONE_TOKEN if rows == 1 else ()), *(FEW_GATE_UP if gated else FEW_LINEAR)):
        tiles = tiles if tiles.block_m == 1 else tiles._replace(block_m=block_m)
        if (tiles.block_m == 1 or tiles.block_m <= 16 or tiles.parts == 1) and fits(tiles, gated):
            run = few_tokens.few_tokens_gate_up if gated else few_tokens.few_tokens_linear
            found.append((tiles.name, lambda *given, run=run, tiles=tiles: run(*given, tiles)))
    if is_hopper(DEVICE):
        from snippets.fused_mlp.geglu import few_tokens_hopper

        run = few_tokens_hopper.few_tokens_hopper_gate_up if gated else few_tokens_hopper.few_tokens_hopper_linear
        for tiles in few_tokens_hopper.hopper_tiles(rows, dim, gated):
            found.append((f"Hopper {tiles.name}", lambda *given, run=run, tiles=tiles: run(*given, tiles)))
    return found


@pytest.mark.parametrize(("dim", "hidden"), SIZES)
@pytest.mark.parametrize("rows", [1, 3, 16, 17, 64])
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_every_candidate(rows: int, dim: int, hidden: int, dtype: torch.dtype, guarded: list[Tensor]) -> None:
    """As exact as plain PyTorch; nothing beside the result, and the same bits each time."""
    x, gate, up, bias = inputs(rows, dim, hidden, dtype)
    right = gated_reference(x, gate, up, "gelu_tanh")
    plain = gated(x, gate, up, "gelu_tanh")
    for name, run in candidates(rows, dim, gated=True):
        guarded.clear()
        found = run(x, gate, up, "gelu_tanh")
        check_guards(guarded)
        check(found, plain, right)
        assert torch.equal(run(x, gate, up, "gelu_tanh"), found), name
    right = linear(x.double(), gate.double(), bias.double(), "silu")
    plain = linear(x, gate, bias, "silu")
    for name, run in candidates(rows, dim, gated=False):
        guarded.clear()
        found = run(x, gate, bias, "silu")
        check_guards(guarded)
        check(found, plain, right)
        assert torch.equal(run(x, gate, bias, "silu"), found), name


@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu", "silu", "relu", "none"])
def test_every_activation(activation: str) -> None:
    x, gate, up, _ = inputs(5, 136, 200, BF16)
    right, plain = gated_reference(x, gate, up, activation), gated(x, gate, up, activation)
    for _, run in candidates(5, 136, gated=True):
        check(run(x, gate, up, activation), plain, right)


@pytest.mark.parametrize("rows", [1, 16])
def test_what_the_kernel_before_writes_is_seen(rows: int) -> None:
    """x and both weights are copied right before each run, a graph of twenty: of weights only the cache may know."""
    sets = [inputs(rows, 4096, 1032, BF16)[:3] for _ in range(2)]
    x, gate, up = (torch.empty_like(one) for one in sets[0])
    for name, run in candidates(rows, 4096, gated=True):
        expected = []
        for one in sets:
            torch.cuda.synchronize()
            expected.append(run(*one, "silu"))
            torch.cuda.synchronize()
        run(*sets[0], "silu")
        outs = []
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for number in range(20):
                for to, source in zip((x, gate, up), sets[number % 2], strict=True):
                    to.copy_(source)
                outs.append(run(x, gate, up, "silu"))
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        for number, out in enumerate(outs):
            assert torch.equal(out, expected[number % 2]), f"{name}: run {number}"


@pytest.mark.parametrize("rows", [1, 16, 64])
def test_a_second_product_that_starts_early(rows: int) -> None:
    """Behind the first one its weights come before the wait, its input after it: each of twenty pairs in a graph has
    the bits of one alone, and weights that were copied before the pair are seen."""
    if not is_hopper(DEVICE):
        pytest.skip("for Hopper")
    from snippets.fused_mlp.geglu import few_tokens_hopper as hopper

    sets = [inputs(rows, 4096, 4096, BF16)[:3] for _ in range(2)]
    downs = [torch.randn(4096, 4096, device="cuda", dtype=BF16) / 64 for _ in range(2)]
    down = torch.empty_like(downs[0])
    for first in hopper.hopper_tiles(rows, 4096, gated=True)[:3]:
        for second in hopper.hopper_tiles(rows, 4096, gated=False):
            expected = []
            for (x, gate, up), one in zip(sets, downs, strict=True):
                hidden = hopper.few_tokens_hopper_gate_up(x, gate, up, "silu", first)
                torch.cuda.synchronize()
                expected.append(hopper.few_tokens_hopper_linear(hidden, one, None, "none", second))
                torch.cuda.synchronize()
            hopper.few_tokens_hopper_linear(hidden, one, None, "none", second, weights_first=True)
            outs = []
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for number in range(20):
                    x, gate, up = sets[number % 2]
                    down.copy_(downs[number % 2])
                    hidden = hopper.few_tokens_hopper_gate_up(x, gate, up, "silu", first)
                    outs.append(hopper.few_tokens_hopper_linear(hidden, down, None, "none", second, weights_first=True))
            for _ in range(3):
                graph.replay()
            torch.cuda.synchronize()
            for number, out in enumerate(outs):
                assert torch.equal(out, expected[number % 2]), f"{first.name}, {second.name}: pair {number}"


@pytest.mark.parametrize("rows", [1, 16])
def test_two_streams_at_once(rows: int) -> None:
    """Nothing is kept between runs that another one could take for its own."""
    x, weight, _, bias = inputs(rows, 4096, 4096, BF16)
    other = inputs(rows, 4096, 4096, BF16)
    streams = [torch.cuda.Stream() for _ in range(2)]
    for name, run in candidates(rows, 4096, gated=False):
        expected = run(x, weight, bias, "none"), run(other[0], other[1], other[3], "none")
        torch.cuda.synchronize()
        outs: list[list[Tensor]] = [[], []]
        for _ in range(20):
            for place, (stream, given) in enumerate(
                zip(streams, ((x, weight, bias), (*other[:2], other[3])), strict=True)
            ):
                with torch.cuda.stream(stream):
                    outs[place].append(run(*given, "none"))
        torch.cuda.synchronize()
        for right, found in zip(expected, outs, strict=True):
            assert all(torch.equal(right, one) for one in found), name


def test_nan_is_passed_on_by_its_token_alone() -> None:
    x, gate, up, _ = inputs(16, 264, 72, BF16)
    x[3, 5] = math.nan
    for name, run in candidates(16, 264, gated=True):
        found = run(x, gate, up, "silu")
        assert bool(found[3].isnan().all()), name
        assert int(found.isnan().sum()) == found.shape[1], name
