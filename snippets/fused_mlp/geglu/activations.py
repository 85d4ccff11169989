"""Find the kernels' activation that equals a model's own module or function."""

from __future__ import annotations

from typing import Any

from torch import nn

from .support import ACTIVATIONS

NAMES = {
    "SiLU": ("torch", "silu"),
    "silu": ("torch", "silu"),
    "gelu": ("torch", "gelu"),
    "ReLU": ("torch", "relu"),
    "relu": ("torch", "relu"),
    "SiLUActivation": ("transformers", "silu"),
    "GELUActivation": ("transformers", "gelu"),
    "GELUTanh": ("transformers", "gelu_tanh"),
    "PytorchGELUTanh": ("transformers", "gelu_tanh"),
    "NewGELUActivation": ("transformers", "gelu_tanh"),
    "FastGELUActivation": ("transformers", "gelu_tanh"),
    "AccurateGELUActivation": ("transformers", "gelu_tanh"),
}
"""Class or function -> its library, and the kernels' name. By name, since
Transformers may be absent."""
ATTRIBUTES = ("act_fn", "activation_fn", "activation", "act")
"""Attributes in which a gated MLP keeps its activation. An MLP without any is a
GeGLU."""


def name_function(function: Any) -> str:
    """The kernels' name of a module or a function, or empty. A string is
    returned as it is if it is one of their names."""
    if isinstance(function, str):
        return function if function in ACTIVATIONS else ""
    kind = function
    if isinstance(function, nn.Module):
        kind = type(function)
        if has_hooks(function):
            return ""
    if kind is nn.GELU:
        return "gelu_tanh" if function.approximate == "tanh" else "gelu"
    library, name = NAMES.get(getattr(kind, "__name__", ""), ("", ""))
    module = getattr(kind, "__module__", None) or ""
    return name if module.partition(".")[0] == library else ""


def has_hooks(module: nn.Module) -> bool:
    """Whether a call of the module runs code besides its forward."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )
