"""One linear layer, and the view that makes its transpose free."""

import torch
from torch import nn


# --8<-- [start:layer]
def linear(in_dim: int, out_dim: int) -> nn.Linear:
    """A layer that maps (batch, in_dim) to (batch, out_dim). It stores its
    weight as (out_dim, in_dim)."""
    return nn.Linear(in_dim, out_dim, bias=True)


# --8<-- [end:layer]


# --8<-- [start:strides]
def strides() -> dict[str, object]:
    """Transpose a small matrix and see what changes: the strides, and no number
    in memory."""
    m = torch.tensor([[0, 1], [2, 3], [4, 5]])
    t = m.t()
    return {
        "m": (tuple(m.shape), m.stride()),
        "m.t()": (tuple(t.shape), t.stride()),
        "same memory": m.data_ptr() == t.data_ptr(),
        "m.t().flatten()": t.flatten().tolist(),
    }


# --8<-- [end:strides]
