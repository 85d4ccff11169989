"""A stack of GeGLU blocks and the step that trains it: plain PyTorch, without a harness."""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import record_function


# --8<-- [start:model]
class GeGLU(nn.Module):
    """down(gelu(gate(x)) * up(x)), with the tanh form of GELU."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        return self.down_proj(F.gelu(gate, approximate="tanh") * up)


class Block(nn.Module):
    """x (batch, seq, dim) plus GeGLU of its norm."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = GeGLU(dim, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.norm(x))


# --8<-- [end:model]


def make_model(
    device: str,
    dim: int,
    hidden: int,
    layers: int,
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """The blocks; the same weights whenever it is called, rounded to dtype."""
    torch.manual_seed(0)
    blocks = (Block(dim, hidden) for _ in range(layers))
    return nn.Sequential(*blocks).to(device=device, dtype=dtype)


def make_batches(
    device: str,
    batch: int,
    seq: int,
    dim: int,
    dtype: torch.dtype = torch.float32,
    count: int = 4,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs (batch, seq, dim) of a dtype and their targets in float32: `count`
    pairs that wait on the device, in turns without end.

    A target is its input plus a fixed linear map of it, of rank 16, so that the
    loss falls from the first step.
    """
    generator = torch.Generator(device).manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=generator)

    rank = 16
    change = 0.3 * normal(dim, rank) @ normal(rank, dim) / (dim * rank) ** 0.5
    inputs = [normal(batch, seq, dim) for _ in range(count)]
    pairs = [(x.to(dtype), x + x @ change) for x in inputs]
    return itertools.cycle(pairs)


# --8<-- [start:step]
def train_step(model, optimizer, x, target, autocast=False) -> Tensor:
    casts = torch.autocast(x.device.type, torch.bfloat16, enabled=autocast)
    with record_function("forward"), casts:
        y = model(x)
    with record_function("loss"):
        loss = F.mse_loss(y.float(), target)
    with record_function("backward"):
        loss.backward()
    with record_function("optimizer"):
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


# --8<-- [end:step]
