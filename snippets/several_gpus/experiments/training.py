"""The training loops of data parallel: random weights and batches, and a check
that all ranks keep the same weights.

Rank 0 asks for its input back, rank 1 for the negative of its input, so that
their gradients differ.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import WrongAnswer
from snippets.several_gpus.experiments.clocks import Step, slowest

if TYPE_CHECKING:
    from torch import Tensor

BATCHES = 3
"""Of a rank; the loop takes them in turn."""
LEARNING_RATE = 0.05
CHECKED = 3
"""Steps after which all ranks must have the same weights."""


def batches_of(
    rank: int, width: int, tokens: int, device: str, dtype: Any
) -> list[tuple[Tensor, Tensor]]:
    """The inputs and targets of a rank, (tokens, width) each."""
    import torch

    draw = torch.Generator(device).manual_seed(1 + rank)
    sign = 1 - 2 * (rank % 2)
    inputs = [
        torch.randn(tokens, width, device=device, dtype=dtype, generator=draw)
        for _ in range(BATCHES)
    ]
    return [(x, sign * x) for x in inputs]


def dtype_of(device: str) -> Any:
    """bf16; on a CPU float32, which is faster there."""
    import torch

    return torch.bfloat16 if device == "cuda" else torch.float32


def training(
    device: str, rank: int, rung: Any, width: int, blocks: int, tokens: int
) -> tuple[Any, Generator[Tensor, None, None]]:
    """A model, and the losses of its training loop."""
    import torch

    from snippets.several_gpus.model import random_model
    from snippets.several_gpus.parallel import train

    dtype = dtype_of(device)
    model = random_model(width, blocks, device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    batches = batches_of(rank, width, tokens, device, dtype)
    return model, train(model, rung, optimizer, itertools.cycle(batches))


def checked(
    model: Any, losses: Iterator[Tensor], device: str
) -> Generator[Tensor, None, None]:
    """The losses; after `CHECKED` steps, compare the ranks' weights.

    Raises `WrongAnswer` if they differ.
    """
    for count, loss in enumerate(losses, start=1):
        if count == CHECKED and (apart := weights_apart(model, device)):
            raise WrongAnswer(f"sums of weights differ by {apart:.1e}")
        yield loss


def weights_apart(model: Any, device: str) -> float:
    """How far apart the ranks' sums of all weights are; every rank calls
    this."""
    import torch

    with torch.no_grad():
        sums = [each.double().sum() for each in model.parameters()]
        total = float(torch.stack(sums).sum().item())
    high, minus_low = slowest([total, -total], device)
    return high + minus_low


def stepping(
    device: str, rank: int, rung: Any, width: int, blocks: int, tokens: int
) -> Step:
    """One step of a training loop."""
    _, losses = training(device, rank, rung, width, blocks, tokens)
    return functools.partial(next, losses)
