"""The whole MLP with gradients: the tensors kept between forward and backward,
and the products of the backward pass."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from .gradients import differentiable
from .joined import joined
from .operators import fake, gate_up, operator, with_gradient
from .plans import is_plain, planned, ready, tuned
from .preactivations import (
    gate_up_saved,
    gradients_of_pre,
    hidden_and_pre,
    pre_backward,
)
from .support import fit, is_batched, plain_gate_up, without_autocast
from .ways import Way, linear_ways
from .work import rows_of, sizes_of

_AUTOGRAD = torch._C._autograd


KEPT = {False: 3, "hidden": 2, True: 0}
"""`recompute` -> number of tensors of the hidden size kept for backward."""


def tensors_kept(recompute: bool | str) -> int:
    """The number of tensors in `KEPT`. Raises `ValueError` for an unknown
    `recompute`."""
    if recompute not in KEPT:
        raise ValueError(f"recompute is a bool or 'hidden', not {recompute!r}")
    return KEPT[recompute]


def gradient_of_x(d_pre: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    """d_gate @ gate + d_up @ up: one product if one matrix holds both
    weights."""
    both = joined(gate, up)
    if both is not None:
        return d_pre @ both
    d_gate, d_up = d_pre.chunk(2, dim=1)
    return (d_gate @ gate).addmm_(d_up, up)


x_backward = operator(
    "x_backward(Tensor d_pre, Tensor gate, Tensor up) -> Tensor"
)(gradient_of_x)


@fake("x_backward")
def _(d_pre: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    return d_pre.new_empty(d_pre.shape[0], gate.shape[1])


def plan_trained(
    activation: str, x: Tensor, gate: Tensor, up: Tensor, down: Tensor
) -> tuple[tuple[Way, ...], bool]:
    """Plan the product with `down`, whose way does not depend on the tensors
    kept."""
    fit(x, gate, up, down=down)
    if is_plain(activation, x, gate, up, down):
        return (), True
    sizes = sizes_of(x, gate)._replace(dim=gate.shape[0], outputs=x.shape[-1])
    hidden = x.new_empty(sizes.rows, sizes.dim)
    out = x.new_empty(sizes.rows, sizes.outputs)
    return tuned(
        f"linear none {sizes.name}",
        linear_ways(sizes, "none", has_bias=False),
        lambda way: way(hidden, down, out),
        *(hidden, down, out),
    )


def run(
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    activation: str,
    kept: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """(activation(x @ gate.T) * (x @ up.T)) @ down.T, and the tensors that the
    backward pass needs besides the inputs: both pre-activations as one matrix,
    and the hidden tensor.

    `kept` is 3 (all tensors of the hidden size), 2 (the pre-activations) or 0;
    a tensor that is not kept is empty.
    """
    ways = planned(plan_trained, activation, x, gate, up, down)
    rows = rows_of(x)
    if kept:
        hidden, pre = hidden_and_pre(rows, gate, up, activation)
    else:
        hidden, pre = gate_up(rows, gate, up, activation), x.new_empty(0)
    if ways:
        out = x.new_empty(*x.shape)
        ways[0](hidden, ready(down), out)
    else:
        out = (hidden @ down.t()).view(x.shape)
    return out, pre, hidden if kept == 3 else x.new_empty(0)


trained = operator(
    "trained(Tensor x, Tensor gate, Tensor up, Tensor down, str activation, "
    "int kept) -> (Tensor, Tensor, Tensor)"
)(run)


@fake("trained")
def _(
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    activation: str,
    kept: int,
) -> tuple[Tensor, Tensor, Tensor]:
    rows, hidden = rows_of(x).shape[0], gate.shape[0]
    return (
        x.new_empty(x.shape),
        x.new_empty((rows, 2 * hidden) if kept else (0,)),
        x.new_empty((rows, hidden) if kept == 3 else (0,)),
    )


# --8<-- [start:backward]
def _keep(ctx, inputs, output) -> None:
    x, gate, up, down, ctx.activation, ctx.kept = inputs
    _, pre, hidden = output
    # a tensor of its own, so that `is_ours` sees whether the result is held
    saved = (pre.detach(),) if ctx.kept else ()
    if ctx.kept == 3 and ctx.needs_input_grad[3]:
        saved += (hidden,)
    ctx.save_for_backward(x, gate, up, down, *saved)


def _keep_results(ctx, inputs, output) -> None:
    _keep(ctx, inputs, output)
    ctx.mark_non_differentiable(*output[1:])
    # otherwise PyTorch makes zero gradients for them, which are not needed
    ctx.set_materialize_grads(False)


@without_autocast
def _backward(
    ctx, d_out: Tensor | None, *_: Tensor
) -> tuple[Tensor | None, ...]:
    if d_out is None:  # the result has no gradient
        return (None,) * 6
    x, gate, up, down, *saved = ctx.saved_tensors
    needs = ctx.needs_input_grad
    # gradients of gradients, or of a batch of results at once
    if torch.is_grad_enabled() or is_batched(d_out):

        def plain(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
            return plain_gate_up(x, gate, up, ctx.activation) @ down.t()

        inputs = x, gate, up, down
        return *differentiable(plain, inputs, d_out, ctx), None, None
    shape = x.shape
    x, d_out = rows_of(x), rows_of(d_out)
    # tracing operators does not show that memory is reused
    traced = is_traced(d_out)
    if not traced and hasattr(ctx, "maybe_clear_saved_tensors"):
        # frees the hidden tensor before the last gradients are made
        ctx.maybe_clear_saved_tensors()
    if ctx.kept:
        pre, hidden = saved[0], saved[1] if len(saved) > 1 else None
        if not traced:  # so that `is_ours` sees other holders
            pre = pre.detach()
        saved.clear()
    else:
        save = gate_up_saved if traced else hidden_and_pre
        hidden, pre = save(x, gate, up, ctx.activation)
    if hidden is not None and not any(needs[:3]):
        return None, None, None, d_out.t() @ hidden, None, None
    what = d_out, down, pre, ctx.activation, needs[3] and hidden is None
    if traced:
        d_pre, again = pre_backward(*what)
    else:
        is_free = not ctx.kept or is_ours(pre)
        d_pre, again = gradients_of_pre(*what, pre if is_free else None)
    hidden = again if hidden is None else hidden
    d_down = d_out.t() @ hidden if needs[3] else None
    # free memory before allocating more
    del hidden, again, pre, what
    d_x, d_gate, d_up = products(d_pre, x, gate, up, needs, traced)
    if d_x is not None:
        d_x = d_x.view(shape)
    return d_x, d_gate, d_up, d_down, None, None


def is_ours(pre: Tensor) -> bool:
    """Whether backward may overwrite `pre`: no second backward
    (`retain_graph=True`), and no other tensor shares its memory."""
    is_kept = getattr(_AUTOGRAD, "_get_current_graph_task_keep_graph", None)
    uses = getattr(torch._C, "_storage_Use_Count", None)
    if is_kept is None or uses is None or is_kept():
        return False
    # one use by this tensor, one by the storage object made for this call
    return uses(pre.untyped_storage()._cdata) == 2


def is_traced(*tensors: Tensor) -> bool:
    """Whether operators are observed: by a compiler, a mode, or a tensor
    subclass."""
    return bool(
        torch.compiler.is_compiling()
        or any(type(one) not in (Tensor, nn.Parameter) for one in tensors)
        or torch._C._len_torch_dispatch_stack()
    )


def products(
    d_pre: Tensor,
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    needs: tuple[bool, ...],
    traced: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The requested gradients of x, gate and up, from the gradient of both
    pre-activations."""
    d_x = d_gate = d_up = None
    if needs[0]:
        d_x = (x_backward if traced else gradient_of_x)(d_pre, gate, up)
    if needs[1] and needs[2]:
        d_gate, d_up = (d_pre.t() @ x).chunk(2)
    elif needs[1]:
        d_gate = d_pre[:, : gate.shape[0]].t() @ x
    elif needs[2]:
        d_up = d_pre[:, gate.shape[0] :].t() @ x
    return d_x, d_gate, d_up


# --8<-- [end:backward]
with_gradient("trained", _backward, _keep_results)


class Trained(torch.autograd.Function):
    """The operator `trained` without PyTorch's registration, which costs the
    CPU as much as three launches."""

    @staticmethod
    def forward(ctx, *inputs: Any) -> Tensor:
        x = inputs[0]
        with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
            output = run(*inputs)
        _keep(ctx, inputs, output)
        return output[0]

    backward = staticmethod(_backward)


def mlp(
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    activation: str,
    kept: int,
) -> Tensor:
    """(activation(x @ gate.T) * (x @ up.T)) @ down.T with gradients, keeping
    `kept` tensors of the hidden size for them."""
    inputs = x, gate, up, down, activation, kept
    if is_traced(x, gate, up, down):
        return trained(*inputs)[0]
    return Trained.apply(*inputs)
