"""A GeGLU feed-forward block, written as most models write it."""

import torch
from torch import nn
from torch.nn import functional as F


# --8<-- [start:geglu]
class GeGLU(nn.Module):
    """down(gelu(gate(x)) * up(x)), with the tanh form of GELU and no biases.

    x is (batch, seq, dim), as is the result; the three tensors between are
    (batch, seq, hidden).
    """

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        return self.down_proj(F.gelu(gate, approximate="tanh") * up)


# --8<-- [end:geglu]


def geglu_reference(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """The same block in float64. x is (batch, seq, dim), gate and up are
    (hidden, dim), down is (dim, hidden)."""
    x, gate, up, down = (tensor.double() for tensor in (x, gate, up, down))
    return (F.gelu(x @ gate.t(), approximate="tanh") * (x @ up.t())) @ down.t()
