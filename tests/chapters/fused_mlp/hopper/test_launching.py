"""On a Hopper GPU: tuning, launchers, CUDA graphs, torch.compile."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from snippets.fused_mlp.geglu import hopper, launch, model, operators, pingpong_kernels, plans, support, tuning
from tests.chapters.fused_mlp.checks import BF16, OPERATORS, check, fused, inputs, mlp

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(60, method="thread")]


@pytest.mark.usefixtures("tuned")
def test_tuning_is_done_once_and_its_choice_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    x, gate, up, _ = inputs(77, 72, 136, BF16)
    first = model.gate_up(x, gate, up, "gelu_tanh"), model.linear(x, gate, None, "gelu")
    (works,) = tuning.TIMES_US.values()
    assert list(works) == ["gate_up gelu_tanh 128x72x136 bfloat16", "linear gelu 128x72x136 bfloat16"]
    for times_us in works.values():
        assert len(times_us) > 4
        assert all(1 < time_us < 1000 for time_us in times_us.values())

    def again(ways: tuning.Ways) -> dict[str, float]:
        raise AssertionError("tuned a second time")

    monkeypatch.setattr(tuning, "timed", again)
    for _ in range(2):
        assert torch.equal(model.gate_up(x, gate, up, "gelu_tanh"), first[0])
        assert torch.equal(model.linear(x, gate, None, "gelu"), first[1])
        plans.PLANS.clear()


def test_a_second_call_is_launched_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """And gives the same bits, also for tensors elsewhere."""
    module = fused(768, 3072, BF16)
    batches = [torch.randn(1000, 768, device="cuda", dtype=BF16) for _ in range(3)]
    expected = [module(x) for x in batches]
    again = [module(x) for x in batches]

    def by_triton(*_: object) -> None:
        raise AssertionError("prepared before")

    monkeypatch.setattr(launch.Launch, "launch_by_triton", by_triton)
    ways = plans.planned(operators.plan_forward, "gelu_tanh", batches[0], *module.parameters())
    hidden, out = batches[0].new_empty(1000, 3072), torch.empty_like(batches[0])
    monkeypatch.undo()
    ways[0](batches[0], module.gate_proj.weight, module.up_proj.weight, hidden)
    ways[1](hidden, module.down_proj.weight, out)
    monkeypatch.setattr(launch.Launch, "launch_by_triton", by_triton)
    for _ in range(2):
        ways[0](batches[0], module.gate_proj.weight, module.up_proj.weight, hidden)
        ways[1](hidden, module.down_proj.weight, out)
    assert torch.equal(out, expected[0])
    assert [torch.equal(one, other) for one, other in zip(again, expected, strict=True)] == 3 * [True]


def captured(module: nn.Module, x: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = module(x)
    return graph, out


@pytest.mark.parametrize("rows", [1, 1000])
def test_a_graph_takes_new_inputs(rows: int) -> None:
    module = fused(768, 3072, BF16)
    batches = [torch.randn(rows, 768, device="cuda", dtype=BF16) for _ in range(3)]
    expected = [module(x) for x in batches]
    static = batches[0].clone()
    graph, out = captured(module, static)
    for x, one in zip([*batches, *batches], [*expected, *expected], strict=True):
        static.copy_(x)
        graph.replay()
        assert torch.equal(out, one)


@pytest.mark.usefixtures("tuned")
def test_a_graph_of_a_size_that_was_never_tuned() -> None:
    """Nothing can be timed while a graph is captured: the first candidate is taken, and the choice stays open."""
    module = fused(88, 104, BF16)
    x = torch.randn(333, 88, device="cuda", dtype=BF16)
    pingpong_kernels.pingpong_kernel.device_caches.clear()  # so that the kernels are also loaded for the first time
    hopper.pingpong_launch.cache_clear()
    torch.cuda.synchronize()
    graph, out = captured(module, x)
    assert tuning.TIMES_US == {}
    graph.replay()
    weights = [layer.weight for layer in (module.gate_proj, module.up_proj, module.down_proj)]
    check(out, mlp, x, *weights)


@pytest.mark.filterwarnings("default")  # those of the compiler's own libraries are not ours to fail on
@pytest.mark.timeout(150, method="thread")
@pytest.mark.parametrize("recompute", [True, "hidden", False])
def test_compiled_is_eager(recompute: bool | str) -> None:
    torch._dynamo.reset()
    module = fused(72, 136, BF16, recompute=recompute)
    compiled = torch.compile(module, fullgraph=True)
    for rows in (129, 77, 65):
        x = torch.randn(rows, 72, device="cuda", dtype=BF16)
        assert torch.equal(compiled(x), module(x))
    module.requires_grad_()
    x = torch.randn(3, 43, 72, device="cuda", dtype=BF16)
    weights = list(module.parameters())
    answers = [(out, *torch.autograd.grad(out.sum(), weights)) for out in (compiled(x), module(x))]
    for found, expected in zip(*answers, strict=True):
        assert (found - expected).norm().item() <= 4e-3 * expected.norm().item()  # the order of a sum may differ
    assert not support.SAID


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_operators_are_what_they_say(operator: str, layout: str) -> None:
    """Schema, fake implementation (strides too), gradients, tracing with sizes that are symbols."""
    x, gate, up, _ = inputs(15, 72, 136, BF16)
    down = up.t().contiguous()
    d_out, g, u = (torch.randn(3, 5, 136, device="cuda", dtype=BF16) for _ in range(3))
    x = x.view(3, 5, 72)
    if layout == "transposed":
        x, gate = x.transpose(0, 1), gate.t().contiguous().t()
        d_out, g, u = (tensor.transpose(0, 1) for tensor in (d_out, g, u))

    def leaves(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.detach().requires_grad_() for tensor in tensors)

    saved = torch.cat([g, u], dim=-1).reshape(15, 272)
    act = ("gelu_tanh",)
    for arguments in {
        "gated_activation": [(*leaves(g, u), *act)],
        "gated_activation_backward": [(d_out, g, u, *act)],
        "gate_up": [(*leaves(x, gate, up), *act)],
        "gate_up_saved": [(x.reshape(15, 72), gate, up, *act)],
        "pre_backward": [(x.reshape(15, 72), down, saved, *act, has_hidden) for has_hidden in (False, True)],
        "x_backward": [(saved, gate, up)],
        "trained": [(*leaves(x, gate, up, down), *act, kept) for kept in (3, 2, 0)],
        "linear": [(x, gate, None, *act), (x, gate, gate[:, 0].contiguous(), *act)],
        "forward": [(x, gate, up, down, *act)],
    }[operator]:
        torch.library.opcheck(OPERATORS[operator], arguments)
