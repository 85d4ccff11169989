"""Gradients of the activation alone, and of gate and up without `down`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .operators import fake, operator, with_gradient
from .plans import is_plain, planned, ready
from .support import (
    act,
    act_backward,
    alike,
    plain_gate_up,
    without_autocast,
)
from .ways import Way
from .work import rows_of

# The activation alone


def plan_pointwise(
    activation: str, gate: Tensor, up: Tensor, *d_out: Tensor
) -> tuple[tuple[Way, ...], bool]:
    tensors = (gate, up, *d_out)
    alike(*tensors)
    if is_plain(activation, *tensors, is_pointwise=True):
        return (), True
    from .portable import pointwise_backward_launch, pointwise_launch

    launch = pointwise_backward_launch if d_out else pointwise_launch
    return (launch(gate.numel(), gate.dtype, gate.device, activation),), True


@operator(
    "gated_activation(Tensor gate, Tensor up, "
    'str activation="gelu_tanh") -> Tensor'
)
def gated_activation(
    gate: Tensor, up: Tensor, activation: str = "gelu_tanh"
) -> Tensor:
    ways = planned(plan_pointwise, activation, gate, up)
    if not ways:
        return act(gate, activation) * up
    out = gate.new_empty(gate.shape)
    ways[0](ready(gate), ready(up), out)
    return out


@fake("gated_activation")
def _(gate: Tensor, up: Tensor, activation: str = "gelu_tanh") -> Tensor:
    return gate.new_empty(gate.shape)


@operator(
    "gated_activation_backward(Tensor d_out, Tensor gate, Tensor up, "
    "str activation) -> (Tensor, Tensor)"
)
def gated_activation_backward(
    d_out: Tensor, gate: Tensor, up: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    ways = planned(plan_pointwise, activation, gate, up, d_out)
    if not ways:
        return (
            act_backward(d_out * up, gate, activation),
            d_out * act(gate, activation),
        )
    d_gate, d_up = gate.new_empty(gate.shape), up.new_empty(up.shape)
    ways[0](ready(d_out), ready(gate), ready(up), d_gate, d_up)
    return d_gate, d_up


@fake("gated_activation_backward")
def _(
    d_out: Tensor, gate: Tensor, up: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    return gate.new_empty(gate.shape), up.new_empty(up.shape)


def _keep_factors(ctx, inputs, output) -> None:
    gate, up, ctx.activation = inputs
    ctx.save_for_backward(gate, up)


@without_autocast
def _of_factors(ctx, d_out: Tensor) -> tuple[Tensor | None, ...]:
    gate, up = ctx.saved_tensors
    if torch.is_grad_enabled():

        def plain(gate: Tensor, up: Tensor) -> Tensor:
            return act(gate, ctx.activation) * up

        return *differentiable(plain, (gate, up), d_out, ctx), None
    return *gated_activation_backward(d_out, gate, up, ctx.activation), None


def differentiable(
    plain: Callable[..., Tensor],
    inputs: tuple[Tensor, ...],
    d_out: Tensor,
    ctx,
) -> list[Tensor | None]:
    """The gradients of the inputs that need them, of `plain` PyTorch code,
    themselves differentiable if requested."""
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        out = plain(*inputs)
    needed = [
        one
        for one, needs in zip(inputs, ctx.needs_input_grad, strict=False)
        if needs
    ]
    found = iter(
        torch.autograd.grad(out, needed, d_out, create_graph=create_graph)
    )
    return [
        next(found) if needs else None
        for needs in ctx.needs_input_grad[: len(inputs)]
    ]


with_gradient("gated_activation", _of_factors, _keep_factors)


# Gate and up


def _keep_inputs(ctx, inputs, output) -> None:
    x, gate, up, ctx.activation = inputs
    ctx.save_for_backward(x, gate, up)


@without_autocast
def _of_gate_up(ctx, d_out: Tensor) -> tuple[Tensor | None, ...]:
    """Recomputes the pre-activations."""
    x, gate, up = ctx.saved_tensors
    if torch.is_grad_enabled():

        def plain(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
            return plain_gate_up(x, gate, up, ctx.activation)

        return *differentiable(plain, (x, gate, up), d_out, ctx), None
    rows = rows_of(x)
    d_gate, d_up = gated_activation_backward(
        rows_of(d_out), rows @ gate.t(), rows @ up.t(), ctx.activation
    )
    needs = ctx.needs_input_grad
    return (
        torch.addmm(d_gate @ gate, d_up, up).view(x.shape)
        if needs[0]
        else None,
        d_gate.t() @ rows if needs[1] else None,
        d_up.t() @ rows if needs[2] else None,
        None,
    )


with_gradient("gate_up", _of_gate_up, _keep_inputs)
