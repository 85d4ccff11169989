"""Small steps whose traces have rows that people ask about."""

import torch
from torch import Tensor, nn


# --8<-- [start:train]
def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor
) -> Tensor:
    """One training step: forward, backward, update."""
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


# --8<-- [end:train]


# --8<-- [start:two_streams]
def two_streams(x: Tensor, side: torch.cuda.Stream) -> Tensor:
    """Two running sums at the same time: neither fills the GPU."""
    main = torch.cuda.current_stream()
    side.wait_stream(main)
    left = x.cumsum(1)
    with torch.cuda.stream(side):
        right = x.cumsum(1)
        right.record_stream(main)
    main.wait_stream(side)
    return left + right


# --8<-- [end:two_streams]


# --8<-- [start:full_queue]
def full_queue(a: Tensor, x: Tensor, launches: int) -> Tensor:
    """Two long products, and many short kernels that have to wait for them."""
    product = a @ a @ a
    for _ in range(launches):
        x = x + 1
    return x + 0 * product[0, 0]


# --8<-- [end:full_queue]


# --8<-- [start:item]
def item(x: Tensor) -> Tensor:
    """A sum that the CPU reads."""
    total = x.sum()
    if total.item() < 0:
        total = -total
    return total


# --8<-- [end:item]


# --8<-- [start:copies]
def copies(pageable: Tensor, pinned: Tensor, x: Tensor) -> Tensor:
    """Five copies, each an `aten::copy_`."""
    from_pageable = pageable.to(x.device)
    from_pinned = pinned.to(x.device, non_blocking=True)
    another_type = x.to(torch.float32)
    another_layout = x.t().contiguous()
    same = x.clone()
    return from_pageable + from_pinned + another_type + another_layout + same


# --8<-- [end:copies]
