"""Where a kernel writes: the tensors that it makes for its results lie between guards of NaN, which must stay so."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

GUARD = 1024
"""Elements before and after what a kernel writes."""
Case = TypeVar("Case")


def guarding(buffers: list[Tensor]) -> Callable[..., Tensor]:
    """A `Tensor.new_empty` whose results lie inside buffers filled with NaN, which it adds to the list."""
    new_empty = torch.Tensor.new_empty

    def guarded(like: Tensor, *sizes: int, dtype: torch.dtype | None = None, **options: object) -> Tensor:
        if options:  # the interpreter's own copies
            return new_empty(like, *sizes, **options)
        shape = sizes if isinstance(sizes[0], int) else sizes[0]
        size = math.prod(shape) + 2 * GUARD
        buffers.append(torch.full((size,), math.nan, dtype=dtype or like.dtype, device=like.device))
        return buffers[-1][GUARD:-GUARD].view(shape)

    return guarded


def check_guards(buffers: Sequence[Tensor], results: int | None = None) -> None:
    """So many results lie between guards, none of which was written."""
    assert len(buffers) == (results or len(buffers)) > 0
    for buffer in buffers:
        assert bool(torch.cat([buffer[:GUARD], buffer[-GUARD:]]).isnan().all())


def check_written(buffers: Sequence[Tensor], results: int | None = None) -> None:
    """Every element is written, and nothing beside the results."""
    check_guards(buffers, results)
    assert not any(bool(buffer[GUARD:-GUARD].isnan().any()) for buffer in buffers)


def save_written(path: str, cases: Iterable[Case], run: Callable[[Case], object]) -> None:
    """Run the cases, in a process where Triton interprets, and save the output of each, including its guards."""
    buffers: list[Tensor] = []
    torch.Tensor.new_empty = guarding(buffers)
    written = {}
    for case in cases:
        buffers.clear()
        run(case)
        written[str(case)] = list(buffers)
    torch.save(written, path)
