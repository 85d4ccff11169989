"""PyTorch operators with a name, which a compiled model or a CUDA graph may
hold. Each checks the device's abilities before it launches anything.

They are defined as thinly as PyTorch allows: a call of
`torch.library.custom_op` costs the CPU three times as much.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .plans import is_plain, named, planned, ready, tuned
from .support import act, fit, plain_gate_up
from .ways import Way, gate_up_ways, linear_ways
from .work import sizes_of

NAMESPACE = __name__.split(".")[-2]
"""From the package's name, since two copies in one process would replace each
other's operators."""
LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")


def on_its_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, run with its first tensor's device as the current device if
    that is a CUDA GPU."""

    def run(x: Tensor, *others: Any) -> Any:
        if not x.is_cuda or x.get_device() == torch.cuda.current_device():
            return function(x, *others)
        with torch.cuda.device(x.get_device()):
            return function(x, *others)

    return run


def operator(schema: str) -> Callable[[Callable[..., Any]], Any]:
    """Define an operator by its schema and its implementation for every
    device."""
    name = schema.partition("(")[0]

    def define(function: Callable[..., Any]) -> Any:
        run = on_its_device(function)
        LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        LIBRARY.impl(name, run, "CompositeExplicitAutograd")
        return getattr(getattr(torch.ops, NAMESPACE), name).default

    return define


def fake(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define the shape of an operator's result, for compilers."""
    return torch.library.register_fake(f"{NAMESPACE}::{name}", lib=LIBRARY)


def with_gradient(
    name: str, backward: Callable[..., Any], keep: Callable[..., None]
) -> None:
    """Define an operator's gradient; `keep` saves what `backward` needs."""
    torch.library.register_autograd(
        f"{NAMESPACE}::{name}", backward, setup_context=keep, lib=LIBRARY
    )


def plan_gate_up(
    activation: str,
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    only_portable: bool = False,
) -> tuple[tuple[Way, ...], bool]:
    fit(x, gate, up)
    if is_plain(activation, x, gate, up):
        return (), True
    sizes = sizes_of(x, gate)
    out = x.new_empty(sizes.rows, sizes.outputs)
    return tuned(
        named("gate_up", activation, sizes, only_portable),
        gate_up_ways(sizes, activation, only_portable),
        lambda way: way(x, gate, up, out),
        *(x, gate, up, out),
    )


@operator("gate_up(Tensor x, Tensor gate, Tensor up, str activation) -> Tensor")
def gate_up(x: Tensor, gate: Tensor, up: Tensor, activation: str) -> Tensor:
    return run_gate_up(plan_gate_up, x, gate, up, activation)


def run_gate_up(
    plan: Callable[..., tuple[tuple[Way, ...], bool]],
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    activation: str,
) -> Tensor:
    """Compute gate and up by the ways that `plan` finds."""
    ways = planned(plan, activation, x, gate, up)
    if not ways:
        return plain_gate_up(x, gate, up, activation)
    out = x.new_empty(*x.shape[:-1], gate.shape[0])
    ways[0](ready(x), ready(gate), ready(up), out)
    return out


@fake("gate_up")
def _(x: Tensor, gate: Tensor, up: Tensor, activation: str) -> Tensor:
    return x.new_empty(*x.shape[:-1], gate.shape[0])


def plan_linear(
    activation: str, x: Tensor, weight: Tensor, *bias: Tensor
) -> tuple[tuple[Way, ...], bool]:
    fit(x, weight, bias=bias[0] if bias else None)
    if is_plain(activation, x, weight, *bias):
        return (), True
    sizes = sizes_of(x, weight)
    out = x.new_empty(sizes.rows, sizes.outputs)
    return tuned(
        f"linear {activation} {sizes.name}{' bias' if bias else ''}",
        linear_ways(sizes, activation, bool(bias)),
        lambda way: way(x, weight, *bias, out),
        *(x, weight, *bias, out),
    )


@operator(
    "linear(Tensor x, Tensor weight, Tensor? bias, str activation) -> Tensor"
)
def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str
) -> Tensor:
    others = (weight,) if bias is None else (weight, bias)
    ways = planned(plan_linear, activation, x, *others)
    if not ways:
        return act(F.linear(x, weight, bias), activation)
    out = x.new_empty(*x.shape[:-1], weight.shape[0])
    ways[0](ready(x), *map(ready, others), out)
    return out


@fake("linear")
def _(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str
) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


# --8<-- [start:forward]
def plan_forward(
    activation: str,
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    only_portable: bool = False,
) -> tuple[tuple[Way, ...], bool]:
    """Two ways. The second is timed together with the first, because a kernel
    that is launched early hides its start behind the first."""
    fit(x, gate, up, down=down)
    if is_plain(activation, x, gate, up, down):
        return (), True
    firsts, is_first_settled = plan_gate_up(
        activation, x, gate, up, only_portable
    )
    if not firsts:
        return (), is_first_settled
    sizes = sizes_of(x, gate)
    hidden = x.new_empty(sizes.rows, sizes.outputs)
    out = x.new_empty(sizes.rows, sizes.dim)

    def run(second: Way) -> None:
        firsts[0](x, gate, up, hidden)
        second(hidden, down, out)

    seconds, is_settled = tuned(
        named("forward", activation, sizes, only_portable),
        linear_ways(
            sizes_of(hidden, down), "none", False, only_portable, firsts[0]
        ),
        run,
        *(hidden, down, out),
    )
    ways = (*firsts, *seconds) if seconds else ()
    return ways, is_first_settled and is_settled


@operator(
    "forward(Tensor x, Tensor gate, Tensor up, Tensor down, str activation) "
    "-> Tensor"
)
def forward(
    x: Tensor, gate: Tensor, up: Tensor, down: Tensor, activation: str
) -> Tensor:
    return run_forward(plan_forward, x, gate, up, down, activation)


def run_forward(
    plan: Callable[..., tuple[tuple[Way, ...], bool]],
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    activation: str,
) -> Tensor:
    """Compute the forward by the ways that `plan` finds."""
    ways = planned(plan, activation, x, gate, up, down)
    if not ways:
        return plain_gate_up(x, gate, up, activation) @ down.t()
    hidden = x.new_empty(*x.shape[:-1], gate.shape[0])
    # one by one: PyTorch takes a whole `torch.Size` in twice the time
    out = x.new_empty(*x.shape)
    ways[0](ready(x), ready(gate), ready(up), hidden)
    ways[1](hidden, ready(down), out)
    return out


@fake("forward")
def _(
    x: Tensor, gate: Tensor, up: Tensor, down: Tensor, activation: str
) -> Tensor:
    return x.new_empty(x.shape)


# --8<-- [end:forward]


# The portable operators, to be compared with Hopper's


plan_portable_gate_up = functools.partial(plan_gate_up, only_portable=True)
plan_portable_forward = functools.partial(plan_forward, only_portable=True)


def portable_gate_up(
    x: Tensor, gate: Tensor, up: Tensor, activation: str
) -> Tensor:
    """`gate_up` without the kernels for Hopper."""
    return run_gate_up(plan_portable_gate_up, x, gate, up, activation)


def portable_forward(
    x: Tensor, gate: Tensor, up: Tensor, down: Tensor, activation: str
) -> Tensor:
    """`forward` without the kernels for Hopper."""
    return run_forward(plan_portable_forward, x, gate, up, down, activation)
