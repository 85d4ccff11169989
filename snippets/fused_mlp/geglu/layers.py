"""The layer whose forward `kernelize` gives to a model's gated MLPs."""

from __future__ import annotations

import torch
from torch import nn

from .activations import ATTRIBUTES, has_hooks, name_function
from .model import gated_mlp, only_weight
from .support import say_once


def name_activation(mlp: nn.Module) -> str:
    """The kernels' name of the activation of `mlp`, or empty."""
    for name in ATTRIBUTES:
        # a `getattr` of a module takes microseconds to find nothing
        function = mlp._modules.get(name, mlp.__dict__.get(name))
        function = function or getattr(type(mlp), name, None)
        if function is not None:
            return name_function(function)
    return "gelu_tanh"


def describe_other(mlp: nn.Module, names: tuple[str, ...]) -> str:
    """The first part of `mlp` that the kernels would leave out, as text."""
    for name in names:
        layer = mlp._modules.get(name)
        if layer is None:
            return f"{name} is missing"
        if type(layer) is not nn.Linear:
            return f"{name} is a {type(layer).__name__}"
        if only_weight(layer) is None:
            if layer._parameters.get("bias") is not None:
                return f"{name} has a bias"
            if has_hooks(layer):
                return f"{name} has hooks"
            if "forward" in layer.__dict__:
                return f"{name} has a forward of its own"
            return f"{name} has a {type(layer.weight).__name__} as weight"
    return "they do not know its activation"


SEPARATE = ("gate_proj", "up_proj", "down_proj")
TOGETHER = ("gate_up_proj", "down_proj")


# --8<-- [start:layer]
class FusedGeGLU(nn.Module):
    """down_proj(activation(gate_proj(x)) * up_proj(x)): a forward for a module
    that has these layers.

    The activation is the module's own, or the tanh form of GELU if it has none.
    A single `gate_up_proj` may hold gate's rows, then up's. If the kernels
    would leave a part out, the module's own forward runs, and a warning tells
    the reason, once. This class has no `__init__` and no further methods, as
    `kernels` requires.
    """

    gate_proj: nn.Linear
    up_proj: nn.Linear
    down_proj: nn.Linear
    has_backward = True
    can_torch_compile = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x and the result are (..., dim)."""
        names = TOGETHER if "gate_up_proj" in self._modules else SEPARATE
        every = [only_weight(self._modules.get(name)) for name in names]
        weights = [weight for weight in every if weight is not None]
        activation = name_activation(self)
        if len(weights) < len(names) or not activation:
            say_once(describe_other(self, names))
            return type(self).forward(self, x)
        *first, down = weights
        gate, up = first if len(first) == 2 else first[0].chunk(2)
        return gated_mlp(x, gate, up, down, activation)


# --8<-- [end:layer]
