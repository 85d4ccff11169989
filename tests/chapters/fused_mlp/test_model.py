"""The module and its operators on the CPU: parameters, fallback, what is supported, and fake results."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from snippets.fused_mlp.geglu import model, operators, plans, support
from snippets.fused_mlp.geglu.model import FusedGeGLU
from snippets.mlp.model import GeGLU
from tests.chapters.fused_mlp.checks import ACTIVATIONS, BF16, F16, F32, OPERATORS

ROWS = "they copy rows of whole 16 bytes, and one of the widths"
SAYS = "^this call runs as plain PyTorch, without the fused kernels: "
NO_GPU = SAYS + "they need an NVIDIA GPU$"
silently = pytest.mark.filterwarnings("ignore:this call runs as plain PyTorch")
trained_or_not = pytest.mark.parametrize("is_trained", [False, True])


# The module


def test_the_state_dict_is_that_of_the_plain_block() -> None:
    plain, fused = GeGLU(8, 24), FusedGeGLU(8, 24)
    for to, source in ((fused, plain), (plain, FusedGeGLU(8, 24))):
        to.load_state_dict(source.state_dict())
        assert list(to.state_dict()) == list(source.state_dict())
        assert all(map(torch.equal, to.parameters(), source.parameters()))


def test_the_module_over_a_plain_one_shares_its_layers() -> None:
    plain = GeGLU(8, 24).eval()
    fused = FusedGeGLU.like(plain, recompute=False)
    assert [id(one) for one in fused.parameters()] == [id(one) for one in plain.parameters()]
    assert (fused.training, fused.recompute, fused.activation) == (False, False, "gelu_tanh")
    assert FusedGeGLU.like(plain.train()).training


@pytest.mark.parametrize("dtype", [BF16, F32, torch.float64])
@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 7), (0, 7), (7,)])
def test_without_a_gpu_it_is_the_plain_block(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    plain = GeGLU(7, 11).to(dtype)
    fused = FusedGeGLU.like(plain)  # the same memory: on some CPUs a product's last bit depends on its address
    x = torch.randn(shape, dtype=dtype)
    with pytest.warns(UserWarning, match=NO_GPU):
        found = fused(x)
    assert torch.equal(found, plain(x))
    weights = list(plain.parameters())
    found, expected = (torch.autograd.grad(block(x).sum(), weights) for block in (fused, plain))
    assert all(map(torch.equal, found, expected))


def test_the_reason_is_told_once_in_a_process() -> None:
    x = torch.randn(2, 8)
    module = FusedGeGLU(8, 16)
    with pytest.warns(UserWarning, match=NO_GPU) as told:
        module(x)
    assert len(told) == 1
    module(x)  # silent, as is another module: a warning is an error here
    FusedGeGLU(8, 24)(x)
    with pytest.warns(UserWarning, match=f"{SAYS}another reason$"):
        support.say_once("another reason")


def check_gradients(found: Callable[..., Tensor], plain: Callable[..., Tensor], *shapes: tuple[int, ...]) -> None:
    """Results and all gradients, in float64."""
    leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    results = [(out, *torch.autograd.grad(out.sum(), leaves)) for out in (found(*leaves), plain(*leaves))]
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)


@silently
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_and_gradients(activation: str) -> None:
    """Of the module, of gate and up, and of the two factors alone."""
    module = FusedGeGLU(7, 11, activation).double()
    gate, up, down = module.parameters()
    check_gradients(module, lambda x: support.gated_reference(x, gate, up, activation) @ down.t(), (5, 7))
    check_gradients(
        lambda *leaves: operators.gate_up(*leaves, activation),
        lambda *leaves: support.plain_gate_up(*leaves, activation),
        *((3, 8), (16, 8), (16, 8)),
    )
    check_gradients(
        lambda *leaves: model.gated_activation(*leaves, activation),
        lambda gate, up: support.act(gate, activation) * up,
        *((3, 8), (3, 8)),
    )


def test_the_activations_by_hand() -> None:
    z = torch.tensor([-1.5, 0.0, 2.0], dtype=torch.float64)
    inner = (2 / torch.pi) ** 0.5 * (z + 0.044715 * z**3)
    for activation, expected in {
        "gelu_tanh": 0.5 * z * (1 + torch.tanh(inner)),
        "gelu": 0.5 * z * (1 + torch.erf(z / 2**0.5)),
        "silu": z / (1 + torch.exp(-z)),
        "relu": torch.tensor([0.0, 0.0, 2.0], dtype=torch.float64),
        "none": z,
        "rough_gelu_tanh": 0.5 * z * (1 + torch.tanh(inner)),
        "rough_silu": z / (1 + torch.exp(-z)),
    }.items():
        assert torch.allclose(support.act(z, activation), expected, rtol=1e-14, atol=1e-15)


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^no activation 'tanh'; there are none, gelu_tanh, gelu, silu, relu$"):
        FusedGeGLU(8, 8, "tanh")


def test_compiled_the_fallback_is_one_graph() -> None:
    torch._dynamo.reset()
    module = FusedGeGLU(7, 11)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    x = torch.randn(5, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whether a warning leaves a traced function is the compiler's affair
        assert torch.equal(compiled(x), module(x))
    assert {"they need an NVIDIA GPU"} == support.SAID


# What the kernels can do


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA T4")
    return torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("dtypes", "widths", "reason"),
    [
        (4 * (BF16,), (3072, 768), ""),
        (4 * (F16,), (3072, 768), ""),
        ((F32, F32), (16, 8), "they take one 16-bit type throughout, not torch.float32"),
        ((BF16, F16), (16, 8), "they take one 16-bit type throughout, not torch.bfloat16, torch.float16"),
        ((F32, BF16), None, "they take one 16-bit type throughout, not torch.bfloat16, torch.float32"),
        ((BF16,), (16, 12), f"{ROWS} 12, 16 is no multiple of 8 elements"),
        ((F32,), None, ""),
        ((torch.float64,), None, "they take one 16-bit type throughout, not torch.float64"),
    ],
)  # fmt: skip
def test_what_is_supported(
    gpu: torch.device, dtypes: tuple[torch.dtype, ...], widths: tuple[int, ...] | None, reason: str
) -> None:
    assert support.unsupported_work(gpu, dtypes, widths) == reason


def test_other_devices_are_not_supported(gpu: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    assert support.unsupported_device(torch.device("cpu")) == "they need an NVIDIA GPU"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert support.unsupported_device(gpu) == "they need compute capability 8.0, and this is NVIDIA T4"
    support.unsupported_device.cache_clear()
    monkeypatch.setattr(torch.version, "hip", "6.0")
    assert support.unsupported_device(gpu) == "they need an NVIDIA GPU"


def test_tensors_on_different_devices_are_not_supported() -> None:
    x, weight = torch.zeros(2, 8), torch.zeros(8, 8, device="meta")
    assert support.unsupported(x, weight) == "its tensors are on different devices"


# Sizes and layers that do not fit


@trained_or_not
@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        ("gated_mlp", [(2, 8), (16, 8), (16, 7), (8, 16)]),
        ("gated_mlp", [(2, 7), (16, 8), (16, 8), (8, 16)]),
        ("gated_mlp", [(2, 8), (16, 8), (16, 8), (8, 15)]),
        ("gated_mlp", [(2, 8), (16, 8), (16, 8), (16, 8)]),
        ("gated_mlp", [(2, 8), (16, 8), (16, 8), (1, 8, 16)]),
        ("gate_up", [(), (16, 8), (16, 8)]),
        ("gate_up", [(2, 8), (8,), (8,)]),
        ("linear", [(2, 8), (8, 16)]),
        ("linear", [(2, 8), (16, 8), (1,)]),
        ("linear", [(2, 8), (16, 8), (8,)]),
    ],
)
def test_sizes_that_do_not_fit_are_refused(function: str, shapes: list[tuple[int, ...]], is_trained: bool) -> None:
    """As they were passed, and as they should be."""
    weights = {"gated_mlp": 3, "gate_up": 3, "linear": 2}[function]
    told = f"x {shapes[0]}, weights {shapes[1:weights]}"
    expected = "x (..., dim), weights (outputs, dim)"
    for last in shapes[weights:]:
        name, form = ("down", "(dim, outputs)") if function == "gated_mlp" else ("bias", "(outputs,)")
        told, expected = f"{told}, {name} {last}", f"{expected}, {name} {form}"
    tensors = [torch.zeros(shape, requires_grad=is_trained) for shape in shapes]
    with pytest.raises(ValueError, match=f"^{re.escape(f'sizes that do not fit: {told}; expected {expected}')}$"):
        getattr(model, function)(*tensors)


@trained_or_not
@pytest.mark.parametrize("recompute", ["all", "", None, 2])
def test_an_unknown_recompute_is_refused(recompute: Any, is_trained: bool) -> None:
    tensors = [torch.zeros(8, 8, requires_grad=is_trained) for _ in range(4)]
    told = rf"^recompute is a bool or 'hidden', not {recompute!r}$"
    with pytest.raises(ValueError, match=told):
        model.gated_mlp(*tensors, recompute=recompute)
    with pytest.raises(ValueError, match=told):
        FusedGeGLU(8, 8, recompute=recompute)


@silently
@pytest.mark.parametrize("mode", ["inference", "training", "autocast"])
@pytest.mark.parametrize("other", [None, torch.zeros(8, 8).numpy(), [1.0]], ids=["None", "NumPy", "list"])
@pytest.mark.parametrize(
    ("function", "names"),
    [
        ("gated_mlp", ("x", "gate", "up", "down")),
        ("gate_up", ("x", "gate", "up")),
        ("linear", ("x", "weight", "bias")),
        ("gated_activation", ("gate", "up")),
    ],
)
def test_a_non_tensor_is_rejected(function: str, names: tuple[str, ...], other: Any, mode: str) -> None:
    for name in names:
        if name == "bias" and not isinstance(other, list):
            continue  # there may be none; an array has a shape, which is not x's
        shapes = {each: (8,) if each == "bias" else (8, 8) for each in names}
        given = {each: torch.zeros(shape, requires_grad=mode == "training") for each, shape in shapes.items()}
        told = rf"^{function} takes {name} as a torch\.Tensor, not {type(other).__name__}$"
        with torch.autocast("cpu", BF16, enabled=mode == "autocast"), pytest.raises(TypeError, match=told):
            getattr(model, function)(**{**given, name: other})


def test_an_error_of_pytorch_stays_what_it_is() -> None:
    with pytest.warns(UserWarning, match=NO_GPU), pytest.raises(RuntimeError, match="same dtype"):
        model.gated_mlp(torch.zeros(8, 8), *[torch.zeros(8, 8, dtype=BF16)] * 3)


@pytest.mark.parametrize(
    ("name", "layer", "told"),
    [("gate_proj", None, "is missing"), ("up_proj", None, "is missing"), ("down_proj", nn.ReLU(), "is a ReLU")],
)
def test_a_module_without_the_three_layers_is_refused(name: str, layer: nn.Module | None, told: str) -> None:
    foreign = GeGLU(8, 16)
    setattr(foreign, name, layer)
    takes = "FusedGeGLU.like takes a module with linear layers gate_proj, up_proj and down_proj; "
    with pytest.raises(TypeError, match=f"^{takes}GeGLU.{name} {told}$"):
        FusedGeGLU.like(foreign)
    with pytest.raises(TypeError, match=f"^{takes}Linear.gate_proj is missing$"):
        FusedGeGLU.like(nn.Linear(8, 8))


class Wrapped(nn.Module):
    """As a compiled module: what it lacks is that of another."""

    def __init__(self, other: nn.Module) -> None:
        super().__init__()
        self._modules["other"] = other

    def __getattr__(self, name: str) -> Any:
        return getattr(self._modules["other"], name)


@pytest.mark.parametrize(
    ("own", "taken"), [(nn.GELU(), "gelu"), (torch.nn.functional.relu, "relu"), ("silu", "silu"), (None, "gelu_tanh")]
)
def test_the_activation_of_a_plain_module_is_taken(own: Any, taken: str) -> None:
    """What it may be is tested with the package's layer, which asks the same function."""
    for name in ("act_fn", "activation_fn", "activation", "act"):
        plain = GeGLU(8, 16)
        setattr(plain, name, own)
        assert FusedGeGLU.like(plain).activation == taken
        assert FusedGeGLU.like(plain, "relu").activation == "relu"
        assert FusedGeGLU.like(Wrapped(plain)).activation == taken
        assert FusedGeGLU.like(FusedGeGLU.like(plain)).activation == taken


