"""A stack of GeGLU blocks and the step that trains it: plain PyTorch, without a harness."""

import itertools
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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


class Blocks(nn.Sequential):
    """A sequence of blocks with a forward of its own, so that it is compiled as
    a whole."""

    def forward(self, x: Tensor) -> Tensor:
        for block in self:
            x = block(x)
        return x


# --8<-- [end:model]


def make_model(
    device: str,
    dim: int,
    hidden: int,
    layers: int,
    dtype: torch.dtype = torch.float32,
) -> Blocks:
    """The blocks, with the same weights at every call, rounded to dtype."""
    torch.manual_seed(0)
    with torch.device(device):
        blocks = [Block(dim, hidden) for _ in range(layers)]
    return Blocks(*blocks).to(dtype)


def draw_batches(
    device: str, batch: int, seq: int, dim: int, dtype: torch.dtype, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs (batch, seq, dim) of a dtype and their targets in float32, a
    new pair each time.

    A target is its input plus a linear map of it, of rank 16 and equal for all
    seeds, so that the loss falls from the first step.
    """
    rank = 16
    fixed, drawn = (
        torch.Generator(device).manual_seed(each) for each in (1000, seed)
    )

    def normal(generator: torch.Generator, *shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=generator)

    change = normal(fixed, dim, rank) @ normal(fixed, rank, dim)
    change *= 0.3 / (dim * rank) ** 0.5
    while True:
        x = normal(drawn, batch, seq, dim)
        yield x.to(dtype), x + x @ change


def make_batches(
    device: str,
    batch: int,
    seq: int,
    dim: int,
    dtype: torch.dtype = torch.float32,
    count: int = 4,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Cycle through `count` pairs that are already on the device."""
    pairs = draw_batches(device, batch, seq, dim, dtype, seed=1)
    return itertools.cycle(list(itertools.islice(pairs, count)))


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
# --8<-- [start:variants]
@dataclass(frozen=True)
class Variant:
    """Options that differ between the compared steps."""

    dtype: torch.dtype = torch.float32
    """Type of weights, inputs, gradients and the optimizer's moments."""
    matmul: str = "highest"
    """Precision of float32 matmuls; "high" may round their factors to TF32."""
    autocast: bool = False
    """Whether forward multiplies bf16 copies of float32 weights."""
    compiled: bool = False
    optimizer: str = "fused"


VARIANTS = {
    "fp32": Variant(),
    "tf32": Variant(matmul="high"),
    "autocast": Variant(autocast=True),
    "bfloat16": Variant(dtype=torch.bfloat16),
    "autocast_compiled": Variant(autocast=True, compiled=True),
    "bfloat16_compiled": Variant(dtype=torch.bfloat16, compiled=True),
    "optimizer_foreach": Variant(autocast=True, optimizer="foreach"),
    "optimizer_loop": Variant(autocast=True, optimizer="loop"),
}
OPTIMIZERS: Mapping[str, Mapping[str, Any]] = {
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
# --8<-- [end:variants]


@contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    """Set the precision of float32 matmuls, and restore the old setting."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


# --8<-- [start:train]
def make_parts(variant: Variant, device, dim, hidden, layers, lr=1e-3):
    model = make_model(device, dim, hidden, layers, variant.dtype)
    if variant.compiled:
        model.compile()
    options = OPTIMIZERS[variant.optimizer]
    optimizer = torch.optim.AdamW(model.parameters(), lr, **options)
    return model, optimizer


def train(variant: Variant, parts, batches) -> Generator:
    """Train on each batch and yield its loss, still on the GPU."""
    model, optimizer = parts
    for x, target in batches:
        with matmul_precision(variant.matmul):
            loss = train_step(model, optimizer, x, target, variant.autocast)
        yield loss


# --8<-- [end:train]
