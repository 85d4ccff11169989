"""The chapter's kernel package, loaded without a network, and its layer in the place of gated MLPs: the book's, those
of Transformers where it is installed, and modules of their form.

It is loaded from a folder, or by a name that LOCAL_KERNELS leads to it.
"""

from __future__ import annotations

import copy
import functools
import json
import re
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from kernels import (
    LayerRepository,
    LocalLayerRepository,
    Mode,
    get_kernel,
    get_local_kernel,
    kernelize,
    use_kernel_mapping,
)
from torch import nn
from torch.nn import functional as F

from snippets.fused_mlp.geglu import operators
from snippets.lab.recording.device import PROJECT
from snippets.mlp.model import GeGLU

PACKAGE = PROJECT / "snippets/fused_mlp/geglu_kernels"
VARIANT = PACKAGE / "build/torch-cuda"
ID = json.loads((VARIANT / "metadata.json").read_text(encoding="utf-8"))["id"]
NAME = "profiling-pytorch/geglu-kernels"
SAYS = "this call runs as plain PyTorch, without the fused kernels: "
DIM, HIDDEN = 32, 48
Forward = Callable[[torch.Tensor], torch.Tensor]

pytestmark = pytest.mark.filterwarnings(f"ignore:{SAYS.replace(':', '.')}they need an NVIDIA GPU")


class Separate(nn.Module):
    """As LlamaMLP: three projections."""

    def __init__(self, act_fn: Any) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(DIM, HIDDEN, bias=False)
        self.up_proj = nn.Linear(DIM, HIDDEN, bias=False)
        self.down_proj = nn.Linear(HIDDEN, DIM, bias=False)
        self.act_fn = act_fn

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Together(nn.Module):
    """As Phi3MLP: gate's rows and up's in one projection."""

    def __init__(self, activation_fn: Any) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(DIM, 2 * HIDDEN, bias=False)
        self.down_proj = nn.Linear(HIDDEN, DIM, bias=False)
        self.activation_fn = activation_fn

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        gate, up_states = self.gate_up_proj(hidden_states).chunk(2, dim=-1)
        return self.down_proj(up_states * self.activation_fn(gate))


def of_transformers(prefix: str, dim: int = DIM, hidden: int = HIDDEN) -> nn.Module:
    """`Llama` -> a LlamaMLP. Importing Transformers warns."""
    model = prefix.lower()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip(f"transformers.models.{model}.modeling_{model}", exc_type=ImportError)
        config = getattr(module, f"{prefix}TextConfig", None) or getattr(module, f"{prefix}Config")
        return getattr(module, f"{prefix}MLP")(config(hidden_size=dim, intermediate_size=hidden))


TRANSFORMERS = {
    **dict.fromkeys(("Llama", "Mistral", "Qwen2", "Qwen3", "Phi3", "Glm"), "silu"),
    **dict.fromkeys(("Gemma", "Gemma2", "Gemma3"), "gelu_tanh"),
}
"""Prefix of a model's classes -> what the kernels call the activation of its MLP."""
MLPS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "separate": (lambda: Separate(nn.SiLU()), "silu"),
    "together": (lambda: Together(nn.GELU(approximate="tanh")), "gelu_tanh"),
    **{prefix: (functools.partial(of_transformers, prefix), name) for prefix, name in TRANSFORMERS.items()},
}
"""Model -> how to make its MLP, and what the kernels call its activation."""


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The reasons that were told so far: none. There is no network."""
    for owner, name in ((socket.socket, "connect"), (socket.socket, "connect_ex"), (socket, "getaddrinfo")):
        monkeypatch.setattr(owner, name, lambda *_, **__: pytest.fail("asked the network"))
    told: set[str] = set()
    monkeypatch.setattr(part("support"), "SAID", told)
    return told


def part(name: str) -> ModuleType:
    """A module of the package: `layers`."""
    return sys.modules[f"{get_local_kernel(VARIANT).__name__}.{name}"]


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The activations of all calls of `gated_mlp` by the layer."""
    called: list[str] = []
    original = part("layers").gated_mlp

    def noted(*tensors: torch.Tensor) -> torch.Tensor:
        called.append(tensors[-1])
        return original(*tensors)

    monkeypatch.setattr(part("layers"), "gated_mlp", noted)
    return called


