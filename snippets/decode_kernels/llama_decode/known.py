"""What the kernels need of a decoder layer of Transformers, or why they do not
know it.

To look a layer through costs the CPU as much as launching several kernels.
`known` does it once, and then only checks that nothing was replaced.
"""

from __future__ import annotations

import weakref
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

MODELS = ("Llama", "Mistral", "Phi3")
"""Prefixes of the classes of Transformers whose layers compute what the kernels
compute."""
LAYERS = {f"{model}DecoderLayer": model for model in MODELS}
PARTS = {
    "self_attn": "Attention",
    "mlp": "MLP",
    "input_layernorm": "RMSNorm",
    "post_attention_layernorm": "RMSNorm",
}
"""Modules of a layer -> the ends of their classes' names. Phi-3 also has
dropouts, which do nothing outside of training."""
HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
VALUES = ("forward", "head_dim", "layer_idx", "scaling", "variance_epsilon")
"""Attributes of modules that count."""


class Known(NamedTuple):
    """The parts of a decoder layer. Weights are (outputs, inputs); the rows of
    a joined weight are views of it."""

    gain: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    second_gain: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor
    eps: float
    second_eps: float
    scale: float
    sizes: tuple[int, int, int, int, int]
    """dim, hidden, heads, kv_heads, head_dim."""
    place: int
    """In the cache."""


class Watched(NamedTuple):
    """What must stay for a layer to be known."""

    known: Known
    places: list[tuple[Any, str, Any]]
    """A dictionary of a module, a key, and what it leads to."""
    hooks: list[Any]
    """Dictionaries that are empty."""
    weights: list[tuple[Tensor, int]]
    """A parameter and its address, which `.to()` changes."""

    def holds(self) -> bool:
        for place, name, value in self.places:
            if place.get(name) is not value:
                return False
        return not any(self.hooks) and all(
            weight.data_ptr() == address for weight, address in self.weights
        )


FOUND: weakref.WeakKeyDictionary[nn.Module, Watched] = (
    weakref.WeakKeyDictionary()
)


def known(layer: nn.Module) -> Known | str:
    """The parts of a decoder layer, or why the kernels do not know it."""
    if torch.compiler.is_compiling():
        return look_through(layer)
    watched = FOUND.get(layer)
    if watched is not None and watched.holds():
        return watched.known
    parts = look_through(layer)
    if not isinstance(parts, str):
        FOUND[layer] = watch(layer, parts)
    return parts


def watch(layer: nn.Module, parts: Known) -> Watched:
    places: list[tuple[Any, str, Any]] = []
    hooks: list[Any] = []
    weights: list[tuple[Tensor, int]] = []
    for module in layer.modules():
        places += [(module._modules, *each) for each in module._modules.items()]
        if module is not layer:
            own = module.__dict__
            places += [(own, name, own.get(name)) for name in VALUES]
            hooks += [getattr(module, name) for name in HOOKS]
        for name, weight in module._parameters.items():
            places.append((module._parameters, name, weight))
            if weight is not None:
                weights.append((weight, weight.data_ptr()))
    return Watched(parts, places, hooks, weights)


def look_through(layer: Any) -> Known | str:
    """As `known`, without a memory."""
    kind = type(layer)
    model = LAYERS.get(kind.__name__, "")
    if not model or not is_of_library(kind):
        return f"they do not know a {kind.__name__}"
    for name in {**PARTS, **layer._modules}:
        part = model + PARTS[name] if name in PARTS else "Dropout"
        if reason := other_module(layer, name, (part,)):
            return reason
    attention, mlp = layer.self_attn, layer.mlp
    act = "act_fn" if "act_fn" in mlp._modules else "activation_fn"
    if reason := other_module(mlp, act, ("SiLU", "SiLUActivation")):
        return reason
    if getattr(attention.config, "sliding_window", None) is not None:
        return "it has a sliding window"
    names = projections(attention, mlp)
    for parent, name in names:
        if reason := other_projection(parent, name):
            return reason
    return parts_of(layer, [weight_of(*each) for each in names])


