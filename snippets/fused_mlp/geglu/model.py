"""A gated MLP whose two pre-activations never reach device memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F

from . import gradients, operators, training
from .activations import ATTRIBUTES, name_function
from .joined import are_joined, share_storage
from .support import (
    ACTIVATIONS,
    act,
    alike,
    cast,
    fit,
    is_transformed,
    known,
    plain_gate_up,
    say_once,
    takes_tensors,
    unsupported,
)


# --8<-- [start:module]
class FusedGeGLU(nn.Module):
    """down(activation(gate(x)) * up(x)) in two kernels. Same parameters as the
    plain module, so same state dict.

    x is (..., dim), as is the result. If the kernels cannot run, plain PyTorch
    does the work, and a warning tells the reason, once. The forward keeps three
    tensors of the hidden size for the gradient; two with `recompute="hidden"`,
    none with `recompute=True`. Raises `ValueError` for other values and for an
    unknown activation; calls raise the errors of `gated_mlp`.
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        activation: str = "gelu_tanh",
        recompute: bool | str = False,
    ) -> None:
        super().__init__()
        known(activation)
        training.tensors_kept(recompute)
        self.activation, self.recompute = activation, recompute
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)
        share_storage(self.gate_proj, self.up_proj)

    def _apply(self, function, recurse: bool = True) -> FusedGeGLU:
        """`.to()` and similar methods make new tensors, which then share a
        storage if the old tensors did."""
        layers = self.gate_proj, self.up_proj
        were_joined = are_joined(*layers)
        super()._apply(function, recurse)
        if were_joined and not are_joined(*layers):
            share_storage(*layers)
        return self

    @classmethod
    def like(
        cls,
        plain: Any,
        activation: str | None = None,
        recompute: bool | str = False,
    ) -> FusedGeGLU:
        """The module over a plain module's three layers, which both then share.
        `activation` defaults to the plain module's own, or the tanh form of
        GELU if it has none. Raises `TypeError` if a layer is missing or not
        linear, or if the kernels do not have its activation."""
        for name in ("gate_proj", "up_proj", "down_proj"):
            layer = getattr(plain, name, None)
            if not hasattr(layer, "in_features"):
                kind = type(layer).__name__
                found = "missing" if layer is None else f"a {kind}"
                raise TypeError(
                    "FusedGeGLU.like takes a module with linear layers "
                    "gate_proj, up_proj and down_proj; "
                    f"{type(plain).__name__}.{name} is {found}"
                )
        if activation is None:
            own = [getattr(plain, name, None) for name in ATTRIBUTES]
            own = [one for one in own if one is not None]
            activation = name_function(own[0]) if own else "gelu_tanh"
        if not activation:
            raise TypeError(
                "FusedGeGLU.like does not know the activation of "
                f"{type(plain).__name__}; pass activation=, one of "
                f"{', '.join(ACTIVATIONS)}"
            )
        with torch.device("meta"):
            fused = cls(
                plain.gate_proj.in_features,
                plain.gate_proj.out_features,
                activation,
                recompute,
            )
        fused.gate_proj, fused.up_proj, fused.down_proj = (
            plain.gate_proj,
            plain.up_proj,
            plain.down_proj,
        )
        return fused.train(plain.training)

    def forward(self, x: Tensor) -> Tensor:
        children = self._modules  # attributes of a module take 0.7 us each
        gate, up, down = [
            only_weight(children[name])
            for name in ("gate_proj", "up_proj", "down_proj")
        ]
        if gate is None or up is None or down is None:
            say_once("one of its layers is more than a weight")
            hidden = act(self.gate_proj(x), self.activation) * self.up_proj(x)
            return self.down_proj(hidden)
        return gated_mlp(x, gate, up, down, self.activation, self.recompute)


# --8<-- [end:module]


def only_weight(layer: nn.Module | None) -> Tensor | None:
    """The weight of a layer that consists of nothing else; None for a layer
    with a bias, an adapter, a quantized weight, a hook or a forward of its
    own."""
    # through the dictionary: nn.Module looks attributes up in 0.7 us each
    if (
        type(layer) is not nn.Linear
        or layer._parameters.get("bias") is not None
        or layer._forward_pre_hooks
        or layer._forward_hooks
        or layer._backward_pre_hooks
        or layer._backward_hooks
        or "forward" in layer.__dict__
    ):
        return None
    weight = layer._parameters.get("weight")
    # an exporter puts fake tensors in the place of parameters
    kinds = nn.Parameter, Tensor, FakeTensor
    return weight if type(weight) in kinds else None


