"""The kernels for few tokens on whatever GPU is there: every candidate at odd sizes, the same bits each time, and what
the kernel before writes is seen although they start before its end."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from snippets.fused_mlp.geglu import few_tokens, few_tokens_hopper as hopper
from snippets.fused_mlp.geglu.launch import Launch, compile_together
from snippets.fused_mlp.geglu.ways import is_hopper
from snippets.fused_mlp.geglu.work import sizes_of
from tests.chapters.fused_mlp.checks import ACTIVATIONS, BF16, F16, gated, inputs, linear
from tests.chapters.fused_mlp.test_portable_gpu import check
from tests.chapters.guarded import check_written

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120, method="thread")]

SIZES = [(72, 136), (1056, 136)]
"""Dim and hidden: no multiples of a block; 16 divides one of them, 32 too, so that its rows have parts."""
DEVICE = torch.device("cuda", 0)
Run = Callable[..., Tensor]


def candidates(activation: str, x: Tensor, weight: Tensor, *others: Tensor, gated: bool) -> list[tuple[str, Run]]:
    """Name and function of (x, gate, up) or (x, weight, bias if there is one), for this GPU; compiled together."""
    sizes = sizes_of(x, weight)
    has_bias = bool(others) and not gated
    rows = sizes.rows
    ways = {
        tiles.name: few_tokens.few_tokens_way(sizes, tiles, activation, gated, has_bias)
        for tiles in few_tokens.fitting(sizes, gated)
    }
    if is_hopper(DEVICE):
        ways |= {
            f"Hopper {tiles.name}": hopper.few_tokens_hopper_way(sizes, tiles, activation, gated, has_bias)
            for tiles in hopper.hopper_tiles(rows, sizes.dim, gated)
        }

    def run(way: Launch, *tensors: Tensor) -> Tensor:
        out = x.new_empty(rows, sizes.outputs)
        way(*tensors, out)
        return out

    compile_together(ways.values(), x, weight, *others, torch.empty(rows, sizes.outputs, dtype=x.dtype, device="cuda"))
    return [(name, functools.partial(run, way)) for name, way in ways.items()]


@pytest.mark.parametrize(("dim", "hidden"), SIZES)
@pytest.mark.parametrize(("rows", "dtype"), [(1, BF16), (3, BF16), (16, BF16), (16, F16), (17, BF16), (64, BF16)])
def test_every_candidate(rows: int, dtype: torch.dtype, dim: int, hidden: int, guarded: list[Tensor]) -> None:
    """As exact as plain PyTorch; nothing beside the result, and the same bits each time."""
    x, gate, up, bias = inputs(rows, dim, hidden, dtype)
    for plain, activation, given in ((gated, "gelu_tanh", (x, gate, up)), (linear, "silu", (x, gate, bias))):
        for name, run in candidates(activation, *given, gated=plain is gated):
            guarded.clear()
            found = run(*given)
            check_written(guarded)
            check(found, plain, *given, activation)
            assert torch.equal(run(*given), found), name


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation(activation: str) -> None:
    x, gate, up, _ = inputs(5, 136, 200, BF16)
    for _, run in candidates(activation, x, gate, up, gated=True):
        check(run(x, gate, up), gated, x, gate, up, activation)


def check_replays(graph: torch.cuda.CUDAGraph, outs: list[Tensor], expected: list[Tensor], name: str) -> None:
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert [torch.equal(out, expected[number % 2]) for number, out in enumerate(outs)] == [True] * len(outs), name


@pytest.mark.parametrize("rows", [1, 16])
def test_what_the_kernel_before_writes_is_seen(rows: int) -> None:
    """x and both weights are copied right before each run, a graph of twenty: of weights only the cache may know."""
    sets = [inputs(rows, 4096, 1032, BF16)[:3] for _ in range(2)]
    x, gate, up = (torch.empty_like(one) for one in sets[0])
    for name, run in candidates("silu", x, gate, up, gated=True):
        expected = []
        for one in sets:
            torch.cuda.synchronize()
            expected.append(run(*one))
            torch.cuda.synchronize()
        run(x, gate, up)
        outs = []
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for number in range(20):
                for to, source in zip((x, gate, up), sets[number % 2], strict=True):
                    to.copy_(source)
                outs.append(run(x, gate, up))
        check_replays(graph, outs, expected, name)


@pytest.mark.parametrize("rows", [1, 16])
def test_a_second_product_that_starts_early(rows: int) -> None:
    """Behind the first one its weights come before the wait, its input after it: each of twenty pairs in a graph has
    the bits of one alone, and weights that were copied before the pair are seen."""
    if not is_hopper(DEVICE):
        pytest.skip("for Hopper")
    width = 4096
    sets = [inputs(rows, width, width, BF16)[:3] for _ in range(2)]
    downs = [torch.randn(width, width, device="cuda", dtype=BF16) / 64 for _ in range(2)]
    down, hidden, out = torch.empty_like(downs[0]), torch.empty_like(sets[0][0]), torch.empty_like(sets[0][0])
    sizes = sizes_of(hidden, down)
    cuts = hopper.hopper_tiles(rows, width, gated=False)
    first = hopper.few_tokens_hopper_way(sizes, hopper.hopper_tiles(rows, width, gated=True)[0], "silu", gated=True)
    alone, early = (
        [hopper.few_tokens_hopper_way(sizes, tiles, "none", weights_first=is_early) for tiles in cuts]
        for is_early in (False, True)
    )
    compile_together([*alone, *early], hidden, down, out)
    for tiles, late, second in zip(cuts, alone, early, strict=True):
        expected = []
        for (x, gate, up), one in zip(sets, downs, strict=True):
            for way, given in ((first, (x, gate, up, hidden)), (late, (hidden, one, out))):
                way(*given)
                torch.cuda.synchronize()
            expected.append(out.clone())
        outs = [torch.empty_like(out) for _ in range(20)]
        second(hidden, down, out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for number, result in enumerate(outs):
                down.copy_(downs[number % 2])
                first(*sets[number % 2], hidden)
                second(hidden, down, result)
        check_replays(graph, outs, expected, tiles.name)


@pytest.mark.parametrize("rows", [1, 16])
def test_two_streams_at_once(rows: int) -> None:
    """Nothing is kept between runs that another one could take for its own."""
    sets = [(x, weight, bias) for x, weight, _, bias in (inputs(rows, 4096, 4096, BF16) for _ in range(2))]
    streams = [torch.cuda.Stream() for _ in sets]
    for name, run in candidates("none", *sets[0], gated=False):
        expected = [run(*given) for given in sets]
        torch.cuda.synchronize()
        outs: list[list[Tensor]] = [[], []]
        for _ in range(20):
            for stream, given, found in zip(streams, sets, outs, strict=True):
                with torch.cuda.stream(stream):
                    found.append(run(*given))
        torch.cuda.synchronize()
        for right, found in zip(expected, outs, strict=True):
            assert all(torch.equal(right, one) for one in found), name


def test_nan_is_passed_on_by_its_token_alone() -> None:
    x, gate, up, _ = inputs(16, 264, 72, BF16)
    x[3, 5] = math.nan
    for name, run in candidates("silu", x, gate, up, gated=True):
        found = run(x, gate, up)
        assert bool(found[3].isnan().all()), name
        assert int(found.isnan().sum()) == found.shape[1], name
