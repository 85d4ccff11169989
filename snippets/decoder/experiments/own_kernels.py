"""A rung with kernels of this book: the gated MLP of the chapter fused_mlp."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from snippets.decoder.experiments.token_loops import (
    LABEL,
    TEXT,
    loop_of,
    model_of,
    prompt_of,
    token_work,
)
from snippets.lab.experiment import Experiment, Loop, NeedsGpu


def with_fused_mlps(model: Any) -> Any:
    """The same decoder, joined, with each MLP by `gated_mlp`."""
    from torch import Tensor, nn

    from snippets.decoder.compiling import join_projections
    from snippets.fused_mlp.geglu.model import gated_mlp

    class FusedMLP(nn.Module):
        """Gate and up by one kernel with the activation in it."""

        def __init__(self, mlp: Any) -> None:
            super().__init__()
            self.gate_up_proj = mlp.gate_up_proj
            self.down_proj = mlp.down_proj

        def forward(self, x: Tensor) -> Tensor:
            gate, up = self.gate_up_proj.weight.chunk(2)
            return gated_mlp(x, gate, up, self.down_proj.weight, "silu")

    other = join_projections(model)
    for layer in other.layers:
        layer.mlp = FusedMLP(layer.mlp)
    return other


def fused(device: str, size: str, batch: int, prompt: int, answer: int) -> Loop:
    """Joined, compiled layers as a graph, with the fused MLP."""
    from snippets.decoder import loops
    from snippets.decoder.compiling import compile_layers

    if device != "cuda":
        raise NeedsGpu("it records a CUDA graph: decoder/static runs here")
    model = model_of(size, device)
    decoding = compile_layers(with_fused_mlps(model))
    start = functools.partial(loops.graph, answer=answer, decoding=decoding)
    return loop_of(start, model, prompt_of(model, batch, prompt))


def fused_loops() -> Iterator[Experiment]:
    """In a group of its own: it may fail where its kernels do not run."""
    yield Experiment(
        chapter="decoder",
        name="fused",
        label=LABEL,
        group="fused",
        parameters=TEXT,
        loop=fused,
        work=token_work,
    )
