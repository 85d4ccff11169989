"""What the ranks of an experiment agree on, over gloo: the CPU waits there, and no kernel spins on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This rank among all ranks of an experiment; all of them call the same methods in the same order."""

    rank: int = 0
    world: int = 1
    group: dist.ProcessGroup | None = None
    """The group of all ranks with the backend gloo; None for one rank."""

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes and reports."""
        return self.rank == 0

    @property
    def arguments(self) -> dict[str, int]:
        """What a maker gets besides its parameters: rank and number of ranks; nothing of an experiment on one GPU."""
        return {"rank": self.rank, "world": self.world} if self.world > 1 else {}

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.world > 1:
            dist.all_reduce(torch.zeros(1), group=self.group)  # dist.barrier would use the GPU of the default group

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, in their order."""
        if self.world == 1:
            return [value]
        found: list[T | None] = [None] * self.world
        dist.all_gather_object(found, value, group=self.group)
        return found  # type: ignore[return-value]

    def largest(self, value: float) -> float:
        """The largest of the ranks' values."""
        return max(self.gather(value))

    def is_any(self, flag: bool) -> bool:
        """Whether a rank has the flag."""
        return any(self.gather(flag))

    def means(self, values: Sequence[float]) -> list[float]:
        """The mean of each value over the ranks."""
        return [fmean(each) for each in zip(*self.gather(list(values)), strict=True)]


ALONE = Ranks()


def meet(rank: int, world: int) -> Ranks:
    """Join the gloo group of all ranks; the default group exists."""
    return Ranks(rank, world, dist.new_group(backend="gloo"))
