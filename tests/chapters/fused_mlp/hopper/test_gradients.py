"""On a Hopper GPU: gradients as exact as plain PyTorch's, in the memory that is planned."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from snippets.fused_mlp.geglu import hopper, joined, model, support
from snippets.fused_mlp.geglu.hopper import PINGPONG_BACKWARD
from snippets.fused_mlp.geglu.work import BackwardTiles, sizes_of
from tests.chapters.fused_mlp.checks import (
    ACTIVATIONS,
    BF16,
    F16,
    ODD,
    SERIES,
    check_errors,
    fused,
    gated,
    inputs,
    mlp,
)

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(60, method="thread")]
each_recompute = pytest.mark.parametrize("recompute", [True, "hidden", False])


def gradients_of(function: Callable[..., Tensor], tensors: Sequence[Tensor], d_out: Tensor) -> list[Tensor]:
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    return list(torch.autograd.grad(function(*leaves), leaves, d_out.to(leaves[0].dtype)))


def check_gradients(
    found: Callable[..., Tensor], eager: Callable[..., Tensor], tensors: Sequence[Tensor], d_out: Tensor
) -> None:
    exact = gradients_of(eager, [tensor.double() for tensor in tensors], d_out)
    for triple in zip(gradients_of(found, tensors, d_out), gradients_of(eager, tensors, d_out), exact, strict=True):
        check_errors(*triple, times_eager=2.0)


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_of_the_parts(activation: str, dtype: torch.dtype) -> None:
    """Of the pointwise kernel, and of gate and up."""
    gate, up, d_out = (2 * torch.randn(129, 136, device="cuda", dtype=dtype) for _ in range(3))
    check_gradients(
        lambda *tensors: model.gated_activation(*tensors, activation),
        lambda gate, up: support.act(gate, activation) * up,
        (gate, up),
        d_out,
    )
    check_gradients(
        lambda *tensors: model.gate_up(*tensors, activation),
        lambda *tensors: gated(*tensors, activation),
        inputs(*ODD, dtype)[:3],
        torch.randn(129, 136, device="cuda", dtype=dtype),
    )


BACKWARD = [
    *((PINGPONG_BACKWARD[0], shape, has_hidden)
      for shape in [(*ODD, BF16), (*ODD, F16), (1, 64, 8, BF16), (100, 776, 3080, BF16), (*SERIES, BF16)]
      for has_hidden in (True, False)),
    # each of them is compiled for each case
    *((tiles, (100, 776, 3080, BF16), True) for tiles in PINGPONG_BACKWARD[1:]),
    *((tiles, (*SERIES, BF16), False) for tiles in PINGPONG_BACKWARD[1:]),
]  # fmt: skip


@pytest.mark.parametrize(("tiles", "shape", "has_hidden"), BACKWARD, ids=lambda value: getattr(value, "name", None))
def test_the_kernel_of_the_backward_pass(
    tiles: BackwardTiles, shape: tuple[int, int, int, torch.dtype], has_hidden: bool
) -> None:
    """As exact as the same two steps of plain PyTorch, which rounds in between, or more; also over what it reads."""
    rows, dim, hidden, dtype = shape
    d_out = torch.randn(rows, dim, device="cuda", dtype=dtype)
    down = (torch.randn(dim, hidden, device="cuda") / dim**0.5).to(dtype)
    pre = torch.randn(rows, 2 * hidden, device="cuda", dtype=dtype)
    for activation in ACTIVATIONS if shape == (*ODD, BF16) else ("gelu_tanh",):
        found = list(hopper.pingpong_backward(d_out, down, *pre.chunk(2, 1), activation, tiles, has_hidden))
        launch = hopper.pingpong_backward_launch(sizes_of(d_out, down.t()), tiles, activation, has_hidden)
        over = pre.clone()
        launch(d_out, down, *over.chunk(2, 1), *over.chunk(2, 1), *(torch.empty_like(one) for one in found[1:]))
        assert torch.equal(over, found[0])
        eager, exact = (
            training_reference(d_out.to(kind), down.to(kind), pre.to(kind), activation)[: len(found)]
            for kind in (dtype, torch.float64)
        )
        for triple in zip(found, eager, exact, strict=True):
            check_errors(*triple, times_eager=2.0)


def test_the_backward_pass_gives_the_same_bits_a_hundred_times() -> None:
    """With one block of K for each tile, where the roles overtake each other the most."""
    d_out, down = torch.randn(4096, 64, device="cuda", dtype=BF16), torch.randn(64, 2048, device="cuda", dtype=BF16)
    pre = torch.randn(4096, 2 * 2048, device="cuda", dtype=BF16)

    def run() -> tuple[Tensor, ...]:
        return hopper.pingpong_backward(d_out, down, *pre.chunk(2, 1), "gelu_tanh", PINGPONG_BACKWARD[0])

    first = run()
    for _ in range(100):
        assert all(torch.equal(one, other) for one, other in zip(run(), first, strict=True))


def training_reference(d_out: Tensor, down: Tensor, pre: Tensor, activation: str) -> list[Tensor]:
    """The gradient of the pre-activations, and the hidden tensor."""
    pre = pre.detach().requires_grad_()
    g, u = pre.chunk(2, 1)
    product = support.act(g, activation) * u
    return [*torch.autograd.grad(product, pre, d_out @ down), product.detach()]


@each_recompute
@pytest.mark.parametrize("layers", [1, 2])
def test_gradients_of_the_module(layers: int, recompute: bool | str) -> None:
    """With two layers the same weights are used twice, and gradients add up."""
    x, gate, up, _ = inputs(1000, 136, 200, BF16)
    down = (torch.randn(136, 200, device="cuda") / 200**0.5).to(BF16)
    d_out = torch.randn(1000, 136, device="cuda", dtype=BF16)

    def ours(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        for _ in range(layers):
            x = x + model.gated_mlp(x, gate, up, down, recompute=recompute)
        return x

    def eager(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        for _ in range(layers):
            x = x + mlp(x, gate, up, down)
        return x

    check_gradients(ours, eager, (x, gate, up, down), d_out)


@each_recompute
def test_backward_changes_nothing_that_is_kept(recompute: bool | str) -> None:
    """A second pass through the same graph finds what the first one found."""
    module = fused(72, 136, BF16, recompute=recompute).requires_grad_()
    x = torch.randn(129, 72, device="cuda", dtype=BF16)
    weights = list(module.parameters())
    out = module(x).sum()  # whose gradient is one element, expanded
    first = torch.autograd.grad(out, weights, retain_graph=True)
    second = torch.autograd.grad(out, weights)
    assert [torch.equal(one, other) for one, other in zip(first, second, strict=True)] == 3 * [True]


@each_recompute
def test_weights_of_one_storage_have_the_same_gradients(recompute: bool | str) -> None:
    module = fused(136, 200, BF16, recompute=recompute).requires_grad_()
    assert joined.are_joined(module.gate_proj, module.up_proj)
    parted = copy.deepcopy(module)
    assert not joined.are_joined(parted.gate_proj, parted.up_proj)
    x, d_out = (torch.randn(1000, 136, device="cuda", dtype=BF16) for _ in range(2))
    x.requires_grad_()
    found, expected = (torch.autograd.grad(one(x), [x, *one.parameters()], d_out) for one in (module, parted))
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one.float(), other.float(), rtol=2**-6, atol=2**-6 * float(other.abs().max()))


@each_recompute
def test_training_in_a_graph(recompute: bool | str) -> None:
    module = fused(136, 200, BF16, recompute=recompute).requires_grad_()
    weights = list(module.parameters())
    x, d_out = (torch.randn(1000, 136, device="cuda", dtype=BF16) for _ in range(2))

    def step() -> tuple[Tensor, ...]:
        out = module(x)
        return (out.detach(), *torch.autograd.grad(out, weights, d_out))

    # all on one stream: autograd warns of weights that were used on another one
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        expected = step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = step()
    for _ in range(3):
        graph.replay()
    assert [torch.equal(one, other) for one, other in zip(found, expected, strict=True)] == 4 * [True]


@each_recompute
def test_the_peak_of_a_training_step(recompute: bool | str) -> None:
    """Three tensors of the hidden size, the result, and the gradient of a weight."""
    rows, dim, hidden = SERIES
    module = fused(dim, hidden, BF16, recompute=recompute).requires_grad_()
    weights = list(module.parameters())
    x, d_out = (torch.randn(rows, dim, device="cuda", dtype=BF16) for _ in range(2))
    x.requires_grad_()
    weights.insert(0, x)
    torch.autograd.grad(module(x), weights, d_out)  # plans, with tensors to time; the workspace of cuBLAS
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.autograd.grad(module(x), weights, d_out)
    peak = torch.cuda.max_memory_allocated() - before
    assert peak == 2 * (3 * rows * hidden + rows * dim + dim * hidden)
