"""The Hub package's LigerGEGLUMLP over PyPI's liger-kernel: same class, same
Triton kernel."""

import torch
from liger_kernel.ops.geglu import LigerGELUMulFunction
from torch import nn


class LigerGEGLUMLP(nn.Module):
    """A layer without an `__init__` of its own, as `kernels` wants it: it takes
    the place of a model's forward."""

    gate_proj: nn.Linear
    up_proj: nn.Linear
    down_proj: nn.Linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x and the result are (batch, seq, dim)."""
        return self.down_proj(
            LigerGELUMulFunction.apply(self.gate_proj(x), self.up_proj(x))
        )
