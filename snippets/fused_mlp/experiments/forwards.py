"""Experiments on the whole forward, and on forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snippets.fused_mlp.experiments.subjects import (
    need_gpu,
    need_kernels,
    random_tensor,
    without_gradients,
)
from snippets.fused_mlp.kernelize import kernelized
from snippets.lab.experiment import Subject
from snippets.mlp.experiments.forwards import liger_layers


def forward_step(variant: str, plain: Any, device: str) -> Callable[..., Any]:
    """The forward pass of a plain GeGLU module with its own weights, by a
    variant; "fused_" and a mode of `torch.compile` is the package's module
    compiled in that mode."""
    import torch
    from torch import nn

    from snippets.fused_mlp.geglu import operators
    from snippets.fused_mlp.geglu.model import FusedGeGLU

    if variant == "eager":
        return plain
    if variant in COMPILED:
        return torch.compile(plain, mode=COMPILED[variant])
    if variant in OURS:
        need_kernels(device)
    if variant == "kernelized":
        return kernelized(plain)
    if variant == "portable":
        weights = [
            layer.weight
            for layer in (plain.gate_proj, plain.up_proj, plain.down_proj)
        ]
        gate, up, down = weights
        return lambda x: operators.portable_forward(
            x, gate, up, down, "gelu_tanh"
        )
    if variant in OURS:
        mode = COMPILED.get(variant.removeprefix("fused_"))
        fused = FusedGeGLU.like(plain)
        return (
            torch.compile(fused, mode=mode, fullgraph=True) if mode else fused
        )
    need_gpu(device)
    liger = liger_layers()[0].LigerGEGLUMLP()
    for name, layer in plain.named_children():
        assert isinstance(layer, nn.Linear)
        setattr(liger, name, layer)
    return liger


COMPILED = {
    "compiled": "default",
    "reduce_overhead": "reduce-overhead",
    "max_autotune": "max-autotune-no-cudagraphs",
}
"""Modes of `torch.compile`. Timing replays its own CUDA graphs, so the last
mode makes none."""


OURS = (
    "fused",
    "kernelized",
    "portable",
    "fused_compiled",
    "fused_reduce_overhead",
)


def forward(
    device: str,
    variant: str,
    tokens: int,
    dim: int,
    hidden: int,
    dtype: str = "bfloat16",
) -> Subject:
    """The whole forward pass of one variant, checked against float64."""
    import torch

    from snippets.mlp.model import GeGLU, geglu_reference

    class Plain(GeGLU):
        """A new class, so that `kernelize` may change it."""

    plain = Plain(dim, hidden).to(device, dtype=getattr(torch, dtype)).eval()
    weights = [
        layer.weight.detach()
        for layer in (plain.gate_proj, plain.up_proj, plain.down_proj)
    ]
    return Subject(
        step=without_gradients(forward_step(variant, plain, device)),
        inputs=lambda: (
            random_tensor(tokens, dim, device=device, dtype=dtype),
        ),
        reference=lambda x: geglu_reference(x, *weights),
        in_graph=not variant.endswith(
            "reduce_overhead"
        ),  # which is a CUDA graph already
    )


# Forward and backward


RECOMPUTED: dict[str, bool | str] = {
    "fused": False,
    "fused_recompute_hidden": "hidden",
    "fused_recompute": True,
}
"""The tensors that each variant of the package recomputes in the backward
pass."""
TRAINING = ("eager", "compiled", "liger", *RECOMPUTED)


def training_step(variant: str, plain: Any, device: str) -> Callable[..., Any]:
    """The forward of a plain GeGLU module with trainable weights, by a variant
    of `TRAINING`."""
    from snippets.fused_mlp.geglu.joined import share_storage
    from snippets.fused_mlp.geglu.model import FusedGeGLU

    if variant not in RECOMPUTED:
        return forward_step(variant, plain, device)
    need_kernels(device)
    share_storage(plain.gate_proj, plain.up_proj)
    return FusedGeGLU.like(plain, recompute=RECOMPUTED[variant])


def training(
    device: str, variant: str, tokens: int, dim: int, hidden: int
) -> Subject:
    """Forward and backward: the gradients of x and of the three weights, for a
    random gradient of the result."""
    import torch

    from snippets.mlp.model import GeGLU, geglu_reference

    plain = GeGLU(dim, hidden).to(device, dtype=torch.bfloat16)
    step = training_step(variant, plain, device)
    weights = list(plain.parameters())

    def gradients(x: torch.Tensor, d_out: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(step(x), (x, *weights), d_out)[0]

    def reference(x: torch.Tensor, d_out: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            exact = x.detach().double().requires_grad_()
            result = geglu_reference(
                exact, *(weight.detach() for weight in weights)
            )
            return torch.autograd.grad(result, exact, d_out.double())[0]

    return Subject(
        step=gradients,
        inputs=lambda: (
            random_tensor(tokens, dim, device=device),
            random_tensor(tokens, dim, device=device),
        ),
        reference=reference,
    )
