"""On a Hopper GPU: the same inputs give the same bits, whatever else runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from snippets.fused_mlp.geglu.hopper import PINGPONG, PINGPONG_GATED, SMALL, pingpong, small_linear
from tests.chapters.fused_mlp.checks import BF16, ODD, SERIES, fused, inputs

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(60, method="thread")]


@pytest.mark.parametrize(("rows", "dim", "hidden"), [SERIES, ODD])
def test_same_inputs_same_bits(rows: int, dim: int, hidden: int) -> None:
    """A race shows as a bit that differs, sooner or later."""
    x, gate, up, _ = inputs(rows, dim, hidden, BF16)
    for tiles in PINGPONG_GATED:
        (first,) = pingpong(x, gate, up, None, "gelu_tanh", tiles)
        differ = torch.zeros((), dtype=torch.int64, device="cuda")
        for _ in range(100):
            differ += (pingpong(x, gate, up, None, "gelu_tanh", tiles)[0] != first).sum()
        assert (tiles, differ.item()) == (tiles, 0)


@pytest.mark.parametrize("rows", [64, 2048])
@pytest.mark.parametrize("layers", ["ping-pong", "small", "both"])
def test_a_kernel_begins_before_the_one_before_it_has_ended(layers: str, rows: int) -> None:
    """Each reads what the one before it wrote; with a pause between them the bits are the same."""
    starts = [torch.randn(rows, 768, device="cuda", dtype=BF16) for _ in range(4)]
    _, wide, up, _ = inputs(8, 768, 3072, BF16)
    narrow = wide.t().contiguous()
    first, second = (
        {
            "small": lambda x, weight: small_linear(x, weight, None, "gelu_tanh", SMALL[0]),
            "ping-pong": lambda x, weight: pingpong(x, weight, None, None, "gelu_tanh", PINGPONG[0])[0],
            "gated": lambda x, weight: pingpong(x, weight, up, None, "gelu_tanh", PINGPONG_GATED[0])[0],
        }[name]
        for name in {"ping-pong": ("gated", "ping-pong"), "small": 2 * ("small",), "both": ("gated", "small")}[layers]
    )

    def chain(pause: Callable[[], None]) -> Tensor:
        x = torch.empty_like(starts[0])
        total = torch.zeros_like(x)
        for step in range(40):
            x.copy_(starts[step % 4])
            pause()
            for _ in range(2):
                hidden = first(x, wide)
                pause()
                x = second(hidden, narrow)
                pause()
            total += x
        return total

    expected = chain(torch.cuda.synchronize)
    assert bool(expected.isfinite().all())
    for _ in range(3):
        assert torch.equal(chain(lambda: None), expected)


def test_several_streams_at_once() -> None:
    module = fused(768, 3072, BF16)
    batches = [torch.randn(1000 + 8 * place, 768, device="cuda", dtype=BF16) for place in range(4)]
    expected = [module(x) for x in batches]
    streams = [torch.cuda.Stream() for _ in batches]
    torch.cuda.synchronize()
    found: list[list[Tensor]] = [[] for _ in batches]
    for _ in range(20):
        for place, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found[place].append(module(batches[place]))
    torch.cuda.synchronize()
    for answers, one in zip(found, expected, strict=True):
        assert [torch.equal(answer, one) for answer in answers] == 20 * [True]