@pytest.mark.parametrize("own", [nn.Mish(), "mish", len, 3])
def test_an_activation_that_the_kernels_lack_is_refused(own: Any) -> None:
    plain = GeGLU(8, 16)
    plain.act_fn = own
    told = "FusedGeGLU.like does not know the activation of GeGLU; pass activation=, one of none, gelu_tanh, "
    with pytest.raises(TypeError, match=f"^{told}gelu, silu, relu$"):
        FusedGeGLU.like(plain)
    assert FusedGeGLU.like(plain, "silu").activation == "silu"


@pytest.mark.parametrize("transform", [lambda of: of, torch.func.vmap, lambda of: lambda *x: torch.func.vjp(of, *x)])
def test_factors_of_different_shapes_are_refused(transform: Callable[..., Any]) -> None:
    told = r"^sizes that are not the same: \[\((3, )?4, 8\), \((3, )?1, 8\)\]$"
    with pytest.raises(ValueError, match=told):
        transform(model.gated_activation)(torch.zeros(3, 4, 8), torch.zeros(3, 1, 8))


def test_what_is_more_than_a_weight_is_called() -> None:
    """A bias is added, and hooks of the projections run. What more there may be is tested with the package's layer."""
    plain = GeGLU(8, 16)
    plain.up_proj = nn.Linear(8, 16)
    fused, x = FusedGeGLU.like(plain), torch.randn(2, 8)
    seen: list[str] = []
    for name, layer in fused.named_children():
        layer.register_forward_hook(lambda layer, inputs, output, name=name: seen.append(name))
    with pytest.warns(UserWarning, match="one of its layers is more than a weight$"):
        found = fused(x)
    assert seen == ["gate_proj", "up_proj", "down_proj"]
    assert torch.equal(found, plain(x))
    bare = nn.Linear(8, 8, bias=False)
    del bare.bias
    assert model.only_weight(bare) is bare.weight