def why_plain(activation: str) -> str:
    """Why plain PyTorch does the work on any device: a transform is active.
    Empty otherwise."""
    known(activation)
    if torch.compiler.is_compiling() or not is_transformed():
        return ""
    return "it is inside a transform of torch.func or in forward mode"


# --8<-- [start:gated_mlp]
@takes_tensors
def gated_mlp(
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    activation: str = "gelu_tanh",
    recompute: bool | str = False,
) -> Tensor:
    """(activation(x @ gate.T) * (x @ up.T)) @ down.T, by the kernels if they
    can.

    x is (..., dim), gate and up are (hidden, dim), down is (dim, hidden). Under
    autocast, all tensors are cast to its type. Inside transforms of
    `torch.func`, plain PyTorch does the work. Raises `TypeError` for a
    non-tensor; `ValueError` for sizes that do not fit, an unknown activation or
    an unknown `recompute`.
    """
    if recompute is not False:
        training.tensors_kept(recompute)
    x, gate, up, down = cast(x, gate, up, down)
    is_compiling = torch.compiler.is_compiling()
    is_trained = torch.is_grad_enabled() and (
        x.requires_grad
        or gate.requires_grad
        or up.requires_grad
        or down.requires_grad
    )
    reason = why_plain(activation)
    # the operator checks this itself, but a compiler does not see inside it
    if is_trained or is_compiling or reason:
        fit(x, gate, up, down=down)
        if reason := reason or unsupported(x, gate, up, down):
            say_once(reason)
            return plain_gate_up(x, gate, up, activation) @ down.t()
    if not is_trained:
        return operators.forward(x, gate, up, down, activation)
    kept = training.tensors_kept(recompute)
    return training.mlp(x, gate, up, down, activation, kept)


# --8<-- [end:gated_mlp]


@takes_tensors
def gate_up(
    x: Tensor, gate: Tensor, up: Tensor, activation: str = "gelu_tanh"
) -> Tensor:
    """activation(x @ gate.T) * (x @ up.T), with gradients; in one kernel if
    possible. x is (..., dim), gate and up are (hidden, dim).

    Raises `TypeError` for a non-tensor; `ValueError` for sizes that do not fit
    or an unknown activation.
    """
    x, gate, up = cast(x, gate, up)
    if reason := why_plain(activation):
        fit(x, gate, up)
        say_once(reason)
        return plain_gate_up(x, gate, up, activation)
    return operators.gate_up(x, gate, up, activation)


@takes_tensors
def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str = "none",
) -> Tensor:
    """activation(x @ weight.T + bias), for inference; in one kernel if
    possible. x is (..., dim), weight is (outputs, dim), bias is (outputs,).

    If a gradient is needed, plain PyTorch does the work. Raises `TypeError` for
    a non-tensor; `ValueError` for sizes that do not fit or an unknown
    activation.
    """
    x, weight, bias = cast(x, weight, bias)
    reason = why_plain(activation)
    if torch.is_grad_enabled() and any(
        one is not None and one.requires_grad for one in (x, weight, bias)
    ):
        reason = (
            reason or "`linear` has no gradient of its own, and one is needed"
        )
    if reason:
        fit(x, weight, bias=bias)
        say_once(reason)
        return act(F.linear(x, weight, bias), activation)
    return operators.linear(x, weight, bias, activation)


@takes_tensors
def gated_activation(
    gate: Tensor, up: Tensor, activation: str = "gelu_tanh"
) -> Tensor:
    """activation(gate) * up, with gradients; in one pass if possible. Both
    tensors have the same shape.

    Raises `TypeError` for a non-tensor; `ValueError` for different shapes or an
    unknown activation.
    """
    gate, up = cast(gate, up)
    if reason := why_plain(activation):
        alike(gate, up)
        say_once(reason)
        return act(gate, activation) * up
    return gradients.gated_activation(gate, up, activation)
