"""The kernels on a Hopper GPU: as exact as plain PyTorch or more, at any shape, in any stream, in graphs and compiled.

What a wait that never ends would stop is stopped by a thread, since a signal cannot interrupt the driver.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from snippets.fused_mlp import activations
from snippets.fused_mlp.geglu import (
    gradients,
    hopper,
    hopper_kernels,
    joined,
    launch,
    model,
    operators,
    plans,
    preactivations,
    support,
    training,
    tuning,
)
from snippets.fused_mlp.geglu.hopper import (
    PINGPONG,
    PINGPONG_BACKWARD,
    PINGPONG_GATED,
    SMALL,
    STACKED,
    pingpong,
    small_linear,
    stacked_gate_up,
)
from snippets.fused_mlp.geglu.model import FusedGeGLU
from snippets.fused_mlp.geglu.work import BackwardTiles, Tiles, sizes_of
from snippets.mlp.model import GeGLU

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(60, method="thread")]

BF16, F16 = torch.bfloat16, torch.float16
GATED_ACTIVATIONS = ("gelu_tanh", "gelu", "silu", "relu", "none")
SERIES = (8192, 768, 3072)
ODD = (129, 72, 136)
"""Tokens, dim, hidden: multiples of 8, of no tile, and not of 16, for which Triton compiles apart."""
SHAPES = [
    (*SERIES, BF16),
    (*SERIES, F16),
    (1, 64, 8, BF16),
    (77, 136, 200, BF16),
    (*ODD, BF16),
    (*ODD, F16),
    (8200, 768, 3080, BF16),
    (1000, 4096, 14336, BF16),
]
OPERATORS = {
    name: one
    for module in (operators, gradients, preactivations, training)
    for name, one in vars(module).items()
    if isinstance(one, torch._ops.OpOverload)
}
GUARD = 1024
"""Elements before and after a result that must stay as they are."""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same random numbers for each test, nothing tuned and nothing told by another one; no candidate fails."""
    torch.manual_seed(0)
    monkeypatch.setattr(tuning, "TIMES_US", {})
    monkeypatch.setattr(tuning, "FAILED", {})
    monkeypatch.setattr(tuning, "choices", functools.cache(lambda gpu: {}))
    monkeypatch.setattr(tuning, "keep", lambda gpu, work, way, ways: way)
    monkeypatch.setattr(plans, "PLANS", {})
    monkeypatch.setattr(support, "SAID", set())
    yield
    assert tuning.FAILED == {}


@pytest.fixture
def untuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first candidate is taken and no other one compiled, which is most of what these tests would take."""
    monkeypatch.setattr(tuning, "choose", lambda work, ways, compile_all: next(iter(ways)))


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Results are made inside buffers filled with NaN: what is not written stays NaN, what is written beside shows."""
    buffers: list[Tensor] = []

    def new_empty(like: Tensor, *sizes: int) -> Tensor:
        shape = sizes if isinstance(sizes[0], int) else sizes[0]
        buffer = torch.full((math.prod(shape) + 2 * GUARD,), math.nan, dtype=like.dtype, device=like.device)
        buffers.append(buffer)
        return buffer[GUARD:-GUARD].view(shape)

    monkeypatch.setattr(torch.Tensor, "new_empty", new_empty)
    return buffers