def test_a_warning_points_at_who_called_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = torch.randn(8, 8), torch.randn(8, 8)
    trained = torch.randn(8, 8, requires_grad=True)
    for call in (
        lambda: FusedGeGLU(8, 8)(x),
        lambda: model.gated_mlp(x, weight, weight, weight),
        lambda: model.gated_mlp(trained, weight, weight, weight),
        lambda: model.gate_up(x, weight, weight),
        lambda: model.linear(x, weight),
        lambda: model.linear(trained, weight),
        lambda: model.gated_activation(x, weight),
    ):
        monkeypatch.setattr(support, "SAID", set())
        monkeypatch.setattr(plans, "PLANS", {})
        with pytest.warns(UserWarning, match=SAYS) as told:
            call()
        assert [(one.filename, one.lineno) for one in told] == [(__file__, call.__code__.co_firstlineno)]


def test_it_warns_without_a_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the thread in which autograd runs what was called on a GPU."""
    monkeypatch.setattr(support, "INSIDE", ("",))
    with pytest.warns(UserWarning, match="a reason$"):
        support.say_once("a reason")


@trained_or_not
def test_autocast_casts_all_tensors(is_trained: bool) -> None:
    module, x = FusedGeGLU(8, 16).requires_grad_(is_trained), torch.randn(2, 8)
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.warns(UserWarning, match=NO_GPU):
            found = module(x)
        assert model.linear(x, module.up_proj.weight.detach()).dtype == BF16
    assert found.dtype == BF16
    assert found.requires_grad == is_trained


@silently
def test_autocast_leaves_float64_and_devices_without_it() -> None:
    tensors = [torch.randn(8, 8, dtype=torch.float64) for _ in range(4)]
    with torch.autocast("cpu", BF16):
        assert model.gated_mlp(*tensors).dtype == torch.float64
    assert model.gated_mlp(*[one.to("meta").requires_grad_() for one in tensors]).is_meta
    assert model.linear(*[one.to("meta") for one in tensors[:2]]).is_meta


# Transforms

TRANSFORMED = f"{SAYS}it is inside a transform of torch.func or in forward mode$"


def plain_gate_up(x: Tensor, gate: Tensor, up: Tensor, *_: Tensor) -> Tensor:
    return support.plain_gate_up(x, gate, up, "silu")


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "mlp": (
        lambda *tensors: model.gated_mlp(*tensors, "silu"),
        lambda x, gate, up, down: plain_gate_up(x, gate, up) @ down.t(),
    ),
    "gate_up": (lambda x, gate, up, _: model.gate_up(x, gate, up, "silu"), plain_gate_up),
    "linear": (
        lambda x, gate, *_: model.linear(x, gate, None, "silu"),
        lambda x, gate, *_: nn.functional.silu(x @ gate.t()),
    ),
    "factors": (
        lambda _, gate, up, down: model.gated_activation(gate, up, "silu") @ down,
        lambda _, gate, up, down: nn.functional.silu(gate) * up @ down,
    ),
}


@pytest.mark.filterwarnings("ignore:`torch.jit")  # of PyTorch's own rules
@pytest.mark.parametrize("transform", ["grad", "jvp", "vmap", "vmap of grad", "dual"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_transforms_look_into_what_is_called(function: str, transform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No silent zeros: operators have no rules for them, and on a GPU hide what they do."""
    monkeypatch.setattr(model, "unsupported", lambda *_, **__: "")
    tensors = tuple(torch.randn(8, 8, dtype=torch.float64) for _ in range(4))

    def results(of: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        if transform == "grad":
            return tuple(torch.func.grad(lambda *inputs: of(*inputs).sum(), argnums=(0, 1))(*tensors))
        if transform == "jvp":
            return tuple(torch.func.jvp(of, tensors, tensors))
        if transform.startswith("vmap"):
            stacked = [torch.stack([one, 2 * one]) for one in tensors]
            gradients = torch.func.grad(lambda *inputs: of(*inputs).sum(), argnums=(0, 1))
            return (torch.func.vmap(of)(*stacked),) if transform == "vmap" else torch.func.vmap(gradients)(*stacked)
        with torch.autograd.forward_ad.dual_level():
            duals = [torch.autograd.forward_ad.make_dual(one, one) for one in tensors]
            return tuple(torch.autograd.forward_ad.unpack_dual(of(*duals)))

    ours, plain = FUNCTIONS[function]
    with pytest.warns(UserWarning, match=TRANSFORMED):
        found = results(ours)
    for one, other in zip(found, results(plain), strict=True):
        assert torch.allclose(one, other, rtol=1e-12)


def test_a_linear_that_needs_a_gradient_is_plain_pytorch() -> None:
    x, weight, bias = torch.randn(3, 8), torch.randn(4, 8, requires_grad=True), torch.randn(4)
    with pytest.warns(UserWarning, match="`linear` has no gradient of its own, and one is needed$"):
        found = model.linear(x, weight, bias, "relu")
    expected = nn.functional.relu(nn.functional.linear(x, weight, bias))
    assert torch.equal(torch.autograd.grad(found.sum(), weight)[0], torch.autograd.grad(expected.sum(), weight)[0])


@pytest.mark.filterwarnings("default")  # of PyTorch's own
@pytest.mark.parametrize("strict", [False, True])
def test_exported_it_holds_the_operators(strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "unsupported", lambda *_: "")
    module, x = FusedGeGLU(8, 16), torch.randn(3, 8)
    for is_trained, name in ((True, "trained"), (False, "forward")):
        with torch.set_grad_enabled(is_trained):
            exported = torch.export.export(module, (x,), strict=strict)
        assert f"geglu.{name}.default" in [str(node.target) for node in exported.graph.nodes]


def test_on_a_device_without_cuda_it_is_plain_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index may be 0 as well, and there `torch.cuda` must not be asked for the current one."""

    class OfApple(Tensor):
        def get_device(self) -> int:
            return 0

    run = operators.on_its_device(lambda x, y: (x, y))
    x = torch.zeros(2).as_subclass(OfApple)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: pytest.fail("asked for"))
    assert run(x, 1)[0] is x


# The operators as plain PyTorch, which they are on a CPU


@silently
def test_no_rows_and_no_columns() -> None:
    assert model.gated_mlp(torch.zeros(0, 8), *[torch.zeros(8, 8)] * 3).shape == (0, 8)
    found = model.linear(torch.zeros(3, 0), torch.zeros(5, 0), torch.full((5,), -1.0), "relu")
    assert torch.equal(found, torch.zeros(3, 5))


# Operators that are traced, not run

X, GATE, UP, DOWN, HIDDEN, BIAS = (3, 5, 64), (72, 64), (72, 64), (64, 72), (3, 5, 72), (72,)
ROWS_OF_X, ROWS_OF_HIDDEN, PRE = (15, 64), (15, 72), (15, 144)


FAKE: list[tuple[str, list[tuple[int, ...] | None], list[tuple[int, ...]], tuple[object, ...]]] = [
    ("gated_activation", [HIDDEN, HIDDEN], [HIDDEN], ("silu",)),
    ("gated_activation_backward", [HIDDEN, HIDDEN, HIDDEN], [HIDDEN, HIDDEN], ("silu",)),
    ("gate_up", [X, GATE, UP], [HIDDEN], ("silu",)),
    ("gate_up_saved", [ROWS_OF_X, GATE, UP], [ROWS_OF_HIDDEN, PRE], ("silu",)),
    ("pre_backward", [ROWS_OF_X, DOWN, PRE], [PRE, ROWS_OF_HIDDEN], ("silu", True)),
    ("pre_backward", [ROWS_OF_X, DOWN, PRE], [PRE, (0,)], ("silu", False)),
    ("x_backward", [PRE, GATE, UP], [ROWS_OF_X], ()),
    ("trained", [X, GATE, UP, DOWN], [X, PRE, ROWS_OF_HIDDEN], ("silu", 3)),
    ("trained", [X, GATE, UP, DOWN], [X, PRE, (0,)], ("silu", 2)),
    ("trained", [X, GATE, UP, DOWN], [X, (0,), (0,)], ("silu", 0)),
    ("linear", [X, GATE, None], [HIDDEN], ("silu",)),
    ("linear", [X, GATE, BIAS], [HIDDEN], ("silu",)),
    ("forward", [X, GATE, UP, DOWN], [X], ("silu",)),
]


def test_every_operator_has_a_fake_result() -> None:
    assert {operator for operator, *_ in FAKE} == set(OPERATORS)


@pytest.mark.parametrize(("operator", "shapes", "expected", "options"), FAKE)
@pytest.mark.parametrize("transposed", [False, True])
def test_fake_results(
    operator: str,
    shapes: list[tuple[int, ...] | None],
    expected: list[tuple[int, ...]],
    options: tuple,
    transposed: bool,
) -> None:
    """Shape and dtype, and contiguous, as the kernels write them, whatever the layout of what they read."""
    with FakeTensorMode():
        tensors = [None if shape is None else torch.empty(shape, dtype=BF16) for shape in shapes]
        if transposed:
            tensors = [one if one is None else one.transpose(0, -1).contiguous().transpose(0, -1) for one in tensors]
        found = OPERATORS[operator](*tensors, *options)
    results = [found] if isinstance(found, Tensor) else list(found)
    assert [tuple(one.shape) for one in results] == expected
    assert [(one.dtype, one.is_contiguous()) for one in results] == len(results) * [(BF16, True)]


# Plans


def test_a_plan_is_made_once_for_a_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, ...]] = []

    def make(activation: str, x: Tensor) -> tuple[tuple[str, ...], bool]:
        made.append(tuple(x.shape))
        return (activation,), x.shape[0] != 3

    for rows in (1, 2, 1, 3, 3):
        assert plans.planned(make, "silu", torch.zeros(rows, 8)) == ("silu",)
    assert made == [(1, 8), (2, 8), (3, 8), (3, 8)], "what is not settled is decided again"
    plans.planned(make, "silu", torch.zeros(1, 8, dtype=BF16))
    assert len(made) == 5
    monkeypatch.setattr(plans, "PLANS_KEPT", len(plans.PLANS))
    plans.planned(make, "silu", torch.zeros(4, 8))
    assert len(plans.PLANS) == 1


def test_a_tensor_is_made_ready() -> None:
    x = torch.randn(3, 5, 8).to(BF16)
    assert plans.ready(x) is x, "no copy where none is needed"
    for view in (
        x.transpose(0, 1),
        torch.cat([x[0, 0, :1], x.flatten()])[1:].view(x.shape),
        x[..., :1].expand(x.shape),
    ):
        found = plans.ready(view)
        assert found.is_contiguous()
        assert found.data_ptr() % 16 == 0
        assert torch.equal(found, view)