def kernelized(plain: nn.Module, mode: Mode = Mode.INFERENCE, repository: Any = None, device: str = "cpu") -> nn.Module:
    """A copy with the layer's forward. The class is a subclass, which `kernelize` may change."""
    ours = copy.deepcopy(plain)
    ours.__class__ = type(type(plain).__name__, (type(plain),), {"kernel_layer_name": "GatedMLP"})
    repository = repository or LocalLayerRepository(VARIANT if device == "cpu" else PACKAGE, layer_name="FusedGeGLU")
    with use_kernel_mapping({"GatedMLP": {device: repository}}, inherit_mapping=False):
        return kernelize(ours, mode=mode, device=device, use_fallback=False)


def results(forward: Forward, x: torch.Tensor, parameters: list[nn.Parameter]) -> list[torch.Tensor]:
    """The result and the gradients of input and parameters."""
    out = forward(x)
    d_out = torch.linspace(-1, 1, out.numel(), dtype=x.dtype, device=x.device).view(out.shape)
    return [out, *torch.autograd.grad(out, [x, *parameters], d_out)]


# ---- models


def test_the_card_names_the_models_of_these_tests() -> None:
    card = (PACKAGE / "CARD.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"`(\w+)MLP`", card)) == sorted(TRANSFORMERS)


@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAINING | Mode.TORCH_COMPILE], ids=str)
@pytest.mark.parametrize("model", MLPS)
def test_results_and_gradients_are_those_of_the_model(model: str, mode: Mode, fused: list[str]) -> None:
    """To the bit where each product stays one; float64's last digits where one of two is parted. Weights keep names."""
    make, activation = MLPS[model]
    plain = make().double()
    ours = kernelized(make().double(), mode)
    assert list(ours.state_dict()) == list(plain.state_dict())
    ours.load_state_dict(plain.state_dict())
    x = torch.randn(2, 5, DIM, dtype=torch.float64, requires_grad=True)
    expected = results(plain, x, list(plain.parameters()))
    found = results(ours, x, list(ours.parameters()))
    assert fused == [activation]
    if "gate_up_proj" in dict(plain.named_children()):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    else:
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("model", ["separate", "together"])
def test_it_compiles_without_a_break(model: str) -> None:
    plain = MLPS[model][0]()
    ours = kernelized(plain, Mode.INFERENCE | Mode.TORCH_COMPILE)
    x = torch.randn(3, DIM)
    torch.compiler.reset()
    torch.testing.assert_close(torch.compile(ours, backend="eager", fullgraph=True)(x), plain(x))


def test_it_is_loaded_by_name(monkeypatch: pytest.MonkeyPatch, fused: list[str]) -> None:
    monkeypatch.setenv("LOCAL_KERNELS", f"{NAME}={VARIANT}")
    repository = LayerRepository(NAME, layer_name="FusedGeGLU", revision="main")
    assert get_kernel(NAME, version=1).layers.FusedGeGLU is repository.load() is part("layers").FusedGeGLU
    plain = Separate(nn.SiLU())
    x = torch.randn(3, DIM)
    assert torch.equal(kernelized(plain, repository=repository)(x), plain(x))
    assert fused == ["silu"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAINING, Mode.TRAINING | Mode.TORCH_COMPILE], ids=str)
