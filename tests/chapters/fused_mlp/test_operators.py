"""The operators' calls of the kernels, with plain PyTorch in the kernels' place: no GPU is needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from snippets.fused_mlp.geglu import model, operators, plans, support
from snippets.fused_mlp.geglu.model import FusedGeGLU
from snippets.fused_mlp.geglu.work import Sizes
from tests.chapters.fused_mlp.checks import BF16

Calls = list[tuple[str, tuple[tuple[int, ...], ...]]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Kernels that run here, and the name and shapes of each call."""
    seen: Calls = []

    def recorded(name: str, run: Callable[..., None]) -> Callable[..., None]:
        def way(*tensors: Tensor) -> None:
            assert all(one.is_contiguous() and one.data_ptr() % 16 == 0 for one in tensors)
            seen.append((name, tuple(tuple(one.shape) for one in tensors)))
            run(*tensors)

        return way

    def gate_up(activation: str) -> Callable[..., None]:
        def run(x: Tensor, gate: Tensor, up: Tensor, out: Tensor, *saved: Tensor) -> None:
            out.copy_(support.plain_gate_up(x, gate, up, activation).view(out.shape))
            for one, weight in zip(saved, (gate, up), strict=False):
                one.copy_(F.linear(x, weight).view(one.shape))

        return run

    def linear(activation: str) -> Callable[..., None]:
        def run(x: Tensor, weight: Tensor, *others: Tensor) -> None:
            *bias, out = others
            out.copy_(support.act(F.linear(x, weight, *bias), activation).view(out.shape))

        return run

    def gate_up_ways(sizes: Sizes, activation: str, only_portable: bool = False) -> dict[str, Callable[..., None]]:
        names = ("portable",) if only_portable else ("first", "second")
        return {name: recorded(f"{name} gate_up {sizes.name}", gate_up(activation)) for name in names}

    def linear_ways(
        sizes: Sizes, activation: str, has_bias: bool, only_portable: bool = False, before: object = None
    ) -> dict[str, Callable[..., None]]:
        return {"linear": recorded(f"linear {activation} {sizes.name}", linear(activation))}

    monkeypatch.setattr(plans, "unsupported", lambda *_, **__: "")
    monkeypatch.setattr(model, "unsupported", lambda *_, **__: "")
    monkeypatch.setattr(operators, "gate_up_ways", gate_up_ways)
    monkeypatch.setattr(operators, "linear_ways", linear_ways)
    monkeypatch.setattr(plans.tuning, "choose", lambda work, ways, _: list(ways)[-1])
    return seen


def weights() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(16, 8), torch.randn(16, 8), torch.randn(8, 16)


def test_the_forward_is_two_kernels(calls: Calls) -> None:
    x, (gate, up, down) = torch.randn(2, 3, 8), weights()
    found = model.gated_mlp(x, gate, up, down, "silu")
    assert torch.allclose(found, support.plain_gate_up(x, gate, up, "silu") @ down.t())
    shapes = ((2, 3, 8), (16, 8), (16, 8), (2, 3, 16))
    assert calls == [
        ("second gate_up 8x8x16 float32", shapes),
        ("linear none 8x16x8 float32", ((2, 3, 16), (8, 16), (2, 3, 8))),
    ]
    model.gated_mlp(x, gate, up, down, "silu")
    assert len(calls) == 4
    assert len(plans.PLANS) == 1


def test_the_portable_forward_takes_other_ways(calls: Calls) -> None:
    x, (gate, up, down) = torch.randn(3, 8), weights()
    found = operators.portable_forward(x, gate, up, down, "relu")
    assert torch.equal(found, operators.forward(x, gate, up, down, "relu"))
    assert [name.split()[0] for name, _ in calls] == ["portable", "linear", "second", "linear"]
    assert torch.equal(operators.portable_gate_up(x, gate, up, "relu"), operators.gate_up(x, gate, up, "relu"))


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_linear(has_bias: bool, calls: Calls) -> None:
    x, (weight, *_), bias = torch.randn(3, 8), weights(), torch.randn(16) if has_bias else None
    found = model.linear(x, weight, bias, "relu")
    assert torch.equal(found, F.relu(F.linear(x, weight, bias)))
    assert calls == [("linear relu 4x8x16 float32", ((3, 8), (16, 8), *[(16,)] * has_bias, (3, 16)))]


def test_any_layout_is_made_ready(calls: Calls) -> None:
    gate, up, down = weights()
    x = torch.randn(3, 2, 8).transpose(0, 1)
    turned = gate.t().contiguous().t()
    shifted = torch.cat([down.flatten()[:1], down.flatten()])[1:].view(down.shape)
    expected = model.gated_mlp(x.contiguous(), gate, up, down)
    assert torch.equal(model.gated_mlp(x, turned, up, shifted), expected)
    assert len(calls) == 4


def test_compiled_it_is_one_graph(calls: Calls) -> None:
    torch._dynamo.reset()
    module, x = FusedGeGLU(8, 16).requires_grad_(False), torch.randn(3, 8)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), module(x))
    assert calls[0][0] == calls[len(calls) // 2][0], "the operator, also where a compiler holds it"


def test_under_autocast_the_kernels_see_its_type(calls: Calls) -> None:
    module, x = FusedGeGLU(8, 16).requires_grad_(False), torch.randn(3, 8)
    with torch.autocast("cpu", BF16):
        assert module(x).dtype == BF16
    assert calls[0][0].endswith("bfloat16")


def test_while_a_graph_is_captured_the_first_way_is_taken_and_nothing_kept(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans.tuning, "choose", lambda work, ways, _: None)
    x, (gate, up, down) = torch.randn(3, 8), weights()
    operators.forward(x, gate, up, down, "relu")
    assert calls[-2][0].startswith("first gate_up")
    assert plans.PLANS == {}
