"""Random numbers of each rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

ITEM_BYTES = 2  # of bf16


def random_numbers(device: str, rank: int, count: int) -> Tensor:
    """(count,) in bf16, other numbers on each rank."""
    import torch

    draw = torch.Generator(device).manual_seed(1 + rank)
    dtype = torch.bfloat16
    return torch.randn(count, dtype=dtype, device=device, generator=draw)
