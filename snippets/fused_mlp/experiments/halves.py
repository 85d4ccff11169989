"""Experiments on the parts of the forward: the activation, a linear layer with
its activation, gate and up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snippets.fused_mlp.experiments.subjects import (
    need_gpu,
    need_hopper,
    need_kernels,
    random_tensor,
    without_gradients,
)
from snippets.lab.experiment import Subject

# The activation alone


def pointwise_steps(device: str) -> dict[str, Callable[..., Any]]:
    """Four ways to compute gelu(gate) * up of two tensors."""
    import torch
    from torch.nn import functional as F

    from snippets.fused_mlp.geglu.model import gated_activation

    def eager(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return F.gelu(gate, approximate="tanh") * up

    found: dict[str, Callable[..., Any]] = {
        "eager": eager,
        "compiled": torch.compile(eager),
        "fused": gated_activation,
    }
    if device == "cuda":
        from liger_kernel.ops.geglu import LigerGELUMulFunction

        found["liger"] = LigerGELUMulFunction.apply
    return found


def pointwise(device: str, variant: str, tokens: int, hidden: int) -> Subject:
    """One of the four, or a copy that moves the same number of bytes: half of
    them read, half written."""
    import torch
    from torch.nn import functional as F

    if variant == "copy":
        return Subject(
            step=without_gradients(torch.clone),
            inputs=lambda: (
                random_tensor(3 * tokens, hidden // 2, device=device),
            ),
            reference=lambda source: source,
            tolerance=0.0,
        )
    if variant not in ("eager", "compiled"):
        need_gpu(device)
    return Subject(
        step=without_gradients(pointwise_steps(device)[variant]),
        inputs=lambda: (
            random_tensor(tokens, hidden, device=device),
            random_tensor(tokens, hidden, device=device),
        ),
        reference=lambda gate, up: (
            F.gelu(gate.double(), approximate="tanh") * up.double()
        ),
    )


# A linear layer with its activation


# --8<-- [start:linear]
def linear_steps(weight: Any, bias: Any) -> dict[str, Callable[..., Any]]:
    """Four ways to compute gelu(x @ weight.T + bias); the third is cuBLAS's own
    epilogue."""
    import torch
    from torch.nn import functional as F

    from snippets.fused_mlp.geglu.model import linear

    def eager(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, weight, bias), approximate="tanh")

    return {
        "eager": eager,
        "compiled": torch.compile(eager),
        "addmm": lambda x: torch._addmm_activation(
            bias, x, weight.t(), use_gelu=True
        ),
        "fused": lambda x: linear(x, weight, bias, "gelu_tanh"),
    }


# --8<-- [end:linear]


def linear_activation(
    device: str, variant: str, tokens: int, dim: int, outputs: int
) -> Subject:
    """One of the four. On a CPU, `addmm` computes GELU with erf, so that
    variant is rejected there."""
    from torch.nn import functional as F

    if variant == "addmm":
        need_gpu(device)
    if variant == "fused":
        need_kernels(device)
    weight, bias = (
        random_tensor(outputs, dim, scale=dim**-0.5, device=device),
        random_tensor(outputs, device=device),
    )
    return Subject(
        step=without_gradients(linear_steps(weight, bias)[variant]),
        inputs=lambda: (random_tensor(tokens, dim, device=device),),
        reference=lambda x: F.gelu(
            F.linear(x.double(), weight.double(), bias.double()),
            approximate="tanh",
        ),
    )


# Gate and up


def gate_up_step(variant: str, gate: Any, up: Any) -> Callable[..., Any]:
    """One way to compute gelu(x @ gate.T) * (x @ up.T); `bare` is the product
    alone, without the activation."""
    import torch
    from torch.nn import functional as F

    from snippets.fused_mlp.geglu import model, operators

    if variant == "bare":
        both = torch.cat([gate, up])
        return lambda x: x @ both.t()
    if variant == "eager":
        return lambda x: F.gelu(x @ gate.t(), approximate="tanh") * (x @ up.t())
    if variant == "fused":
        return lambda x: model.gate_up(x, gate, up, "gelu_tanh")

    if variant == "portable":
        return lambda x: operators.portable_gate_up(x, gate, up, "gelu_tanh")
    from snippets.fused_mlp.geglu import hopper

    stacked = torch.stack([gate, up])
    return lambda x: hopper.stacked_gate_up(
        x, stacked, "gelu_tanh", hopper.STACKED[0]
    )


def gate_up(
    device: str, variant: str, tokens: int, dim: int, hidden: int
) -> Subject:
    """The first two products and the activation, fused as far as the variant
    does."""
    from snippets.fused_mlp.geglu.support import gated_reference

    if variant == "stacked":
        need_hopper(device)
    elif variant in ("fused", "portable"):
        need_kernels(device)
    gate, up = (
        random_tensor(hidden, dim, scale=dim**-0.5, device=device)
        for _ in range(2)
    )
    step = gate_up_step(variant, gate, up)

    def reference(x: Any) -> Any:
        if variant == "bare":
            import torch

            return x.double() @ torch.cat([gate, up]).double().t()
        return gated_reference(x, gate, up)

    return Subject(
        step=without_gradients(step),
        inputs=lambda: (random_tensor(tokens, dim, device=device),),
        reference=reference,
    )
