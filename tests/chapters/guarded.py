"""Where a kernel writes: the tensors that it makes for its results lie between guards of NaN, which must stay so."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor

GUARD = 512
"""Elements before and after what a kernel writes."""
Case = TypeVar("Case")


def save_written(path: str, cases: Iterable[Case], run: Callable[[Case], object]) -> None:
    """Run the cases, in a process where Triton interprets, and save the output of each, including its guards."""
    buffers: list[Tensor] = []
    new_empty = torch.Tensor.new_empty

    def guarded(like: Tensor, *shape: int, dtype: torch.dtype | None = None, **options: object) -> Tensor:
        if options:  # the interpreter's own copies
            return new_empty(like, *shape, **options)
        buffers.append(torch.full((math.prod(shape) + 2 * GUARD,), math.nan, dtype=dtype or like.dtype))
        return buffers[-1][GUARD:-GUARD].view(shape)

    torch.Tensor.new_empty = guarded
    written = {}
    for case in cases:
        buffers.clear()
        run(case)
        written[str(case)] = list(buffers)
    torch.save(written, path)