def projections(attention: Any, mlp: Any) -> list[tuple[Any, str]]:
    """The projections of a layer, as parents and names: those of queries, keys
    and values first, those of gate and up last."""
    q, up = ["q_proj", "k_proj", "v_proj"], ["gate_proj", "up_proj"]
    if "qkv_proj" in attention._modules:
        q = ["qkv_proj"]
    if "gate_up_proj" in mlp._modules:
        up = ["gate_up_proj"]
    found = [(attention, name) for name in [*q, "o_proj"]]
    return found + [(mlp, name) for name in ["down_proj", *up]]


def parts_of(layer: Any, weights: list[Tensor]) -> Known | str:
    """The parts of a layer of a known class with these `projections`, or why
    they do not fit each other."""
    attention, norm = layer.self_attn, layer.input_layernorm
    second_norm = layer.post_attention_layernorm
    head_dim = attention.head_dim
    heads = attention.config.num_attention_heads
    kv_heads = attention.config.num_key_value_heads
    rows, kv_rows = heads * head_dim, kv_heads * head_dim
    dim = weights[0].shape[1]
    if "qkv_proj" in attention._modules:
        joined, out, down, *rest = weights
        if joined.shape[0] != rows + 2 * kv_rows:
            return "its sizes do not fit each other"
        q, k, v = joined.split([rows, kv_rows, kv_rows])
    else:
        q, k, v, out, down, *rest = weights
    gate, up = rest if len(rest) == 2 else rest[0].chunk(2)
    hidden = gate.shape[0]
    if (
        [list(one.shape) for one in (q, k, v, out, gate, up, down)]
        != [
            [rows, dim], [kv_rows, dim], [kv_rows, dim], [dim, rows],
            [hidden, dim], [hidden, dim], [dim, hidden],
        ]
    ):  # fmt: skip
        return "its sizes do not fit each other"
    gains = norm.weight, second_norm.weight
    kinds = {(one.dtype, one.device) for one in (*weights, *gains)}
    if len(kinds) > 1 or any(list(gain.shape) != [dim] for gain in gains):
        return "its weights have different types or devices"
    return Known(
        norm.weight, q, k, v, out, second_norm.weight, gate, up, down,
        norm.variance_epsilon, second_norm.variance_epsilon, attention.scaling,
        (dim, hidden, heads, kv_heads, head_dim), attention.layer_idx,
    )  # fmt: skip


def other_module(parent: Any, name: str, kinds: tuple[str, ...]) -> str:
    """Why a child of `parent` is none of these classes and nothing more; empty
    if it is one."""
    child = parent._modules.get(name)
    if child is None:
        return f"{name} is missing"
    kind = type(child)
    if kind.__name__ not in kinds or not is_of_library(kind):
        return f"{name} is a {kind.__name__}"
    if any(getattr(child, hooks) for hooks in HOOKS):
        return f"{name} has hooks"
    if has_other_forward(child):
        return f"{name} has a forward of its own"
    return ""


def other_projection(parent: Any, name: str) -> str:
    """Why a child of `parent` is more than a weight; empty if it is not."""
    if reason := other_module(parent, name, ("Linear",)):
        return reason
    if parent._modules[name]._parameters.get("bias") is not None:
        return f"{name} has a bias"
    weight = weight_of(parent, name)
    if type(weight) not in (nn.Parameter, Tensor):
        return f"{name} has a {type(weight).__name__} as weight"
    return ""


def weight_of(parent: Any, name: str) -> Tensor:
    weight: Tensor = parent._modules[name]._parameters.get("weight")
    return weight


def is_of_library(kind: type) -> bool:
    return kind.__module__.split(".")[0] in ("torch", "transformers")


def has_other_forward(module: nn.Module) -> bool:
    """Whether the module computes something else than its class. A forward that
    `kernelize` has put there computes the same."""
    forward = module.__dict__.get("forward")
    if forward is None:
        return False
    return not (
        hasattr(type(module), "kernel_layer_name")
        and isinstance(forward, MethodType)
        and forward.__self__ is module
    )
