"""Modules to compile, and each as a subject of experiments."""

from __future__ import annotations

from typing import Any

from snippets.lab.experiment import Subject

WIDTHS = {"dim": 1024, "hidden": 4096}
REPLAYED = ("reduce-overhead", "max-autotune")
"""Modes that replay CUDA graphs of their own, which another graph cannot
contain."""


def stack_of(
    device: str,
    dim: int,
    hidden: int,
    dtype: str = "bfloat16",
    blocks: int = 1,
) -> Any:
    """The chapter's subject on a device, without gradients."""
    import torch

    from snippets.regimes.model import Stack

    with torch.device(device):
        stack = Stack(dim, hidden, blocks).to(getattr(torch, dtype))
    return stack.eval().requires_grad_(requires_grad=False)


def module_of(
    device: str, block: str, blocks: int, dim: int, hidden: int
) -> Any:
    """`blocks` blocks of the chapter's subject, or the block of the chapter mlp
    if `block` is `geglu`."""
    import torch

    from snippets.mlp.model import GeGLU

    if block != "geglu":
        return stack_of(device, dim, hidden, blocks=blocks)
    with torch.device(device):
        module = GeGLU(dim, hidden).to(torch.bfloat16)
    return module.eval().requires_grad_(requires_grad=False)


def module_subject(
    module: Any, step: Any, tokens: int, in_graph: bool = True
) -> Subject:
    """A step that computes the same as a stack or a GeGLU, on random tokens."""
    import torch

    from snippets.mlp.model import GeGLU, geglu_reference
    from snippets.regimes.model import stack_reference

    parameters = list(module.parameters())
    like = parameters[0]

    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            result: torch.Tensor = step(x)
            return result

    def inputs() -> tuple[torch.Tensor]:
        sizes = tokens, like.shape[1]
        return (torch.randn(*sizes, dtype=like.dtype, device=like.device),)

    def reference(x: torch.Tensor) -> torch.Tensor:
        if isinstance(module, GeGLU):
            return geglu_reference(x, *parameters)
        return stack_reference(x, parameters)

    return Subject(
        step=forward,
        inputs=inputs,
        reference=reference,
        # each block rounds once more
        tolerance=1e-2 if len(parameters) <= 4 else 3e-2,
        in_graph=in_graph,
    )