def test_the_books_block_is_itself_on_the_cpu(mode: Mode, dtype: torch.dtype) -> None:
    """Forward and gradients, bit by bit: plain PyTorch does the work, and says so once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for *batch, dim, hidden in ((3, 5, 7, 11), (7, 11), (1, 8, 16), (0, 8, 16), (2, 9, 64, 96)):
            plain = GeGLU(dim, hidden).to(dtype)
            ours = kernelized(plain, mode)
            assert ours.forward.__func__.__module__ == f"{ID}.layers"
            x = torch.randn(*batch, dim, dtype=dtype, requires_grad=True)
            pairs = (results(one, x, list(one.parameters())) for one in (ours, plain))
            assert all(map(torch.equal, *pairs)), (batch, dim, hidden)
    assert [str(warning.message) for warning in caught] == [f"{SAYS}they need an NVIDIA GPU"]


def test_the_layer_is_stateless_as_kernels_wants_it() -> None:
    kernel = get_local_kernel(VARIANT)
    assert (kernel.__name__, kernel.__file__) == (ID, str(VARIANT / "__init__.py"))
    assert sorted(kernel.__all__) == ["gate_up", "gated_activation", "gated_mlp", "layers", "linear"]
    layer = kernel.layers.FusedGeGLU
    assert set(dir(layer)) - set(dir(nn.Module)) - {"__annotations__"} == {"can_torch_compile", "has_backward"}
    assert (layer.has_backward, layer.can_torch_compile) == (True, True)
    assert layer.__init__ is nn.Module.__init__
    assert list(layer.__annotations__) == ["gate_proj", "up_proj", "down_proj"]


def test_the_folder_of_the_package_is_that_of_a_cuda_build() -> None:
    if torch.version.cuda:
        assert get_local_kernel(PACKAGE).__name__ == ID
    else:
        with pytest.raises(FileNotFoundError, match="torch-cuda"):
            get_local_kernel(PACKAGE)


@pytest.mark.filterwarnings("ignore:this call runs as plain PyTorch")
def test_beside_the_chapter_each_has_its_own_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the namespace of the package, its identifier, as the Hub asks; the chapter's in `geglu`."""
    ran: list[str] = []
    for name, module in (("chapter", operators), ("package", part("operators"))):
        planned = module.planned
        noted = lambda *given, name=name, planned=planned: ran.append(name) or planned(*given)  # noqa: E731
        monkeypatch.setattr(module, "planned", noted)
    x, weight = torch.empty(0, 8), torch.empty(16, 8)
    for expected, namespace in (("chapter", torch.ops.geglu), ("package", getattr(torch.ops, ID))):
        ran.clear()
        both = namespace.gate_up(x, weight, weight, "silu"), namespace.linear(x, weight, None, "silu")
        assert [out.shape for out in both] == [(0, 16), (0, 16)]
        assert ran == [expected] * 2


WITHOUT_TRITON = {
    "sys.modules['triton'] = None": "they need Triton (import of triton halted; None in sys.modules)",
    "import triton; del triton.knobs; triton.__version__ = '3.3.1'": "they need Triton 3.4, and this is 3.3.1",
}


@pytest.mark.parametrize("change", WITHOUT_TRITON)
def test_without_a_triton_that_will_do_it_loads_and_falls_back(change: str) -> None:
    code = f"""
import json, sys, warnings
from pathlib import Path
{change}
import torch
from kernels import get_local_kernel

kernel = get_local_kernel(Path({str(VARIANT)!r}))
torch.version.hip, torch.cuda.get_device_capability = None, lambda device: (9, 0)
gpu = sys.modules[kernel.__name__ + ".support"].unsupported_device(torch.device("cuda", 0))
warnings.simplefilter("ignore")
out = kernel.gated_mlp(torch.ones(2, 8), torch.ones(3, 8), torch.ones(3, 8), torch.ones(8, 3), "relu")
print(json.dumps([gpu, out.tolist()]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [WITHOUT_TRITON[change], [[3 * 64.0] * 8] * 2]


def test_all_mlps_of_a_model_are_replaced(fused: list[str]) -> None:
    """A whole model of Transformers: the same logits, and the same names of weights."""
    plain_mlp = of_transformers("Llama")
    module = sys.modules[type(plain_mlp).__module__]
    torch.manual_seed(0)
    sizes = {"hidden_size": DIM, "intermediate_size": HIDDEN, "num_hidden_layers": 3, "vocab_size": 50}
    plain = module.LlamaForCausalLM(module.LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=2)).eval()
    ours = copy.deepcopy(plain)
    tokens = torch.arange(14).view(2, 7)
    for layer in ours.model.layers:
        layer.mlp = kernelized(layer.mlp)
    with torch.no_grad():
        assert torch.equal(ours(tokens).logits, plain(tokens).logits)
    assert fused == ["silu"] * 3
    assert list(ours.state_dict()) == list(plain.state_dict())


# ---- activations


class SiLU(nn.Module):
    """Named like PyTorch's, and another function."""

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return 2 * F.silu(z)


def hooked_silu() -> nn.Module:
    silu = nn.SiLU()
    silu.register_forward_hook(lambda module, arguments, out: 3 * out)
    return silu


@pytest.mark.parametrize(
    ("act_fn", "name"),
    [
        *((act_fn, "silu") for act_fn in (nn.SiLU(), F.silu)),
        *((act_fn, "gelu") for act_fn in (nn.GELU(), F.gelu)),
        (nn.GELU(approximate="tanh"), "gelu_tanh"),
        *((act_fn, "relu") for act_fn in (nn.ReLU(), F.relu, torch.relu)),
        *((act_fn, "") for act_fn in (nn.Tanh(), nn.Identity(), F.mish, functools.partial(F.gelu, approximate="tanh"))),
        *((act_fn, "") for act_fn in (lambda z: 2 * z, SiLU(), hooked_silu(), nn.Sequential(nn.SiLU(), nn.SiLU()))),
    ],
)
def test_the_activation_is_that_of_the_module(act_fn: Any, name: str, fused: list[str], said: set[str]) -> None:
    plain = Separate(act_fn)
    ours = kernelized(plain)
    x = torch.randn(3, DIM)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(ours(x), plain(x))
    assert fused == [name] * bool(name)
    assert ("they do not know its activation" in said) == (not name)


