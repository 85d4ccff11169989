"""The MLP with gradients on the CPU: what it keeps, which products it needs, what a compiler makes of it.

The operators run as plain PyTorch, or with ways that do what the kernels do.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from snippets.fused_mlp.geglu import (
    gradients,
    hopper,
    model,
    operators,
    plans,
    preactivations,
    support,
    training,
    tuning,
)
from snippets.fused_mlp.geglu.backward_kernels import pingpong_backward_kernel
from snippets.fused_mlp.geglu.joined import are_joined, joined, share_storage
from snippets.fused_mlp.geglu.kernels import SILU
from snippets.fused_mlp.geglu.model import FusedGeGLU
from snippets.fused_mlp.geglu.support import ACTIVATIONS, act, plain_gate_up
from snippets.fused_mlp.geglu.training import trained
from snippets.fused_mlp.geglu.work import BackwardTiles, sizes_of
from snippets.mlp.model import GeGLU
from tests.chapters.fused_mlp.checks import BF16, F32

F64 = torch.float64
ROWS, DIM, HIDDEN = 6, 8, 16


each_kept = pytest.mark.parametrize("kept", [3, 2, 0])


@pytest.fixture(autouse=True)
def silent(initial: None) -> None:
    support.SAID.add("they need an NVIDIA GPU")


def _gate_up(x: Tensor, gate: Tensor, up: Tensor, out: Tensor, *halves: Tensor, activation: str = "gelu_tanh") -> None:
    g, u = x @ gate.t(), x @ up.t()
    out.copy_(act(g, activation) * u)
    for half, value in zip(halves, (g, u), strict=bool(halves)):
        half.copy_(value)


def _gradients(
    d_out: Tensor, down: Tensor, g: Tensor, u: Tensor, d_gate: Tensor, d_up: Tensor, *hidden: Tensor,
    activation: str = "gelu_tanh",
) -> None:  # fmt: skip
    """Also where g and u lie, as the kernels may."""
    leaves = [one.clone().requires_grad_() for one in (g, u)]
    with torch.enable_grad():
        product = act(leaves[0], activation) * leaves[1]
        found = torch.autograd.grad(product, leaves, d_out @ down)
    for half, value in zip((d_gate, d_up, *hidden), (*found, product.detach()), strict=False):
        half.copy_(value)


def unsupported(x: Tensor, *weights: Tensor, is_pointwise: bool = False) -> str:
    """Of the widths that the kernels ask about; the number of rows is none of them."""
    assert not any(size % 8 for weight in weights for size in weight.shape), "never plain here"
    return ""


@pytest.fixture(params=["plain", "ways"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the operators find ways, here of the CPU, for which nothing is tuned."""
    if request.param == "ways":
        monkeypatch.setattr(plans, "unsupported", unsupported)
        monkeypatch.setattr(tuning, "choose", lambda work, ways, *_: next(iter(ways)))

        def ways(name: str) -> Callable[..., dict[str, Callable[..., None]]]:
            return lambda sizes, activation, *_, **__: {
                "reference": lambda *tensors: globals()[name](*tensors, activation=activation)
            }

        monkeypatch.setattr(training, "linear_ways", ways("_linear"))
        monkeypatch.setattr(operators, "gate_up_ways", ways("_gate_up"))
        monkeypatch.setattr(preactivations, "gate_up_saved_ways", ways("_gate_up"))
        monkeypatch.setattr(preactivations, "gradient_ways", ways("_gradients"))
    return str(request.param)


@pytest.fixture(params=["operator", "function"])
def mlp(request: pytest.FixtureRequest) -> Callable[..., Tensor]:
    """The operator, which compilers and modes see, and the function that does the same for everybody else."""
    if request.param == "operator":
        return lambda *inputs: trained(*inputs)[0]
    return training.mlp


def _linear(x: Tensor, weight: Tensor, out: Tensor, activation: str) -> None:
    torch.mm(x, weight.t(), out=out.view(-1, weight.shape[0]))


