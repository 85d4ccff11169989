"""A rung with kernels of this book: the gated MLP of the chapter fused_mlp."""

from __future__ import annotations

from typing import Any


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


def fused(model: Any, ids: Any, answer: int) -> Any:
    """Joined, compiled layers as a graph, with the fused MLP."""
    from snippets.decoder import loops
    from snippets.decoder.compiling import compile_layers

    decoding = compile_layers(with_fused_mlps(model))
    return loops.graph(model, ids, answer, decoding)