ACT2FN = {
    **dict.fromkeys(("gelu", "gelu_python"), "gelu"),
    **dict.fromkeys(("gelu_fast", "gelu_new", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"), "gelu_tanh"),
    **dict.fromkeys(("silu", "swish"), "silu"),
    "relu": "relu",
    **dict.fromkeys(("gelu_10", "quick_gelu", "relu2", "mish"), ""),
}


@pytest.mark.parametrize("name", ACT2FN)
def test_activations_of_transformers(name: str) -> None:
    of_transformers("Llama")
    function = sys.modules["transformers.activations"].ACT2FN[name]
    found = part("layers").name_function(function)
    assert found == ACT2FN[name]
    z = torch.linspace(-8, 8, 999, dtype=torch.float64)
    if found:
        torch.testing.assert_close(part("support").act(z, found), function(z), rtol=1e-6, atol=1e-8)


def test_the_activation_may_have_any_of_four_names(fused: list[str]) -> None:
    class OfTheClass(Separate):
        act_fn = staticmethod(F.silu)

        def __init__(self) -> None:
            nn.Module.__init__(self)
            vars(self)["_modules"].update(Separate(None).named_children())

    x = torch.randn(3, DIM)
    assert torch.equal(kernelized(plain := OfTheClass())(x), plain(x))
    for name in ("act_fn", "activation_fn", "activation", "act"):
        plain = Separate(None)
        delattr(plain, "act_fn")
        setattr(plain, name, nn.ReLU())
        kernelized(plain)(x)
    plain = Separate(None)
    ours = kernelized(plain)
    plain.act_fn = nn.GELU(approximate="tanh")
    assert torch.equal(ours(x), plain(x))
    plain = Separate(None)
    plain.activation = "silu"  # type: ignore[assignment]
    kernelized(plain)(x)
    assert fused == ["silu", *["relu"] * 4, "gelu_tanh", "silu"]


# ---- projections


class Doubled(nn.Linear):
    """As an adapter or a quantized layer: a Linear, and more."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


class Tagged(torch.Tensor):
    """As DTensor, or a quantized tensor: a tensor of another class."""


def double_weight(projection: nn.Linear) -> None:
    torch.nn.utils.parametrize.register_parametrization(projection, "weight", nn.Hardtanh())


def replace_forward(projection: nn.Linear) -> None:
    projection.forward = lambda x: 2 * nn.Linear.forward(projection, x)  # type: ignore[method-assign]


MORE: dict[str, tuple[Callable[[nn.Linear], nn.Module | None], str]] = {
    "bias": (lambda old: nn.Linear(old.in_features, old.out_features), "has a bias"),
    "class": (lambda old: Doubled(old.in_features, old.out_features, bias=False), "is a Doubled"),
    "forward hook": (lambda old: old.register_forward_hook(lambda *given: 2 * given[-1]) and None, "has hooks"),
    "forward pre-hook": (lambda old: old.register_forward_pre_hook(lambda _, x: 2 * x[0]) and None, "has hooks"),
    "backward hook": (lambda old: old.register_full_backward_hook(lambda *given: None) and None, "has hooks"),
    "backward pre-hook": (lambda old: old.register_full_backward_pre_hook(lambda *_: None) and None, "has hooks"),
    "forward": (replace_forward, "has a forward of its own"),
    "weight": (
        lambda old: setattr(old, "weight", nn.Parameter(old.weight.detach().as_subclass(Tagged))),
        "has a Tagged as weight",
    ),
    "parametrization": (double_weight, "is a ParametrizedLinear"),
}
"""What a projection may be beside its weight -> how to make it so, and what is said."""


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("model", ["separate", "together"])
def test_a_projection_that_is_more_than_its_weight_keeps_its_meaning(model: str, more: str, fused: list[str]) -> None:
    """The module's own forward runs, hooks fire, and a warning says why, once."""
    change, reason = MORE[more]
    for name, _ in MLPS[model][0]().named_children():
        if not name.endswith("_proj"):
            continue
        plain = MLPS[model][0]()
        ours = kernelized(plain)
        old = ours.get_submodule(name)
        assert isinstance(old, nn.Linear)
        changed = change(old) or old
        setattr(ours, name, changed)
        setattr(plain, name, changed)
        x = torch.randn(3, DIM, requires_grad=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = [results(ours, x, list(ours.parameters())) for _ in range(2)]
        assert [str(warning.message) for warning in caught] == [f"{SAYS}{name} {reason}"]
        for each in found:
            assert all(map(torch.equal, each, results(plain, x, list(plain.parameters()))))
    assert fused == []


def test_hooks_of_a_projection_fire(fused: list[str]) -> None:
    """One that comes after the first call, too, and no longer when it is gone."""
    ours = kernelized(Separate(nn.SiLU()))
    x, seen = torch.randn(3, DIM), []
    ours(x)
    handle = ours.down_proj.register_forward_hook(lambda module, arguments, out: seen.append(out.shape))
    with pytest.warns(UserWarning, match="down_proj has hooks"):
        ours(x)
    handle.remove()
    ours(x)
    assert (seen, fused) == ([x.shape], ["silu", "silu"])


def test_a_projection_that_is_missing(fused: list[str]) -> None:
    class Other(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    ours, x = kernelized(Other()), torch.randn(3, DIM)
    with pytest.warns(UserWarning, match="gate_proj is missing"):
        assert torch.equal(ours(x), x + 1)
    assert fused == []


def test_weights_may_be_tensors(fused: list[str]) -> None:
    """As `torch.func.functional_call` puts them in the place of parameters."""
    plain, other = Separate(nn.SiLU()), Separate(nn.SiLU())
    ours, x = kernelized(plain), torch.randn(3, DIM)
    tensors = {name: value.detach() for name, value in other.named_parameters()}
    assert torch.equal(torch.func.functional_call(ours, tensors, x), other(x))
    assert fused == ["silu"]


# ---- on the GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("by", ["folder", "name"])
@pytest.mark.parametrize("model", ["Llama", "Gemma3", "Phi3"])
def test_on_the_gpu_models_of_transformers(
    model: str, by: str, fused: list[str], said: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing falls back; result and gradients are at most half as far again from float64 as the module's."""
    monkeypatch.setattr(part("tuning"), "choose", lambda work, ways, *_: next(iter(ways)))
    torch.manual_seed(0)
    plain = of_transformers(model, 512, 1408).to("cuda", torch.bfloat16)
    repository = None
    if by == "name":
        monkeypatch.setenv("LOCAL_KERNELS", f"{NAME}={PACKAGE}")
        repository = LayerRepository(NAME, layer_name="FusedGeGLU", revision="main")
    ours = kernelized(plain, Mode.TRAINING, repository, "cuda")
    assert list(ours.state_dict()) == list(plain.state_dict())
    x = torch.randn(3, 67, 512, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    found = results(ours, x, list(ours.parameters()))
    expected = results(plain, x, list(plain.parameters()))
    with torch.no_grad():
        found.append(ours(x))
    exact_mlp, exact_x = copy.deepcopy(plain).double(), x.detach().double().requires_grad_()
    exact = results(exact_mlp, exact_x, list(exact_mlp.parameters()))
    for ours_here, plain_here, exact_here in zip(found, [*expected, expected[0]], [*exact, exact[0]], strict=True):
        norm = exact_here.norm()
        assert (ours_here.double() - exact_here).norm() / norm <= 1.5 * (plain_here.double() - exact_here).norm() / norm
    assert len(fused) == 2
    assert said == set()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_on_the_gpu_its_kernels_do_the_work(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """No warning, hence no fallback; our kernel in the profile; an error not above eager's."""
    monkeypatch.setattr(part("tuning"), "choose", lambda work, ways, *_: next(iter(ways)))
    torch.manual_seed(0)
    plain = GeGLU(768, 3072).to("cuda", dtype)
    ours = kernelized(plain, device="cuda")
    x = torch.randn(64, 128, 768, device="cuda", dtype=dtype)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        ours(x)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
            found, expected = ours(x), plain(x)
            torch.cuda.synchronize()
        exact = plain.double()(x.double())
    names = [event.name for event in profile.events()]
    of_hopper = torch.cuda.get_device_capability()[0] == 9
    assert any("pingpong" in name if of_hopper else "gate_up" in name for name in names), names
    error, error_of_eager = ((one.double() - exact).norm().item() for one in (found, expected))
    assert 0 < error <= error_of_eager