def inputs(*shape: int, dtype: torch.dtype = F64) -> list[Tensor]:
    """x, gate, up, down."""
    shapes = [shape or (ROWS, DIM), (HIDDEN, DIM), (HIDDEN, DIM), (DIM, HIDDEN)]
    return [torch.randn(one, dtype=dtype) for one in shapes]


def leaves_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [one.detach().clone().requires_grad_() for one in tensors]


def plain(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, activation: str) -> Tensor:
    return plain_gate_up(x, gate, up, activation) @ down.t()


def all_equal(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


def all_close(found: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float = 1e-12) -> bool:
    return all(
        one.shape == other.shape and torch.allclose(one, other, rtol=tolerance, atol=tolerance / 10)
        for one, other in zip(found, expected, strict=True)
    )


# Gradients


@each_kept
@pytest.mark.parametrize(
    ("activation", "shape"),
    [*((each, (5, DIM)) for each in ACTIVATIONS), *(("gelu_tanh", each) for each in ((2, 3, DIM), (DIM,), (0, DIM)))],
)
def test_gradients_are_those_of_plain_pytorch(
    kind: str, mlp: Callable[..., Tensor], activation: str, shape: tuple[int, ...], kept: int
) -> None:
    tensors = inputs(*shape)
    mine, others = leaves_of(tensors), leaves_of(tensors)
    d_out = torch.randn(shape, dtype=F64)
    found, expected = mlp(*mine, activation, kept), plain(*others, activation)
    assert all_close([found], [expected])
    assert all_close(torch.autograd.grad(found, mine, d_out), torch.autograd.grad(expected, others, d_out))


@pytest.mark.parametrize("needed", [(0,), (1,), (2,), (3,), (0, 3), (1, 2), (2, 3), (0, 1, 2)])
@each_kept
def test_only_what_is_needed_is_computed(kind: str, needed: tuple[int, ...], kept: int) -> None:
    tensors = inputs()
    for place in needed:
        tensors[place].requires_grad_()
    out = trained(*tensors, "silu", kept)[0]
    with torch.autograd.profiler.profile(use_device=None) as profile:
        out.sum().backward()
    exact = [one.detach().clone().requires_grad_(place in needed) for place, one in enumerate(tensors)]
    plain(*exact, "silu").sum().backward()
    for one, other in zip(tensors, exact, strict=True):
        assert (one.grad is None) == (other.grad is None)
        assert other.grad is None or torch.allclose(one.grad, other.grad, rtol=1e-12, atol=1e-13)
    # d_out @ down, unless the hidden tensor is there and suffices; two for x; one for gate, up or both; one for down
    backward = (needed != (3,) or kept == 2) + 2 * (0 in needed) + (1 in needed or 2 in needed) + (3 in needed)
    assert products(profile) == backward + 2 * (not kept)


def products(profile: torch.autograd.profiler.profile) -> int:
    """Products of matrices in what was profiled, also inside operators."""
    return sum(event.name in ("aten::mm", "aten::addmm_") for event in profile.function_events)


def test_weights_of_one_storage_take_one_product(kind: str) -> None:
    tensors = inputs()
    both = torch.stack(tensors[1:3])
    apart = leaves_of(tensors)
    together = [one.detach().requires_grad_() for one in (tensors[0], both[0], both[1], tensors[3])]
    counts, gradients_of = [], []
    for leaves in (apart, together):
        out = trained(*leaves, "gelu_tanh", 3)[0].sum()
        with torch.autograd.profiler.profile(use_device=None) as profile:
            gradients_of.append(torch.autograd.grad(out, leaves))
        counts.append(products(profile))
    assert counts == [5, 4]
    assert all_close(*gradients_of)


def test_what_lies_behind_what() -> None:
    _, gate, up, _ = inputs()
    both = torch.stack([gate, up])
    found = joined(both[0], both[1])
    assert found is not None
    assert torch.equal(found, torch.cat([gate, up]))
    assert found.data_ptr() == both.data_ptr()
    assert joined(gate, up) is None
    assert joined(both[1], both[0]) is None, "in the other order"
    assert joined(both[0], both[0]) is None
    three = torch.stack([gate, up, up])
    assert joined(three[0], three[2]) is None
    wide = torch.randn(2, DIM, HIDDEN, dtype=F64).transpose(1, 2)
    assert joined(wide[0], wide[1]) is None, "not contiguous"


def test_gradients_of_gradients(mlp: Callable[..., Tensor]) -> None:
    """By plain PyTorch, for the activation and for gate and up alone as well."""
    x, gate, up, down = leaves_of([one[:3, :4] for one in inputs()[:3]] + [torch.randn(4, 3, dtype=F64)])
    for kept in (3, 2, 0):
        assert torch.autograd.gradgradcheck(lambda *leaves, kept=kept: mlp(*leaves, "silu", kept), (x, gate, up, down))
    assert torch.autograd.gradgradcheck(lambda *leaves: operators.gate_up(*leaves, "silu"), (x, gate, up))
    assert torch.autograd.gradgradcheck(lambda *leaves: gradients.gated_activation(*leaves, "silu"), (gate, up))


def test_transforms_of_functions_are_refused() -> None:
    """PyTorch says so for any operator that is differentiated by a function in Python."""
    x, *weights = inputs()
    with pytest.raises(RuntimeError, match=r"^In order to use an autograd\.Function with functorch transforms"):
        torch.func.grad(lambda x: trained(x, *weights, "silu", 3)[0].sum())(x)


@pytest.mark.parametrize("has_hidden", [False, True])
@pytest.mark.parametrize("tiles", hopper.PINGPONG_BACKWARD, ids=lambda tiles: tiles.name)
def test_what_the_kernel_of_the_backward_pass_is_told(tiles: BackwardTiles, has_hidden: bool) -> None:
    d_out, down = torch.zeros(100, 24, dtype=BF16), torch.zeros(24, 48, dtype=BF16)
    pre, hidden = torch.zeros(100, 96, dtype=BF16), [torch.zeros(100, 48, dtype=BF16)] * has_hidden
    halves = pre.chunk(2, dim=1)
    launch = hopper.pingpong_backward_launch(sizes_of(d_out, down.t()), tiles, "silu", has_hidden)
    arguments = launch.arguments(d_out, down, *halves, *halves, *hidden)
    told = dict(zip(pingpong_backward_kernel.arg_names, arguments, strict=True))
    assert (told["M"], told["N"], told["K"], told["LEAD"]) == (100, 48, 24, tiles.lead)
    assert told["ACTIVATION"].value == SILU.value
    assert tuple(told["d_out_desc"].block_shape) == (told["BLOCK_M"], told["BLOCK_K"])
    assert tuple(told["down_desc"].block_shape) == (told["BLOCK_K"], told["BLOCK_N"])
    piece = told["HEIGHT"], told["WIDTH"]
    assert (told["BLOCK_M"] % piece[0], told["BLOCK_N"] % piece[1], tiles.stages >= 2) == (0, 0, True)
    for name, half in zip(("gate_desc", "up_desc", "d_gate_desc", "d_up_desc"), (*halves, *halves), strict=True):
        one = told[name]
        assert (tuple(one.shape), tuple(one.strides), tuple(one.block_shape)) == ((100, 48), (96, 1), piece)
        assert one.base.data_ptr() == half.data_ptr()
    assert (told["hidden_desc"] is None) == (not has_hidden)


# Memory


@each_kept
def test_what_is_kept(kind: str, mlp: Callable[..., Tensor], kept: int) -> None:
    """Tensors of the hidden size, and x."""
    x, *weights = leaves_of(inputs(ROWS, DIM, dtype=BF16))
    addresses = {one.data_ptr() for one in weights}
    found = kept_bytes(lambda: mlp(x, *weights, "gelu_tanh", kept), addresses)
    assert found == 2 * (ROWS * DIM + kept * ROWS * HIDDEN)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_what_a_compiler_keeps() -> None:
    """Inductor's choice of what to save: as much as we do where we recompute nothing."""
    torch._dynamo.reset()
    x, *weights = leaves_of(inputs(ROWS, DIM, dtype=BF16))
    compiled = torch.compile(
        lambda *tensors: plain(*tensors, "gelu_tanh"), backend="aot_eager_decomp_partition", fullgraph=True
    )
    kept = kept_bytes(lambda: compiled(x, *weights), {one.data_ptr() for one in weights})
    assert kept == 2 * (ROWS * DIM + 3 * ROWS * HIDDEN)


def kept_bytes(forward: Callable[[], Tensor], parameters: set[int]) -> int:
    """Of the storages that a forward saves, without those of parameters."""
    found: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = forward()
    del out
    return sum(size for address, size in found.items() if address not in parameters)


@each_kept
def test_a_second_backward_pass_finds_what_the_first_found(kind: str, mlp: Callable[..., Tensor], kept: int) -> None:
    leaves = leaves_of(inputs())
    out = mlp(*leaves, "gelu_tanh", kept).sum()
    assert all_equal(torch.autograd.grad(out, leaves, retain_graph=True), torch.autograd.grad(out, leaves))


@pytest.mark.parametrize("reader", ["nobody", "another backward pass", "the caller"])
def test_the_gradient_overwrites_unused_memory(kind: str, reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    overwrites: list[bool] = []
    original = training.gradients_of_pre

    def gradients_of_pre(d_out: Tensor, down: Tensor, pre: Tensor, *others: object) -> tuple[Tensor, Tensor]:
        overwrites.append(others[-1] is pre)
        return original(d_out, down, pre, *others)

    monkeypatch.setattr(training, "gradients_of_pre", gradients_of_pre)
    leaves = leaves_of(inputs())
    results = list(trained(*leaves, "gelu_tanh", 3)) if reader == "the caller" else []
    out = (results[0] if results else training.mlp(*leaves, "gelu_tanh", 3)).sum()
    before = results[1].clone() if results else None
    first = torch.autograd.grad(out, leaves, retain_graph=reader == "another backward pass")
    assert overwrites == [reader == "nobody"]
    if before is not None:
        assert torch.equal(results[1], before)
    if reader == "another backward pass":
        second = torch.autograd.grad(out, leaves)
        assert overwrites == [False, True]
        assert all_equal(first, second)


@pytest.mark.parametrize("holder", ["the graph's tensors", "what packs", "what unpacks"])
def test_a_held_tensor_is_not_overwritten(kind: str, mlp: Callable[..., Tensor], holder: str) -> None:
    """The very tensor that was saved, not one that shares its memory."""
    held: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        held.append(tensor)
        return tensor

    def through(tensor: Tensor) -> Tensor:
        return tensor

    leaves = leaves_of(inputs())
    if holder == "the graph's tensors":
        out = mlp(*leaves, "gelu_tanh", 3)
        held += out.grad_fn.saved_tensors  # type: ignore[union-attr]
    else:
        hooks = (keep, through) if holder == "what packs" else (through, keep)
        with torch.autograd.graph.saved_tensors_hooks(*hooks):
            out = mlp(*leaves, "gelu_tanh", 3)
    g, u = leaves[0] @ leaves[1].t(), leaves[0] @ leaves[2].t()
    out.sum().backward()
    assert len(held) == 6
    assert torch.allclose(held[4], torch.cat([g, u], dim=1))


@each_kept
def test_a_backward_pass_under_autocast_has_the_types_of_its_forward(
    kind: str, mlp: Callable[..., Tensor], kept: int
) -> None:
    leaves = leaves_of(inputs(dtype=F32))
    expected = torch.autograd.grad(mlp(*leaves, "silu", kept).sum(), leaves)
    out = mlp(*leaves, "silu", kept).sum()
    with torch.autocast("cpu", BF16):
        found = torch.autograd.grad(out, leaves)
    assert all_equal(found, expected)


def test_backward_of_a_part_under_autocast_has_the_types_of_its_forward() -> None:
    leaves, factors = leaves_of(inputs(dtype=F32)), leaves_of([torch.randn(3, 8), torch.randn(3, 8)])
    for function, inner in ((model.gate_up, leaves[:3]), (model.gated_activation, factors)):
        expected = torch.autograd.grad(function(*inner).sum(), inner)
        out = function(*inner).sum()
        with torch.autocast("cpu", BF16):
            found = torch.autograd.grad(out, inner)
        assert all_equal(found, expected)


def test_without_a_gradient_of_the_result_there_is_no_gradient(mlp: Callable[..., Tensor]) -> None:
    class Dropped(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
            return x.clone()

        @staticmethod
        def backward(ctx, d_out: Tensor) -> None:  # type: ignore[no-untyped-def]
            return None

    leaves = leaves_of(inputs())
    Dropped.apply(mlp(*leaves, "silu", 3)).sum().backward()
    assert not any(one.grad.any() for one in leaves if one.grad is not None)


def test_gradients_of_a_batch_of_results(mlp: Callable[..., Tensor]) -> None:
    leaves = leaves_of(inputs())
    d_outs = torch.randn(3, ROWS, DIM, dtype=F64)
    found = torch.autograd.grad(mlp(*leaves, "silu", 3), leaves, d_outs, is_grads_batched=True)
    expected = torch.autograd.grad(plain(*leaves, "silu"), leaves, d_outs, is_grads_batched=True)
    assert all_close(found, expected)
    assert not any(one.requires_grad for one in found)


def test_who_watches_operators_sees_those_of_the_backward_pass() -> None:
    """Traced with real tensors, the kernels' launches would be missing in the graph."""

    def step(*leaves: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(training.mlp(*leaves, "silu", 3).sum(), leaves)

    graph = make_fx(step)(*leaves_of(inputs())).graph
    names = [str(node.target) for node in graph.nodes if "geglu" in str(node.target)]
    assert names == ["geglu.trained.default", "geglu.pre_backward.default", "geglu.x_backward.default"]


@each_kept
def test_the_peak(kind: str, mlp: Callable[..., Tensor], kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With kernels that need no memory of their own: both pre-activations, over which their gradients are written, the
    hidden tensor, the result, and the first gradient of a weight. Inductor has one hidden tensor more."""
    if kind == "plain":
        pytest.skip("needs memory of its own")

    def fill(*tensors: Tensor, activation: str) -> None:
        for one in tensors:
            one.fill_(1.0)

    monkeypatch.setitem(globals(), "_gradients", fill)
    monkeypatch.setitem(globals(), "_gate_up", fill)
    rows, size = 512, 4
    leaves = [one.mul_(0.1) for one in inputs(rows, DIM, dtype=F32)]
    d_out = torch.ones(rows, DIM)
    leaves = leaves_of(leaves)
    torch.autograd.grad(mlp(*leaves, "gelu_tanh", kept), leaves, d_out)  # plans, with tensors to time
    with torch.autograd.profiler.profile(use_device=None, profile_memory=True) as profile:
        out = mlp(*leaves, "gelu_tanh", kept)
        found = torch.autograd.grad(out, leaves, d_out)
        del out, found
    events = [event for event in profile.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    assert held == 0
    assert peak == size * (3 * rows * HIDDEN + rows * DIM + HIDDEN * DIM)


# Compilers


@pytest.mark.parametrize(("shape", "kept"), [((ROWS, DIM), 3), ((2, 3, DIM), 2), ((ROWS, DIM), 0), ((2, 3, DIM), 0)])
@pytest.mark.parametrize("kind", ["plain"], indirect=True)
def test_the_operator_is_what_it_says(kind: str, shape: tuple[int, ...], kept: int) -> None:
    """Schema, fake result, gradients, tracing with sizes that are symbols."""
    torch.library.opcheck(trained, (*leaves_of(inputs(*shape, dtype=F32)), "gelu_tanh", kept))


@pytest.mark.parametrize("has_hidden", [False, True])
def test_the_operators_of_the_backward_pass_are_what_they_say(has_hidden: bool) -> None:
    x, gate, up, down = inputs(dtype=F32)
    pre = torch.randn(ROWS, 2 * HIDDEN)
    torch.library.opcheck(training.gate_up_saved, (x, gate, up, "silu"))
    torch.library.opcheck(training.pre_backward, (x, down, pre, "silu", has_hidden))
    torch.library.opcheck(training.x_backward, (pre, gate, up))


@each_kept
def test_compiled_it_is_one_graph(kept: int) -> None:
    torch._dynamo.reset()
    mine, others = leaves_of(tensors := inputs(dtype=F32)), leaves_of(tensors)
    compiled = torch.compile(
        lambda *leaves: trained(*leaves, "gelu_tanh", kept)[0], backend="aot_eager", fullgraph=True
    )
    found = torch.autograd.grad(compiled(*mine).sum(), mine)
    expected = torch.autograd.grad(plain(*others, "gelu_tanh").sum(), others)
    assert all_close(found, expected, 1e-4)


# Weights of one storage


def test_sharing_changes_addresses_alone() -> None:
    block = FusedGeGLU(DIM, HIDDEN)
    optimizer = torch.optim.AdamW(block.parameters())
    before = {name: one.clone() for name, one in block.state_dict().items()}
    parameters = list(block.parameters())
    share_storage(block.gate_proj, block.up_proj)
    assert [id(one) for one in block.parameters()] == [id(one) for one in parameters]
    assert optimizer.param_groups[0]["params"][0] is block.gate_proj.weight
    after = block.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], one) and after[name].shape == one.shape for name, one in before.items())
    assert joined(block.gate_proj.weight, block.up_proj.weight) is not None
    assert all(one.is_leaf and one.requires_grad for one in block.parameters())


def test_what_keeps_and_what_parts_a_storage() -> None:
    def is_joined(block: FusedGeGLU) -> bool:
        return are_joined(block.gate_proj, block.up_proj)

    block = FusedGeGLU(DIM, HIDDEN)
    assert is_joined(block)
    block.load_state_dict({name: one + 1 for name, one in block.state_dict().items()})
    assert is_joined(block), "values are copied into place"
    block(torch.randn(3, DIM)).sum().backward()
    torch.optim.SGD(block.parameters(), lr=0.1).step()
    assert is_joined(block), "so are steps of an optimizer"
    file = io.BytesIO()
    torch.save(block.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file)
    assert all(torch.equal(loaded[name], one) for name, one in block.state_dict().items())
    values = [one.clone() for one in block.parameters()]
    parameters = [id(one) for one in block.parameters()]
    assert is_joined(nn.Sequential(block).to(BF16)[0]), "together with the model it is in"
    assert [id(one) for one in block.parameters()] == parameters
    assert all(torch.equal(one, other.to(BF16)) for one, other in zip(block.parameters(), values, strict=True))
    copied = copy.deepcopy(block)
    assert not is_joined(copied)
    assert not is_joined(copied.to(F32)), "who has parted them may have had a reason"
    assert is_joined(block.share_memory())
    with torch.device("meta"):
        FusedGeGLU(DIM, HIDDEN)


def test_layers_of_a_plain_module_stay_where_they_are() -> None:
    plain = GeGLU(DIM, HIDDEN)
    addresses = [one.data_ptr() for one in plain.parameters()]
    fused = FusedGeGLU.like(plain)
    assert [one.data_ptr() for one in fused.to(F32).parameters()] == addresses
    assert not are_joined(fused.gate_proj, fused.up_proj)
    assert not are_joined(nn.Identity(), nn.Linear(DIM, HIDDEN))


def test_sharing_is_refused_where_weights_differ() -> None:
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        share_storage(nn.Linear(DIM, HIDDEN), nn.Linear(DIM, 2 * HIDDEN))