def inputs(rows: int, dim: int, hidden: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """x (rows, dim), gate and up (hidden, dim); the pre-activations have a variance of 1."""
    x = torch.randn(rows, dim, device="cuda")
    gate, up = (torch.randn(hidden, dim, device="cuda") / dim**0.5 for _ in range(2))
    return x.to(dtype), gate.to(dtype), up.to(dtype)


def fused(dim: int, hidden: int, dtype: torch.dtype, **options: object) -> FusedGeGLU:
    """Its weights do not ask for gradients; `module.requires_grad_()` where a test wants them."""
    return FusedGeGLU(dim, hidden, **options).to("cuda", dtype).requires_grad_(False)


def plain(x: Tensor, gate: Tensor, up: Tensor, activation: str = "gelu_tanh") -> Tensor:
    return support.act(F.linear(x, gate), activation) * F.linear(x, up)


def in_float64(function: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
    return function(*(None if tensor is None else tensor.double() for tensor in tensors))


def check(found: Tensor, eager: Tensor, exact: Tensor, times_eager: float = 1.0) -> None:
    """The largest error at most twice eager's, and all of it together at most `times_eager` times eager's."""
    assert (found.shape, found.dtype) == (eager.shape, eager.dtype)
    error, allowed = found.double() - exact, eager.double() - exact
    assert error.abs().max().item() <= 2 * allowed.abs().max().item() + 1e-6
    if exact.numel() < 10_000:  # luck decides among a few roundings
        times_eager = 2 * times_eager
    assert error.norm().item() <= times_eager * allowed.norm().item()


def check_guards(buffers: Sequence[Tensor], results: int) -> None:
    assert len(buffers) == results
    for buffer in buffers:
        assert bool(buffer[:GUARD].isnan().all())
        assert bool(buffer[-GUARD:].isnan().all())
        assert not bool(buffer[GUARD:-GUARD].isnan().any())


# Answers


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize(("rows", "dim", "hidden", "dtype"), SHAPES)
def test_gate_up(rows: int, dim: int, hidden: int, dtype: torch.dtype) -> None:
    tensors = inputs(rows, dim, hidden, dtype)
    check(model.gate_up(*tensors, "gelu_tanh"), plain(*tensors), in_float64(plain, *tensors))


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize(("rows", "dim", "outputs", "dtype"), SHAPES)
def test_linear(rows: int, dim: int, outputs: int, dtype: torch.dtype) -> None:
    x, weight, _ = inputs(rows, dim, outputs, dtype)
    bias = torch.randn(outputs, device="cuda").to(dtype)

    def eager(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.gelu(F.linear(x, weight, bias), approximate="tanh")

    found = model.linear(x, weight, bias, "gelu_tanh")
    check(found, eager(x, weight, bias), in_float64(eager, x, weight, bias))


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize(("rows", "dim", "hidden", "dtype"), SHAPES)
def test_the_module(rows: int, dim: int, hidden: int, dtype: torch.dtype) -> None:
    block = GeGLU(dim, hidden).to("cuda", dtype).requires_grad_(False)
    module = fused(dim, hidden, dtype)
    module.load_state_dict(block.state_dict())
    (x, _, _) = inputs(rows, dim, 8, dtype)
    check(module(x), block(x), copy.deepcopy(block).double()(x.double()))
    assert not support.SAID


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("activation", GATED_ACTIVATIONS)
def test_activations(activation: str, dtype: torch.dtype) -> None:
    tensors = inputs(*ODD, dtype)
    found = model.gate_up(*tensors, activation)
    check(found, plain(*tensors, activation), support.gated_reference(*tensors, activation))


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize("activation", GATED_ACTIVATIONS)
@pytest.mark.parametrize("has_bias", [True, False])
def test_activations_of_the_linear(activation: str, has_bias: bool) -> None:
    x, weight, up = inputs(*ODD, BF16)
    bias = up[:, 0].contiguous() if has_bias else None

    def eager(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return support.act(F.linear(x, weight, bias), activation)

    found = model.linear(x, weight, bias, activation)
    # One rounding in both when nothing follows the product: then only the order of the sums differs.
    times_eager = 1.01 if activation == "none" else 1.0
    check(found, eager(x, weight, bias), in_float64(eager, x, weight, bias), times_eager)


@pytest.mark.parametrize("activation", GATED_ACTIVATIONS)
@pytest.mark.parametrize("dtype", [BF16, F16, torch.float32])
def test_the_pointwise_kernel(dtype: torch.dtype, activation: str) -> None:
    """In float32 what an exponent of 87 loses by its rounding decides; of erf, what 1 does that is added."""
    gate, up = (3 * torch.randn(101, 77, device="cuda", dtype=dtype) for _ in range(2))

    def eager(gate: Tensor, up: Tensor) -> Tensor:
        return support.act(gate, activation) * up

    found = model.gated_activation(gate, up.t().contiguous().t(), activation)
    if dtype == torch.float32:
        exact = activations.exactly(gate.double(), activation) * up.double()
        allowed = 1e-6 * (gate * up).double().abs() if activation == "gelu" else 3e-5 * exact.abs() + 1e-36
        assert bool(((found.double() - exact).abs() <= allowed).all())
    else:
        check(found, eager(gate, up), in_float64(eager, gate, up))


@pytest.mark.parametrize("tiles", PINGPONG_GATED)
@pytest.mark.parametrize("save", [False, True])
def test_every_tiling_of_the_gated_kernel(tiles: Tiles, save: bool, guarded: list[Tensor]) -> None:
    """Every element is written and nothing beside the result."""
    x, gate, up = inputs(*ODD, BF16)
    found, *saved = pingpong(x, gate, up, None, "gelu_tanh", tiles, save=save)
    check_guards(guarded, results=3 if save else 1)
    check(found, plain(x, gate, up), in_float64(plain, x, gate, up))
    for one, weight in zip(saved, (gate, up), strict=False):
        check(one, F.linear(x, weight), in_float64(F.linear, x, weight), times_eager=1.01)


@pytest.mark.parametrize("tiles", PINGPONG)
def test_every_tiling_of_the_linear(tiles: Tiles, guarded: list[Tensor]) -> None:
    x, weight, _ = inputs(*ODD, BF16)
    (found,) = pingpong(x, weight, None, None, "gelu", tiles)
    check_guards(guarded, results=1)
    check(found, F.gelu(F.linear(x, weight)), in_float64(lambda x, w: F.gelu(F.linear(x, w)), x, weight))


@pytest.mark.parametrize("tiles", SMALL)
def test_every_tiling_of_the_small_linear(tiles: Tiles, guarded: list[Tensor]) -> None:
    x, weight, _ = inputs(*ODD, BF16)
    found = small_linear(x, weight, None, "gelu", tiles)
    check_guards(guarded, results=1)
    check(found, F.gelu(F.linear(x, weight)), in_float64(lambda x, w: F.gelu(F.linear(x, w)), x, weight))


@pytest.mark.parametrize("tiles", STACKED)
def test_every_tiling_of_the_stacked_kernel(tiles: Tiles, guarded: list[Tensor]) -> None:
    x, gate, up = inputs(*ODD, BF16)
    found = stacked_gate_up(x, torch.stack([gate, up]), "gelu_tanh", tiles)
    check_guards(guarded, results=1)
    check(found, plain(x, gate, up), in_float64(plain, x, gate, up))


@pytest.mark.parametrize("changed", [{"lead": 1}, {"lead": 4}, {"group": 1}, {"dependent": False}])
def test_the_order_of_the_work_is_not_in_the_answer(changed: dict[str, int]) -> None:
    x, gate, up = inputs(1030, 136, 1032, BF16)
    tiles = PINGPONG_GATED[0]
    (expected,) = pingpong(x, gate, up, None, "gelu_tanh", tiles)
    (found,) = pingpong(x, gate, up, None, "gelu_tanh", tiles._replace(**changed))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 127, 128, 129, 8191])
def test_tokens_around_a_tile(rows: int, guarded: list[Tensor]) -> None:
    x, gate, up = inputs(rows, 136, 200, BF16)
    (found,) = pingpong(x, gate, up, None, "gelu_tanh", PINGPONG_GATED[0])
    check_guards(guarded, results=1)
    check(found, plain(x, gate, up), in_float64(plain, x, gate, up))


@pytest.mark.parametrize("dim", [8, 56, 64, 72, 128, 136, 776])
def test_inputs_around_a_block(dim: int, guarded: list[Tensor]) -> None:
    """One block or two, full or not: the consumers hand over two blocks before the end."""
    x, gate, up = inputs(1030, dim, 1032, BF16)
    (found,) = pingpong(x, gate, up, None, "gelu_tanh", PINGPONG_GATED[0])
    check_guards(guarded, results=1)
    check(found, plain(x, gate, up), in_float64(plain, x, gate, up))


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "three dimensions": lambda x: x.view(4, 25, -1),
    "transposed": lambda x: x.view(4, 25, -1).transpose(0, 1),
    "every second column": lambda x: x.repeat_interleave(2, dim=1)[:, ::2],
    "part of wider rows": lambda x: torch.cat([x, x], dim=1)[:, : x.shape[1]],
    "columns first": lambda x: x.t().contiguous().t(),
    "misaligned": lambda x: torch.cat([x[0, :1], x.flatten()])[1:].view(x.shape),
    "one row many times": lambda x: x[:1].expand(x.shape),
}


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_any_layout_gives_the_same_bits(view: Callable[[Tensor], Tensor]) -> None:
    x, gate, up = inputs(100, 136, 200, BF16)
    viewed = view(x)
    copied = viewed.contiguous().clone()
    found, expected = model.gate_up(viewed, gate, up, "gelu_tanh"), model.gate_up(copied, gate, up, "gelu_tanh")
    assert found.shape == (*viewed.shape[:-1], 200)
    assert found.is_contiguous()
    assert torch.equal(found, expected)
    assert torch.equal(model.linear(viewed, gate, None, "none"), model.linear(copied, gate, None, "none"))


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize("name", ["part of wider rows", "columns first", "misaligned"])
def test_any_layout_of_the_weights_gives_the_same_bits(name: str) -> None:
    x, gate, up = inputs(100, 136, 200, BF16)
    view = VIEWS[name]
    assert torch.equal(model.gate_up(x, view(gate), view(up), "gelu_tanh"), model.gate_up(x, gate, up, "gelu_tanh"))
    bias = gate[:, 0].contiguous()
    misaligned = torch.cat([bias[:1], bias])[1:]
    found = model.linear(x, view(gate), misaligned, "gelu_tanh")
    assert torch.equal(found, model.linear(x, gate, bias, "gelu_tanh"))


@pytest.mark.parametrize("shape", [(0, 64), (3, 0, 64)])
@pytest.mark.parametrize("recompute", [True, "hidden", False])
def test_an_empty_batch(shape: tuple[int, ...], recompute: bool | str) -> None:
    module = fused(64, 72, BF16, recompute=recompute)
    x = torch.empty(shape, device="cuda", dtype=BF16)
    assert model.gate_up(x, module.gate_proj.weight, module.up_proj.weight, "gelu_tanh").shape == (*shape[:-1], 72)
    assert (module(x).shape, module(x).dtype) == (shape, BF16)
    module.requires_grad_()
    module(x).sum().backward()
    assert all(torch.equal(one.grad, torch.zeros_like(one)) for one in module.parameters())


@pytest.mark.parametrize(("dtype", "scale"), [(BF16, 1e4), (BF16, 1e15), (F16, 30.0)])
def test_values_that_overflow_tanh(dtype: torch.dtype, scale: float) -> None:
    x, gate, up = inputs(*ODD, dtype)
    x = x * scale
    (found,) = pingpong(x, gate, up, None, "gelu_tanh", PINGPONG_GATED[0])
    assert bool(found.isfinite().all())
    check(found, plain(x, gate, up), in_float64(plain, x, gate, up))


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize("activation", GATED_ACTIVATIONS)
def test_nan_and_infinity_are_passed_on(activation: str) -> None:
    """A NaN spoils its row or column, and an infinity becomes what eager makes of it, down to the sign."""
    x, gate, up = inputs(*ODD, BF16)
    x[3, 5], x[7, 2], x[70, 2] = math.nan, math.inf, -math.inf
    gate[10, 4] = math.nan
    for found, eager in (
        (model.gate_up(x, gate, up, activation), plain(x, gate, up, activation)),
        (model.linear(x, gate, None, activation), support.act(F.linear(x, gate), activation)),
    ):
        assert 136 + 128 <= int(eager.isnan().sum()) < eager.numel() // 10
        assert 50 < int(eager.isinf().sum()) < 3 * 136
        assert torch.equal(found.isnan(), eager.isnan())
        assert torch.equal(found[eager.isinf()], eager[eager.isinf()])
        assert torch.equal(found.isinf(), eager.isinf())
        assert bool((found - eager)[eager.isfinite()].abs().max() < 0.2)


# Order of events


@pytest.mark.parametrize(("rows", "dim", "hidden"), [SERIES, ODD])
def test_same_inputs_same_bits(rows: int, dim: int, hidden: int) -> None:
    """A race shows as a bit that differs, sooner or later."""
    x, gate, up = inputs(rows, dim, hidden, BF16)
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
    _, wide, up = inputs(8, 768, 3072, BF16)
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


@pytest.mark.usefixtures("untuned")
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


# Tuning, CUDA graphs, torch.compile


def test_tuning_is_done_once_and_its_choice_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    x, gate, up = inputs(77, 72, 136, BF16)
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


@pytest.mark.usefixtures("untuned")
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


@pytest.mark.usefixtures("untuned")
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


def test_a_graph_of_a_size_that_was_never_tuned() -> None:
    """Nothing can be timed while a graph is captured: the first candidate is taken, and the choice stays open."""
    module = fused(88, 104, BF16)
    x = torch.randn(333, 88, device="cuda", dtype=BF16)
    hopper_kernels.pingpong_kernel.device_caches.clear()  # so that the kernels are also loaded for the first time
    hopper.pingpong_launch.cache_clear()
    torch.cuda.synchronize()
    graph, out = captured(module, x)
    assert tuning.TIMES_US == {}
    graph.replay()
    weights = [layer.weight for layer in (module.gate_proj, module.up_proj, module.down_proj)]

    def eager(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        return F.linear(plain(x, gate, up), down)

    check(out, eager(x, *weights), in_float64(eager, x, *weights))


@pytest.mark.usefixtures("untuned")
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


@pytest.mark.usefixtures("untuned")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_operators_are_what_they_say(operator: str, layout: str) -> None:
    """Schema, fake implementation (strides too), gradients, tracing with sizes that are symbols."""
    x, gate, up = inputs(15, 72, 136, BF16)
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


# Gradients


def gradients_of(function: Callable[..., Tensor], tensors: Sequence[Tensor], d_out: Tensor) -> list[Tensor]:
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    return list(torch.autograd.grad(function(*leaves), leaves, d_out.to(leaves[0].dtype)))


def check_gradients(
    found: Callable[..., Tensor], eager: Callable[..., Tensor], tensors: Sequence[Tensor], d_out: Tensor
) -> None:
    exact = gradients_of(eager, [tensor.double() for tensor in tensors], d_out)
    for triple in zip(gradients_of(found, tensors, d_out), gradients_of(eager, tensors, d_out), exact, strict=True):
        check(*triple, times_eager=2.0)


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("activation", GATED_ACTIVATIONS)
def test_gradients_of_the_pointwise_kernel(activation: str, dtype: torch.dtype) -> None:
    gate, up, d_out = (2 * torch.randn(129, 136, device="cuda", dtype=dtype) for _ in range(3))

    def eager(gate: Tensor, up: Tensor) -> Tensor:
        return support.act(gate, activation) * up

    check_gradients(lambda *tensors: model.gated_activation(*tensors, activation), eager, (gate, up), d_out)


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("activation", GATED_ACTIVATIONS)
def test_gradients_of_gate_up(activation: str, dtype: torch.dtype) -> None:
    x, gate, up = inputs(*ODD, dtype)
    d_out = torch.randn(129, 136, device="cuda", dtype=dtype)

    def ours(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
        return model.gate_up(x, gate, up, activation)

    check_gradients(ours, lambda *tensors: plain(*tensors, activation), (x, gate, up), d_out)


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
    for activation in GATED_ACTIVATIONS if shape == (*ODD, BF16) else ("gelu_tanh",):
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
            check(*triple, times_eager=2.0)


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


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize("recompute", [True, "hidden", False])
@pytest.mark.parametrize("layers", [1, 2])
def test_gradients_of_the_module(layers: int, recompute: bool | str) -> None:
    """With two layers the same weights are used twice, and gradients add up."""
    x, gate, up = inputs(1000, 136, 200, BF16)
    down = (torch.randn(136, 200, device="cuda") / 200**0.5).to(BF16)
    d_out = torch.randn(1000, 136, device="cuda", dtype=BF16)

    def ours(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        for _ in range(layers):
            x = x + model.gated_mlp(x, gate, up, down, recompute=recompute)
        return x

    def eager(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        for _ in range(layers):
            x = x + F.linear(plain(x, gate, up), down)
        return x

    check_gradients(ours, eager, (x, gate, up, down), d_out)


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize("recompute", [True, "hidden", False])
def test_backward_changes_nothing_that_is_kept(recompute: bool | str) -> None:
    """A second pass through the same graph finds what the first one found."""
    module = fused(72, 136, BF16, recompute=recompute).requires_grad_()
    x = torch.randn(129, 72, device="cuda", dtype=BF16)
    weights = list(module.parameters())
    out = module(x).sum()  # whose gradient is one element, expanded
    first = torch.autograd.grad(out, weights, retain_graph=True)
    second = torch.autograd.grad(out, weights)
    assert [torch.equal(one, other) for one, other in zip(first, second, strict=True)] == 3 * [True]


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize("recompute", [True, "hidden", False])
def test_weights_of_one_storage_have_the_same_gradients(recompute: bool | str) -> None:
    module = fused(136, 200, BF16, recompute=recompute).requires_grad_()
    assert joined.are_joined(module.gate_proj, module.up_proj)
    parted = copy.deepcopy(module)
    assert not joined.are_joined(parted.gate_proj, parted.up_proj)
    x = torch.randn(1000, 136, device="cuda", dtype=BF16)
    d_out = torch.randn(1000, 136, device="cuda", dtype=BF16)
    x.requires_grad_()
    found, expected = (torch.autograd.grad(one(x), [x, *one.parameters()], d_out) for one in (module, parted))
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one.float(), other.float(), rtol=2**-6, atol=2**-6 * float(other.abs().max()))


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize("recompute", [True, "hidden", False])
def test_training_in_a_graph(recompute: bool | str) -> None:
    module = fused(136, 200, BF16, recompute=recompute).requires_grad_()
    weights = list(module.parameters())
    x = torch.randn(1000, 136, device="cuda", dtype=BF16)
    d_out = torch.randn(1000, 136, device="cuda", dtype=BF16)

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


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize("recompute", [True, "hidden", False])
def test_the_peak_of_a_training_step(recompute: bool | str) -> None:
    """Three tensors of the hidden size, the result, and the gradient of a weight."""
    rows, dim, hidden = SERIES
    module = fused(dim, hidden, BF16, recompute=recompute).requires_grad_()
    weights = list(module.parameters())
    x = torch.randn(rows, dim, device="cuda", dtype=BF16)
    d_out = torch.randn(rows, dim, device="cuda", dtype=BF16)
    x.requires_grad_()
    weights.insert(0, x)
    torch.autograd.grad(module(x), weights, d_out)  # plans, with tensors to time; the workspace of cuBLAS
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.autograd.grad(module(x), weights, d_out)
    peak = torch.cuda.max_memory_allocated() - before
    assert peak == 2 * (3 * rows * hidden + rows * dim + dim * hidden)


# Where plain PyTorch does the work


@pytest.mark.parametrize(
    ("hidden", "dtype", "reason"),
    [(75, BF16, "no multiple of 8 elements"), (72, torch.float32, r"not torch\.float32")],
)
def test_what_the_kernels_cannot_do(hidden: int, dtype: torch.dtype, reason: str) -> None:
    block = GeGLU(64, hidden).to("cuda", dtype).requires_grad_(False)
    module = fused(64, hidden, dtype)
    module.load_state_dict(block.state_dict())
    x = torch.randn(77, 64, device="cuda", dtype=dtype)
    with pytest.warns(UserWarning, match=reason):
        found = module(x)
    assert torch.equal(found, block(x))
    assert torch.equal(module(x), found)  # and silent: a warning is an error here


@pytest.mark.parametrize("wrong", ["x", "up", "gate", "down"])
def test_sizes_that_do_not_fit_are_refused(wrong: str) -> None:
    """As plain PyTorch refuses them: the copy engine would fill up with zeros and never say so."""
    shapes = {"x": (16, 64), "gate": (72, 64), "up": (72, 64), "down": (64, 72)}
    shapes[wrong] = tuple(size + 8 for size in shapes[wrong])
    tensors = [torch.zeros(shape, device="cuda", dtype=BF16) for shape in shapes.values()]
    with pytest.raises((RuntimeError, ValueError)):
        model.gated_mlp(*tensors)
