"""The module and its operators on the CPU: parameters, fallback, fake results, and how a candidate is chosen."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
import triton
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from snippets.fused_mlp import model
from snippets.fused_mlp.geglu.model import FusedGeGLU
from snippets.mlp.model import GeGLU

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
DTYPES = "they take bfloat16 or float16 throughout, not"
ROWS = "the copy engine needs rows of whole 16 bytes, and"
NO_GPU = r"^FusedGeGLU runs as plain PyTorch: they need an NVIDIA GPU$"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(model, "CHOICES", {})
    monkeypatch.setattr(model, "SAID", set())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)  # which raises without CUDA


# The module


def test_the_state_dict_is_that_of_the_plain_block() -> None:
    plain, fused = GeGLU(8, 24), FusedGeGLU(8, 24)
    assert [(name, one.shape) for name, one in fused.state_dict().items()] == [
        (name, one.shape) for name, one in plain.state_dict().items()
    ]
    fused.load_state_dict(plain.state_dict())
    assert all(torch.equal(one, other) for one, other in zip(fused.parameters(), plain.parameters(), strict=True))
    fused = FusedGeGLU(8, 24)
    plain.load_state_dict(fused.state_dict())
    assert all(torch.equal(one, other) for one, other in zip(fused.parameters(), plain.parameters(), strict=True))


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
    fused = FusedGeGLU(7, 11).to(dtype)
    fused.load_state_dict(plain.state_dict())
    x = torch.randn(shape, dtype=dtype)
    with pytest.warns(UserWarning, match=NO_GPU):
        found = fused(x)
    assert torch.equal(found, plain(x))
    weights, others = list(fused.parameters()), list(plain.parameters())
    pairs = zip(
        torch.autograd.grad(fused(x).sum(), weights), torch.autograd.grad(plain(x).sum(), others), strict=True
    )  # fmt: skip
    assert all(torch.equal(one, other) for one, other in pairs)


def test_the_reason_is_told_once_in_a_process() -> None:
    x = torch.randn(2, 8)
    module = FusedGeGLU(8, 16)
    with pytest.warns(UserWarning, match=NO_GPU) as told:
        module(x)
    assert len(told) == 1
    module(x)  # silent, as is another module: a warning is an error here
    FusedGeGLU(8, 24)(x)
    with pytest.warns(UserWarning, match=r"^FusedGeGLU runs as plain PyTorch: another reason$"):
        model.say_once("another reason")


@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu", "silu", "none"])
def test_the_activation_is_a_parameter(activation: str) -> None:
    module = FusedGeGLU(7, 11, activation).double()
    x = torch.randn(5, 7, dtype=torch.float64)
    gate, up, down = module.parameters()
    with pytest.warns(UserWarning, match=NO_GPU):
        found = module(x)
    assert torch.allclose(found, model.gated_reference(x, gate, up, activation) @ down.t(), rtol=1e-13, atol=1e-14)


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
        assert torch.allclose(model.act(z, activation), expected, rtol=1e-14, atol=1e-15)


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^no activation 'tanh'; there are none, gelu_tanh, gelu, silu, relu, rough"):
        FusedGeGLU(8, 8, "tanh")


def test_compiled_the_fallback_is_one_graph() -> None:
    torch._dynamo.reset()
    module = FusedGeGLU(7, 11)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    x = torch.randn(5, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whether a warning leaves a traced function is the compiler's affair
        assert torch.equal(compiled(x), module(x))
    assert {"they need an NVIDIA GPU"} == model.SAID


# What the kernels can do


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    return torch.device("cuda", 0)


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_what_is_supported(hopper: torch.device, dtype: torch.dtype) -> None:
    assert model.unsupported(hopper, 4 * (dtype,), (3072, 768)) == ""


@pytest.mark.parametrize(
    ("dtypes", "sizes", "reason"),
    [
        ((F32, F32, F32, F32), (16, 8), f"{DTYPES} torch.float32"),
        ((BF16, F16, BF16, BF16), (16, 8), f"{DTYPES} torch.bfloat16, torch.float16"),
        ((F32, BF16, BF16, BF16), (16, 8), f"{DTYPES} torch.bfloat16, torch.float32"),
        (4 * (BF16,), (16, 12), f"{ROWS} (16, 12) is not a multiple of 8 elements"),
        (4 * (BF16,), (75, 8), f"{ROWS} (75, 8) is not a multiple of 8 elements"),
    ],
)
def test_what_is_not_supported_on_a_hopper_gpu(
    hopper: torch.device, dtypes: tuple[torch.dtype, ...], sizes: tuple[int, ...], reason: str
) -> None:
    assert model.unsupported(hopper, dtypes, sizes) == reason


def test_other_devices_are_not_supported(hopper: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = 4 * (BF16,), (16, 8)
    assert model.unsupported(torch.device("cpu"), *wanted) == "they need an NVIDIA GPU"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A100")
    expected = "they are written for Hopper (compute capability 9.0), and this is NVIDIA A100"
    assert model.unsupported(hopper, *wanted) == expected
    monkeypatch.setattr(torch.version, "hip", "6.0")
    assert model.unsupported(hopper, *wanted) == "they need an NVIDIA GPU"


# Operators that are traced, not run

X, GATE, UP, DOWN, HIDDEN, BIAS = (3, 5, 64), (72, 64), (72, 64), (64, 72), (3, 5, 72), (72,)


@pytest.mark.parametrize(
    ("operator", "shapes", "expected"),
    [
        ("gated_activation", [HIDDEN, HIDDEN], [HIDDEN]),
        ("gated_activation_backward", [HIDDEN, HIDDEN, HIDDEN], [HIDDEN, HIDDEN]),
        ("gate_up", [X, GATE, UP], [HIDDEN]),
        ("gate_up_saved", [X, GATE, UP], [HIDDEN, HIDDEN, HIDDEN]),
        ("gate_up_backward", [HIDDEN, X, GATE, UP, None, None], [X, GATE, UP]),
        ("gate_up_backward", [HIDDEN, X, GATE, UP, HIDDEN, HIDDEN], [X, GATE, UP]),
        ("linear", [X, GATE, None], [HIDDEN]),
        ("linear", [X, GATE, BIAS], [HIDDEN]),
        ("forward", [X, GATE, UP, DOWN], [X]),
    ],
)
@pytest.mark.parametrize("transposed", [False, True])
def test_fake_results(
    operator: str, shapes: list[tuple[int, ...] | None], expected: list[tuple[int, ...]], transposed: bool
) -> None:
    """Shape and dtype, and contiguous, as the kernels write them, whatever the layout of what they read."""
    with FakeTensorMode():
        tensors = [None if shape is None else torch.empty(shape, dtype=BF16) for shape in shapes]
        if transposed:
            tensors = [
                tensor.transpose(0, -1).contiguous().transpose(0, -1) if tensor is not None else None
                for tensor in tensors
            ]
        found = getattr(model, operator)(*tensors, "gelu_tanh")
    results = [found] if isinstance(found, Tensor) else list(found)
    assert [tuple(one.shape) for one in results] == expected
    assert [(one.dtype, one.is_contiguous()) for one in results] == len(results) * [(BF16, True)]


def test_every_operator_has_a_fake_result_above() -> None:
    defined = {name for name, one in vars(model).items() if isinstance(one, type(model.gate_up))}
    (parametrize,) = (mark for mark in test_fake_results.pytestmark if mark.args[0] != "transposed")
    assert {operator for operator, *_ in parametrize.args[1]} == defined


@pytest.mark.parametrize("saved", [False, True])
def test_gradients_are_traced(saved: bool) -> None:
    with FakeTensorMode():
        leaves = [torch.empty(shape, dtype=BF16, requires_grad=True) for shape in (X, GATE, UP)]
        found = model.gate_up_saved(*leaves, "silu") if saved else (model.gate_up(*leaves, "silu"),)
        assert [one.requires_grad for one in found] == [True, False, False][: len(found)]
        gradients = torch.autograd.grad(found[0], leaves, torch.empty_like(found[0]))
    assert [tuple(one.shape) for one in gradients] == [X, GATE, UP]


# How a candidate is chosen


@pytest.mark.parametrize(("rows", "expected"), [(1, 1), (2, 2), (3, 4), (128, 128), (129, 256), (8192, 8192)])
def test_the_bucket_is_the_power_of_two_above(rows: int, expected: int) -> None:
    assert model.bucket(rows) == expected


def candidates() -> dict[str, Callable[[], Tensor]]:
    return {name: lambda name=name: torch.tensor(len(name)) for name in ("a", "bb", "ccc")}


def test_the_fastest_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[int] = []

    def median_us(run: Callable[[], Tensor]) -> float:
        timed.append(int(run()))
        return {1: 3.0, 2: 1.0, 3: 2.0}[timed[-1]]

    monkeypatch.setattr(model, "_median_us", median_us)
    for _ in range(2):
        assert int(model.fastest(("work", 128), candidates())()) == 2
    assert timed == [1, 2, 3]
    assert [(key, list(times_us.items())) for key, times_us in model.CHOICES.items()] == [
        (("work", 128), [("bb", 1.0), ("ccc", 2.0), ("a", 3.0)])
    ]
    model.fastest(("work", 256), candidates())
    assert timed == [1, 2, 3, 1, 2, 3]


def test_nothing_is_timed_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    def median_us(run: Callable[[], Tensor]) -> float:
        raise AssertionError("timed")

    monkeypatch.setattr(model, "_median_us", median_us)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert int(model.fastest(("work",), candidates())()) == 1
    assert not model.CHOICES
    model.CHOICES["work",] = {"ccc": 1.0, "a": 2.0, "bb": 3.0}
    assert int(model.fastest(("work",), candidates())()) == 3, "what was tuned before is used"


def test_what_does_not_fit_is_never_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    def bench(run: Callable[[], Tensor], **options: object) -> float:
        if int(run()) == 1:
            raise triton.runtime.errors.OutOfResources(300_000, 232_448, "shared memory")
        return 0.001 * int(run())

    monkeypatch.setattr(triton.testing, "do_bench", bench)
    monkeypatch.setattr(triton.testing, "do_bench_cudagraph", bench)
    assert int(model.fastest(("work",), candidates())()) == 2
    assert list(model.CHOICES["work",].items()) == [("bb", 2.0), ("ccc", 3.0), ("a", float("inf"))]


# Tensors on their way to the copy engine


def test_a_matrix_is_contiguous_and_aligned() -> None:
    x = torch.randn(3, 5, 8).to(BF16)
    assert model.matrix(x).data_ptr() == x.data_ptr(), "no copy where none is needed"
    for view in (
        x.transpose(0, 1),
        torch.cat([x[0, 0, :1], x.flatten()])[1:].view(x.shape),
        x[..., :1].expand(x.shape),
    ):
        found = model.matrix(view)
        assert found.is_contiguous()
        assert found.data_ptr() % 16 == 0
        assert torch.equal(found, view.reshape(15, 8))
    assert model.matrix(torch.empty(3, 0, 8)).shape == (0, 8)
