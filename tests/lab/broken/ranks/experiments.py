"""On a CPU with two ranks: a sound loop, a wrong one, and ranks that raise, die or hang; a probe."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import Experiment, Instruments, Loop, Schedule

if TYPE_CHECKING:
    import torch


def data_parallel(device: str, rank: int, world: int, size: int, fault: str = "") -> Loop:
    """Rank r has the rows r, r + world, ... of a batch; the loss is the mean of (w x)^2, and w moves down the mean
    gradient of all ranks. Rank 1 has the fault."""
    import torch
    import torch.distributed as dist

    x = torch.arange(1.0, size + 1, device=device)
    mine = x[rank::world]

    def losses() -> Generator[torch.Tensor, None, None]:
        w = torch.ones((), device=device, requires_grad=True)
        for step in itertools.count():
            loss = (w * mine).square().mean()
            loss.backward()
            if rank == 1 and step == 1:
                plant(fault)
            gradient = w.grad
            assert gradient is not None
            dist.all_reduce(gradient)
            with torch.no_grad():
                w -= 1e-3 * gradient / (world if fault != "wrong" else 1)
            w.grad = None
            yield loss.detach()

    def reference(count: int) -> list[float]:
        w, found = 1.0, []
        for _ in range(count):
            found.append((w * x).square().mean().item())
            w -= 1e-3 * 2 * w * x.square().mean().item()
        return found

    return Loop(losses(), reference, tolerance=1e-5)


def plant(fault: str) -> None:
    """A rank's end in the middle of its second iteration."""
    if fault == "raises":
        raise ValueError("the first line\nthe second line")
    if fault == "dies":
        print("the last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hangs":
        time.sleep(1000)


def count_ranks(instruments: Instruments, device: str, rank: int, world: int, size: int) -> dict[str, Any]:
    import torch.distributed as dist

    found: list[Any] = [None] * world
    dist.all_gather_object(found, {"rank": rank, "extra": os.environ.get("EXTRA", "")})
    return {"rank": rank, "found": found}


def _loop(name: str, size: int = 8, **more: Any) -> Experiment:
    def loop(device: str, rank: int, world: int, size: int) -> Loop:
        return data_parallel(device, rank, world, size, fault=name)

    return Experiment(
        chapter="ranks", name=name, label="step", parameters={"size": size}, loop=loop, gpus=2,
        schedule=Schedule(wait=0, warmup=1, active=2), **more
    )  # fmt: skip


EXPERIMENTS = (
    _loop("first", group="pair"),
    _loop("second", size=6, group="pair"),
    _loop("wrong"),
    _loop("raises"),
    _loop("dies"),
    _loop("hangs", time_limit_s=9),
    Experiment(
        chapter="ranks", name="probe", parameters={"size": 1}, probe=count_ranks, gpus=2, environment={"EXTRA": "x"}
    ),
)
