"""When a decoder layer of Transformers keeps its own forward, and what it says then."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from snippets.decode_kernels.llama_decode import layers, step, support
from snippets.decode_kernels.llama_decode.known import Known, known
from tests.chapters.decode_kernels.llama_models import tiny, with_layer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers", exc_type=ImportError)

SAYS = "a decoder layer runs without the decode kernels: "


@pytest.fixture(autouse=True)
def _nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "SAID", set())
    support.unsupported_work.cache_clear()


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said about device, types and sizes; the kernels themselves would fail."""
    monkeypatch.setattr(support, "unsupported", lambda *_: "")
    for name in ("project", "complete"):
        monkeypatch.setattr(step.operators, name, lambda *_: pytest.fail("the kernels ran"))


def tokens_of(model: Any, new_cache: Callable[[], Any] | None = None, batch: int = 1, **options: Any) -> torch.Tensor:
    """Logits of a prompt and two tokens after it."""
    cache = new_cache() if new_cache else transformers.DynamicCache(config=model.config)
    ids = torch.arange(3, 3 + 6 * batch).view(batch, 6)
    found = [model(ids[:, :4], past_key_values=cache, **options).logits]
    found += [model(ids[:, at : at + 1], past_key_values=cache, **options).logits for at in (4, 5)]
    return torch.cat(found, 1)


def check(plain: Any, ours: Any, reason: str, **options: Any) -> None:
    """The same logits as without the layer, bit by bit, and one warning for all layers and tokens."""
    expected = tokens_of(plain, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = tokens_of(ours, **options)
    assert torch.equal(found, expected)
    assert [str(one.message) for one in caught] == [f"{SAYS}{reason}"] * bool(reason)
    assert {one.filename for one in caught} <= {transformers.modeling_layers.__file__}


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "q_proj has a bias": ("Llama", {"attention_bias": True}),
    "down_proj has a bias": ("Llama", {"mlp_bias": True}),
    "act_fn is a GELUActivation": ("Llama", {"hidden_act": "gelu"}),
    "it has a sliding window": ("Mistral", {"sliding_window": 4}),
    "they do not know a Qwen2DecoderLayer": ("Qwen2", {}),
    "they do not know a rotation of shape (1, 1, 8)": ("Phi3", {"partial_rotary_factor": 0.5}),
    "they take a mask of bools, as the attention sdpa does": ("Llama", {"attn_implementation": "eager"}),
}


@pytest.mark.parametrize("reason", MODELS)
@torch.no_grad()
def test_models_that_compute_something_else(reason: str, as_on_a_gpu: None) -> None:
    model, changes = MODELS[reason]
    plain = tiny(model, **changes)
    check(plain, with_layer(plain, layers), reason)


