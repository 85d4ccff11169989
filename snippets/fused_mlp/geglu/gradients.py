"""Operators with gradients: the activation alone, and gate and up in
training."""

from __future__ import annotations

import torch
from torch import Tensor

from .operators import (
    fake,
    is_plain,
    operator,
    planned,
    ready,
    tuned,
    with_gradient,
)
from .support import act, act_backward, fit
from .ways import Way, gate_up_saved_ways
from .work import sizes_of

# The activation alone


def plan_pointwise(
    activation: str, gate: Tensor, up: Tensor, *d_out: Tensor
) -> tuple[tuple[Way, ...], bool]:
    tensors = (gate, up, *d_out)
    if len({one.shape for one in tensors}) > 1:
        shapes = [tuple(one.shape) for one in tensors]
        raise ValueError(f"sizes that are not the same: {shapes}")
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


def _of_factors(ctx, d_out: Tensor) -> tuple[Tensor | None, ...]:
    return *gated_activation_backward(
        d_out, *ctx.saved_tensors, ctx.activation
    ), None


with_gradient("gated_activation", _of_factors, _keep_factors)


# Gate and up


# --8<-- [start:save]
def plan_saved(
    activation: str, x: Tensor, gate: Tensor, up: Tensor
) -> tuple[tuple[Way, ...], bool]:
    fit(x, gate, up)
    if is_plain(activation, x, gate, up):
        return (), True
    sizes = sizes_of(x, gate)
    results = [x.new_empty(sizes.rows, sizes.outputs) for _ in range(3)]
    way, is_settled = tuned(
        f"gate_up_saved {activation} {sizes.name}",
        gate_up_saved_ways(sizes, activation),
        lambda way: way(x, gate, up, *results),
    )
    return (way,), is_settled


@operator(
    "gate_up_saved(Tensor x, Tensor gate, Tensor up, str activation) "
    "-> (Tensor, Tensor, Tensor)"
)
def gate_up_saved(
    x: Tensor, gate: Tensor, up: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    """As `gate_up`, and both pre-activations, written to memory for the
    backward pass."""
    ways = planned(plan_saved, activation, x, gate, up)
    if not ways:
        g, u = x @ gate.t(), x @ up.t()
        return act(g, activation) * u, g, u
    shape = (*x.shape[:-1], gate.shape[0])
    out, g, u = (x.new_empty(shape) for _ in range(3))
    ways[0](ready(x), ready(gate), ready(up), out, g, u)
    return out, g, u


@fake("gate_up_saved")
def _(
    x: Tensor, gate: Tensor, up: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    shape = (*x.shape[:-1], gate.shape[0])
    return x.new_empty(shape), x.new_empty(shape), x.new_empty(shape)


# --8<-- [end:save]


# --8<-- [start:backward]
@operator(
    "gate_up_backward(Tensor d_out, Tensor x, Tensor gate, Tensor up, "
    "Tensor? g, Tensor? u, str activation) -> (Tensor, Tensor, Tensor)"
)
def gate_up_backward(
    d_out: Tensor,
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    g: Tensor | None,
    u: Tensor | None,
    activation: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `gate_up` for x, gate and up. The pre-activations g and u
    are computed again when not given."""
    rows = x.reshape(-1, x.shape[-1])
    if g is None or u is None:
        g, u = rows @ gate.t(), rows @ up.t()
    g, u = (saved.reshape(-1, gate.shape[0]) for saved in (g, u))
    d_gate, d_up = gated_activation_backward(
        d_out.reshape(g.shape), g, u, activation
    )
    return (
        torch.addmm(d_gate @ gate, d_up, up).view(x.shape),
        d_gate.t() @ rows,
        d_up.t() @ rows,
    )


@fake("gate_up_backward")
def _(
    d_out: Tensor,
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    g: Tensor | None,
    u: Tensor | None,
    activation: str,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        x.new_empty(x.shape),
        gate.new_empty(gate.shape),
        up.new_empty(up.shape),
    )


# --8<-- [end:backward]


def _keep_inputs(ctx, inputs, output) -> None:
    x, gate, up, ctx.activation = inputs
    ctx.save_for_backward(x, gate, up)


def _keep_all(ctx, inputs, output) -> None:
    x, gate, up, ctx.activation = inputs
    ctx.save_for_backward(x, gate, up, *output[1:])
    ctx.mark_non_differentiable(*output[1:])
    # or their gradients, which nobody asks for, are filled with zeros
    ctx.set_materialize_grads(False)


def _recomputed(ctx, d_out: Tensor) -> tuple[Tensor | None, ...]:
    x, gate, up = ctx.saved_tensors
    return *gate_up_backward(
        d_out, x, gate, up, None, None, ctx.activation
    ), None


def _from_saved(ctx, d_out: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    x, gate, up, g, u = ctx.saved_tensors
    return *gate_up_backward(d_out, x, gate, up, g, u, ctx.activation), None


with_gradient("gate_up", _recomputed, _keep_inputs)
with_gradient("gate_up_saved", _from_saved, _keep_all)
