"""Batches of the stack of blocks, and its training on one GPU."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

LEARNING_RATE = 1e-4
BATCHES = 4
"""Batches of a rank, used again and again."""
Sizes = tuple[int, int, int, int, int]
"""Layers, dim, hidden, sequences of a rank, tokens of a sequence."""


def compute_dtype(device: str) -> Any:
    """Bf16; on a CPU float32, in which tests compare exactly."""
    import torch

    return torch.bfloat16 if device == "cuda" else torch.float32


def batch_of(rank: int, index: int, sizes: Sizes, device: str) -> Any:
    """Hidden states and their targets, (batch, tokens, dim) each."""
    import torch

    _, dim, _, batch, tokens = sizes
    draw = torch.Generator(device).manual_seed(1000 * rank + index)
    x, target = torch.randn(
        2, batch, tokens, dim, device=device, generator=draw
    ).to(compute_dtype(device))
    return x, target


def relative_error(result: Tensor, expected: Tensor) -> float:
    """Of a result, against one in higher precision."""
    expected = expected.double()
    return float((result.double() - expected).norm() / expected.norm())


def batches_of(rank: int, sizes: Sizes, device: str) -> Iterator[Any]:
    """The batches of a rank, in turns."""
    kept = [batch_of(rank, i, sizes, device) for i in range(BATCHES)]
    return itertools.cycle(kept)


def training(
    model: Any, optimizer: Any, batches: Iterator[Any]
) -> Generator[Tensor, None, None]:
    """A step for each batch, as its user writes it."""
    from snippets.several_gpus.blocks import loss_of

    for x, target in batches:
        loss = loss_of(model(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.detach()


def adamw(model: Any, device: str) -> Any:
    """The optimizer of all loops here."""
    import torch

    return torch.optim.AdamW(
        model.parameters(), LEARNING_RATE, fused=device == "cuda"
    )


@functools.lru_cache(maxsize=2)
def losses_on_one(
    sizes: Sizes, ranks: Sequence[int], device: str, count: int
) -> list[float]:
    """The losses of so many steps in float32 on one GPU, over the batches of
    these ranks; a rank at a time, which saves memory."""
    from snippets.several_gpus.blocks import build, loss_of

    model = build(*sizes[:3], device)
    optimizer = adamw(model, device)
    losses = []
    for index in range(count):
        total = 0.0
        for rank in ranks:
            x, target = batch_of(rank, index % BATCHES, sizes, device)
            loss = loss_of(model(x.float()), target) / len(ranks)
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses


def reference_of(
    sizes: Sizes, ranks: Sequence[int], device: str
) -> Callable[[int], list[float]]:
    """The reference of a loop that trains on the batches of these ranks."""
    return lambda count: losses_on_one(sizes, tuple(ranks), device, count)
