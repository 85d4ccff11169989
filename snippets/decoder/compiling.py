"""Transformations of a finished decoder: joined projections, compiled
layers."""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .model import Attention, Decoder


# --8<-- [start:joined]
def joined(*layers: nn.Linear) -> nn.Linear:
    """One product in place of several of the same input."""
    weight = torch.cat([layer.weight for layer in layers])
    with torch.device("meta"):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return layer


class JoinedAttention(Attention):
    """Queries, keys and values by one product."""

    def __init__(self, config, attention):
        nn.Module.__init__(self)
        self.head_dim = config.head_dim
        self.sizes = [config.dim] + 2 * [config.kv_heads * config.head_dim]
        self.qkv_proj = joined(
            attention.q_proj, attention.k_proj, attention.v_proj
        )
        self.o_proj = attention.o_proj

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.qkv_proj(x).split(self.sizes, dim=-1)


class JoinedMLP(nn.Module):
    """Gate and up by one product."""

    def __init__(self, mlp):
        super().__init__()
        self.gate_up_proj = joined(mlp.gate_proj, mlp.up_proj)
        self.down_proj = mlp.down_proj

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(F.silu(gate) * up)


def join_projections(model: Decoder) -> Decoder:
    """The same decoder with two products a layer in place of five."""
    other = _shallow_copy(model)
    for layer in other.layers:
        layer.self_attn = JoinedAttention(model.config, layer.self_attn)
        layer.mlp = JoinedMLP(layer.mlp)
    return other


# --8<-- [end:joined]


# --8<-- [start:compiled_layers]
def compile_layers(model: Decoder, **options) -> Decoder:
    """The same decoder with each layer compiled: all layers share one
    compilation."""
    other = _shallow_copy(model)
    compiled = [
        torch.compile(layer, dynamic=False, **options) for layer in model.layers
    ]
    other.layers = nn.ModuleList(compiled)  # type: ignore[arg-type]
    return other


# --8<-- [end:compiled_layers]


def _shallow_copy(model: Decoder) -> Decoder:
    """New modules down to the layers, over the same weights."""
    other = _copied(model)
    other.layers = nn.ModuleList(_copied(layer) for layer in model.layers)
    return other


def _copied(module):
    other = copy.copy(module)
    other._modules = dict(module._modules)
    return other
