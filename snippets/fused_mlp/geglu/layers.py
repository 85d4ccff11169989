"""The layer that `kernelize` puts in the place of a model's own."""

import torch
from torch import nn
from torch.nn import functional as F

from .model import gated_mlp
from .support import say_once


class FusedGeGLU(nn.Module):
    """down_proj(gelu(gate_proj(x)) * up_proj(x)) with the tanh form of GELU: a
    forward for a module that has the rest.

    Without an `__init__` and methods of its own, as `kernels` wants it. Only
    the weights of the projections are read, so where they are more than that (a
    bias, an adapter, a quantized layer), plain PyTorch does the work.
    """

    gate_proj: nn.Linear
    up_proj: nn.Linear
    down_proj: nn.Linear
    has_backward = True
    can_torch_compile = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x and the result are (..., dim)."""
        projections = (self.gate_proj, self.up_proj, self.down_proj)
        if any(
            type(projection) is not nn.Linear or projection.bias is not None
            for projection in projections
        ):
            say_once("the projections must be nn.Linear without a bias")
            return self.down_proj(
                F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x)
            )
        return gated_mlp(x, *(projection.weight for projection in projections))