class Doubled(nn.Linear):
    """As an adapter or a quantized layer: a Linear, and more."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


class Tagged(torch.Tensor):
    """As DTensor, or a quantized tensor: a tensor of another class."""


def double(layer: nn.Linear) -> nn.Module:
    doubled = Doubled(layer.in_features, layer.out_features, bias=False)
    doubled.weight = layer.weight
    return doubled


def tag(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(layer.weight.detach().as_subclass(Tagged))


def replace_forward(module: nn.Module) -> None:
    original = module.forward
    module.forward = functools.partial(original)  # type: ignore[method-assign]


MORE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "hook": (lambda layer: layer.register_forward_hook(lambda *given: 2 * given[-1]), "has hooks"),
    "class": (double, "is a Doubled"),
    "weight": (tag, "has a Tagged as weight"),
    "forward": (replace_forward, "has a forward of its own"),
}


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("name", ["self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"])
@torch.no_grad()
def test_projections_that_are_more_than_a_weight(name: str, more: str, as_on_a_gpu: None) -> None:
    change, reason = MORE[more]
    both = tiny("Llama"), with_layer(tiny("Llama"), layers)
    for model in both:
        for layer in model.model.layers:
            changed = change(layer.get_submodule(name))
            if isinstance(changed, nn.Module):
                layer.set_submodule(name, changed)
    check(*both, f"{name.split('.')[1]} {reason}")


@pytest.mark.parametrize("name", ["self_attn", "mlp", "input_layernorm", "post_attention_layernorm", "mlp.act_fn"])
@pytest.mark.parametrize("more", ["hook", "forward"])
@torch.no_grad()
def test_other_parts_that_do_more(name: str, more: str, as_on_a_gpu: None) -> None:
    change, reason = MORE[more]
    if more == "hook":  # attention returns two things
        change = lambda module: module.register_forward_pre_hook(lambda *_: None)  # noqa: E731
    both = tiny("Llama"), with_layer(tiny("Llama"), layers)
    for model in both:
        for layer in model.model.layers:
            change(layer.get_submodule(name))
    check(*both, f"{name.split('.')[-1]} {reason}")


@torch.no_grad()
def test_a_dropout_that_does_more(as_on_a_gpu: None) -> None:
    both = tiny("Phi3"), with_layer(tiny("Phi3"), layers)
    for model in both:
        for layer in model.model.layers:
            layer.resid_mlp_dropout.register_forward_hook(lambda *given: 2 * given[-1])
    check(*both, "resid_mlp_dropout has hooks")


class OwnCache(transformers.DynamicCache):
    """A cache of a user."""


@torch.no_grad()
def test_caches_that_may_do_something_else(as_on_a_gpu: None) -> None:
    plain = tiny("Llama")
    ours = with_layer(plain, layers)
    check(plain, ours, "they do not know a OwnCache", new_cache=lambda: OwnCache(config=plain.config))


@torch.no_grad()
def test_without_a_cache_and_for_prompts_nothing_is_said(as_on_a_gpu: None) -> None:
    plain = tiny("Llama")
    ours = with_layer(plain, layers)
    ids = torch.arange(3, 13).view(2, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for one in (ids, ids[:, :1]):
            for use_cache in (False, True):
                found = ours(one, use_cache=use_cache).logits
                assert torch.equal(found, plain(one, use_cache=use_cache).logits)


def test_a_gradient(as_on_a_gpu: None) -> None:
    plain = tiny("Llama")
    check(plain, with_layer(plain, layers), "they have no gradient, and one is needed")


@torch.no_grad()
def test_training(as_on_a_gpu: None) -> None:
    plain = tiny("Llama").train()
    check(plain, with_layer(plain, layers), "it is in training mode")


@torch.no_grad()
def test_autocast(as_on_a_gpu: None) -> None:
    plain = tiny("Llama")
    with torch.autocast("cpu", torch.bfloat16):
        check(plain, with_layer(plain, layers), "autocast is enabled")


@torch.no_grad()
def test_an_unknown_argument(as_on_a_gpu: None) -> None:
    plain = tiny("Llama")
    check(plain, with_layer(plain, layers), "they do not know the argument is_causal", is_causal=True)


@torch.no_grad()
def test_on_a_cpu() -> None:
    plain = tiny("Llama")
    check(plain, with_layer(plain, layers), "they need an NVIDIA GPU")


@pytest.mark.filterwarnings(f"ignore:{SAYS.strip(': ')}")
@torch.no_grad()
def test_compiled_on_a_cpu() -> None:
    """A model that a compiler traces without a break falls back, too."""
    plain = tiny("Llama")
    ours = with_layer(plain, layers)
    torch.compiler.reset()
    compiled = torch.compile(ours.__call__, backend="eager", fullgraph=True)
    ids = torch.arange(3, 8)[None]
    found = []
    for prompt, step_of in ((ours, compiled), (plain, plain)):
        cache = transformers.StaticCache(config=plain.config, max_cache_len=8)
        prompt(ids[:, :4], past_key_values=cache)
        found.append(step_of(ids[:, 4:], past_key_values=cache).logits)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(
    ("reason", "dtype", "batch", "changes"),
    [
        ("they take one 16-bit type throughout, not torch.float32", torch.float32, 1, {}),
        ("a batch of 17 is not 1 to 16", torch.bfloat16, 17, {"vocab_size": 200}),
        ("hidden 76: no multiple of 8", torch.bfloat16, 1, {"intermediate_size": 76}),
        ("heads of 24: these kernels need 16, 32, 64, 128 or 256", torch.bfloat16, 1, {"head_dim": 24}),
    ],
)
@torch.no_grad()
def test_types_and_sizes(
    reason: str, dtype: torch.dtype, batch: int, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support, "unsupported_device", lambda device: "")
    plain = tiny("Llama", **changes).to(dtype)
    check(plain, with_layer(plain, layers), reason, batch=batch)


# ---- what is remembered of a layer


@torch.no_grad()
def test_a_known_layer_is_looked_through_again_when_a_part_changes() -> None:
    layer = tiny("Llama").model.layers[0]

    def parts() -> Known:
        found = known(layer)
        assert isinstance(found, Known)
        return found

    first = parts()
    assert parts() is first
    assert first.q is layer.self_attn.q_proj.weight
    layer.load_state_dict({name: value + 1 for name, value in layer.state_dict().items()})
    layer.mlp.up_proj.weight.mul_(2)
    assert parts() is first, "the same tensors with other values"
    handle = layer.self_attn.k_proj.register_forward_pre_hook(lambda *_: None)
    assert known(layer) == "k_proj has hooks"
    handle.remove()
    assert parts()[:9] == first[:9]
    layer.mlp.up_proj.weight = nn.Parameter(torch.zeros(72, 64))
    assert parts().up is layer.mlp.up_proj.weight
    layer.self_attn.layer_idx = 7
    assert parts().place == 7
    layer.to(torch.bfloat16)
    assert parts().gate.dtype == torch.bfloat16
    layer.mlp.down_proj = double(layer.mlp.down_proj)
    assert known(layer) == "down_proj is a Doubled"


@torch.no_grad()
def test_parts_of_joined_weights_are_views() -> None:
    layer = tiny("Phi3").model.layers[0]
    joined, both = layer.self_attn.qkv_proj.weight, layer.mlp.gate_up_proj.weight
    for dtype in (torch.float32, torch.bfloat16):  # `.to()` moves the weights elsewhere
        layer.to(dtype)
        parts = known(layer)
        assert isinstance(parts, Known)
        assert torch.equal(torch.cat([parts.q, parts.k, parts.v]), joined)
        assert (parts.q.data_ptr(), parts.gate.data_ptr()) == (joined.data_ptr(), both.data_ptr())
        assert torch.equal(torch.cat([parts.gate, parts.up]), both)


def test_parts_that_do_not_fit() -> None:
    layer = tiny("Llama").model.layers[0]
    layer.self_attn.config.num_key_value_heads = 4
    assert known(layer) == "its sizes do not fit each other"
    layer = tiny("Llama").model.layers[0]
    layer.input_layernorm.double()
    assert known(layer) == "its weights have different types or devices"


def test_a_forward_that_kernelize_puts_into_a_part_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import MethodType

    layer = tiny("Llama").model.layers[0]
    mlp = layer.mlp
    mlp.forward = MethodType(lambda self, x: F.relu(x), mlp)
    assert known(layer) == "mlp has a forward of its own"
    monkeypatch.setattr(type(mlp), "kernel_layer_name", "GatedMLP", raising=False)
    assert isinstance(known(layer), Known)
