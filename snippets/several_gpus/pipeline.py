"""A pipeline: each GPU holds some of the blocks, and micro-batches pass
through the GPUs one after the other.

All forwards come first, then all backwards (GPipe). Hidden states go to the
next stage, their gradients come back.
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn


# --8<-- [start:step]
def step(
    stage: nn.Module,
    batches: Sequence[Tensor],
    loss_of: Callable[[int, Tensor], Tensor],
) -> Tensor:
    """Forward and backward of this rank's stage for all micro-batches, each
    (batch, tokens, dim). The first stage reads them, the last computes their
    losses. The mean loss on the last stage; elsewhere 0."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    inputs, outputs = [], []
    sent: list = []
    for index, x in enumerate(batches):
        if rank > 0:
            x = torch.empty_like(x)
            dist.recv(x, rank - 1)  # the GPU waits, not the CPU
            x.requires_grad_()
        y = stage(x)
        if rank == last:
            y = loss_of(index, y) / len(batches)
        else:
            sent.append(dist.isend(y.detach(), rank + 1))
        inputs.append(x)
        outputs.append(y)

    for x, y in zip(inputs, outputs, strict=True):
        grad = None
        if rank < last:
            grad = torch.empty_like(y)
            dist.recv(grad, rank + 1)
        y.backward(grad)
        if rank > 0:
            assert x.grad is not None
            sent.append(dist.isend(x.grad, rank - 1))
    for each in sent:
        each.wait()
    if rank < last:
        return torch.zeros((), device=batches[0].device)
    return torch.stack([loss.detach() for loss in outputs]).sum()


# --8<-- [end:step]


# --8<-- [start:bubble]
def bubble(stages: int, batches: int) -> float:
    """The share of a step in which a stage has nothing to do: it waits for
    stages - 1 micro-batches of batches + stages - 1."""
    return (stages - 1) / (batches + stages - 1)


# --8<-- [end:bubble]
