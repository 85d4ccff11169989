"""A stack of transformer blocks, as plain PyTorch: it knows of no other GPU.

Shapes: hidden states (batch, tokens, dim) in and out.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


# --8<-- [start:blocks]
class Attention(nn.Module):
    """Causal, with as many heads of keys and values as of queries."""

    def __init__(self, dim: int, head_dim: int = 64):
        super().__init__()
        self.head_dim = head_dim
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, dim, bias=False)
        self.v_proj = nn.Linear(dim, dim, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            each(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for each in (self.q_proj, self.k_proj, self.v_proj)
        )  # (batch, heads, tokens, head_dim)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """Two products, a gate, and a third product."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """Attention and MLP, each behind a norm and added to what came in."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.attention_norm = nn.RMSNorm(dim)
        self.attention = Attention(dim)
        self.mlp_norm = nn.RMSNorm(dim)
        self.mlp = MLP(dim, hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class MLPBlock(nn.Module):
    """A block without attention, whose tokens know nothing of each other."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.norm = nn.RMSNorm(dim)
        self.mlp = MLP(dim, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.norm(x))


class Stack(nn.Module):
    """Blocks, one behind the other."""

    def __init__(self, layers: int, dim: int, hidden: int, kind=Block):
        super().__init__()
        self.blocks = nn.ModuleList(kind(dim, hidden) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


# --8<-- [end:blocks]


def build(layers: int, dim: int, hidden: int, device, kind=Block) -> Stack:
    """A stack with random float32 weights, equal on every rank."""
    torch.manual_seed(0)
    with torch.device(device):
        model = Stack(layers, dim, hidden, kind)
    for weight in model.parameters():
        if weight.dim() == 2:  # each layer adds about as much as it is given
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    return model


def loss_of(y: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(y.float(), target.float())


def parameters_of_block(dim: int, hidden: int) -> int:
    """The weights of attention, MLP and two norms."""
    return 4 * dim * dim + 3 * dim * hidden + 2 * dim
