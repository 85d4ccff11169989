"""Operators of training that take or return the pre-activations as one matrix
(rows, 2 * hidden), gate's and then up's, or its gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from .operators import fake, operator
from .plans import is_plain, planned, ready, tuned
from .support import act, act_backward, fit
from .ways import Way, gate_up_saved_ways, gradient_ways
from .work import sizes_of


def plan_saved(
    activation: str, x: Tensor, gate: Tensor, up: Tensor
) -> tuple[tuple[Way, ...], bool]:
    fit(x, gate, up)
    if is_plain(activation, x, gate, up):
        return (), True
    sizes = sizes_of(x, gate)
    hidden = x.new_empty(sizes.rows, sizes.outputs)
    halves = x.new_empty(sizes.rows, 2 * sizes.outputs).chunk(2, dim=1)
    return tuned(
        f"gate_up_saved {activation} {sizes.name}",
        gate_up_saved_ways(sizes, activation),
        lambda way: way(x, gate, up, hidden, *halves),
        *(x, gate, up, hidden, *halves),
    )


def hidden_and_pre(
    x: Tensor, gate: Tensor, up: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    """activation(x @ gate.T) * (x @ up.T), and both pre-activations as one
    matrix (rows, 2 * hidden), for the backward pass. x is (rows, dim)."""
    ways = planned(plan_saved, activation, x, gate, up)
    pre = x.new_empty(x.shape[0], 2 * gate.shape[0])
    halves = pre.chunk(2, dim=1)
    if not ways:
        for half, weight in zip(halves, (gate, up), strict=True):
            half.copy_(x @ weight.t())
        return act(halves[0], activation) * halves[1], pre
    hidden = x.new_empty(x.shape[0], gate.shape[0])
    ways[0](ready(x), ready(gate), ready(up), hidden, *halves)
    return hidden, pre


gate_up_saved = operator(
    "gate_up_saved(Tensor x, Tensor gate, Tensor up, str activation) "
    "-> (Tensor, Tensor)"
)(hidden_and_pre)


@fake("gate_up_saved")
def _(
    x: Tensor, gate: Tensor, up: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    rows, hidden = x.shape[0], gate.shape[0]
    return x.new_empty(rows, hidden), x.new_empty(rows, 2 * hidden)


def plan_gradients(
    activation: str, d_out: Tensor, down: Tensor, pre: Tensor
) -> tuple[tuple[Way, ...], bool]:
    return _plan_gradients(activation, d_out, down, pre, has_hidden=False)


def plan_gradients_and_hidden(
    activation: str, d_out: Tensor, down: Tensor, pre: Tensor
) -> tuple[tuple[Way, ...], bool]:
    return _plan_gradients(activation, d_out, down, pre, has_hidden=True)


def _plan_gradients(
    activation: str, d_out: Tensor, down: Tensor, pre: Tensor, has_hidden: bool
) -> tuple[tuple[Way, ...], bool]:
    # not `pre`, whose rows may be of any number
    if is_plain(activation, d_out, down):
        return (), True
    sizes = sizes_of(d_out, down.t())
    # never over `pre`, which the trials still read
    d_halves = torch.empty_like(pre).chunk(2, dim=1)
    hidden = [d_out.new_empty(sizes.rows, sizes.outputs)] * has_hidden
    kind = "gradients and hidden" if has_hidden else "gradients"
    return tuned(
        f"{kind} {activation} {sizes.name}",
        gradient_ways(sizes, activation, has_hidden),
        lambda way: way(d_out, down, *pre.chunk(2, dim=1), *d_halves, *hidden),
        *(d_out, down, *pre.chunk(2, dim=1), *d_halves, *hidden),
    )


def gradients_of_pre(
    d_out: Tensor,
    down: Tensor,
    pre: Tensor,
    activation: str,
    has_hidden: bool,
    d_pre: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradients of both pre-activations as one matrix, which may be `pre`
    itself, and the hidden tensor again, empty without `has_hidden`.

    d_out is (rows, dim), down (dim, hidden), pre (rows, 2 * hidden).
    """
    d_pre = pre.new_empty(*pre.shape) if d_pre is None else d_pre
    plan = plan_gradients_and_hidden if has_hidden else plan_gradients
    ways = planned(plan, activation, d_out, down, pre)
    g, u = ready(pre).chunk(2, dim=1)
    d_gate, d_up = d_pre.chunk(2, dim=1)
    if not ways:
        d_hidden, value = d_out @ down, act(g, activation)
        hidden = value * u if has_hidden else pre.new_empty(0)
        d_u = d_hidden * value
        d_gate.copy_(act_backward(d_hidden * u, g, activation))
        d_up.copy_(d_u)
        return d_pre, hidden
    hidden = pre.new_empty(*g.shape) if has_hidden else pre.new_empty(0)
    results = (d_gate, d_up, hidden) if has_hidden else (d_gate, d_up)
    ways[0](ready(d_out), ready(down), g, u, *results)
    return d_pre, hidden


pre_backward = operator(
    "pre_backward(Tensor d_out, Tensor down, Tensor pre, str activation, "
    "bool has_hidden) -> (Tensor, Tensor)"
)(gradients_of_pre)


@fake("pre_backward")
def _(
    d_out: Tensor, down: Tensor, pre: Tensor, activation: str, has_hidden: bool
) -> tuple[Tensor, Tensor]:
    shape = (d_out.shape[0], down.shape[1]) if has_hidden else (0,)
    return pre.new_empty(pre.shape), pre.new_empty(shape)
