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
    losses: Callable[[int, Tensor], Tensor],
) -> Tensor:
    """Forward and backward of this rank's stage for all micro-batches, each
    (batch, tokens, dim); the first stage reads them, the last computes their
    losses. Returns the mean loss on the last stage, elsewhere 0."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    count, sent = len(batches), []
    inputs = [torch.empty_like(x, requires_grad=rank > 0) for x in batches]
    if rank > 0:
        arriving = [dist.irecv(x.detach(), rank - 1) for x in inputs]
    outputs = []
    for i in range(count):
        if rank > 0:
            arriving[i].wait()
        y = stage(inputs[i] if rank > 0 else batches[i])
        if rank < last:
            sent.append(dist.isend(y.detach(), rank + 1))
        outputs.append(losses(i, y) / count if rank == last else y)

    if rank < last:
        gradients = [torch.empty_like(y) for y in outputs]
        arriving = [dist.irecv(grad, rank + 1) for grad in gradients]
    for i in range(count):
        if rank < last:
            arriving[i].wait()
        outputs[i].backward(gradients[i] if rank < last else None)
        if rank > 0:
            sent.append(dist.isend(inputs[i].grad, rank - 1))
    for each in sent:
        each.wait()
    if rank < last:
        return torch.zeros((), device=batches[0].device)
    return torch.stack([loss.detach() for loss in outputs]).sum()


# --8<-- [end:step]


# --8<-- [start:bubble]
def bubble(stages: int, batches: int) -> float:
    """The share of a step in which a stage has nothing to do: each waits for
    stages - 1 micro-batches of batches + stages - 1."""
    return (stages - 1) / (batches + stages - 1)


# --8<-- [end:bubble]
