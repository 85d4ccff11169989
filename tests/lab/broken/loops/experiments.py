"""On a CPU: two loops that count down, one whose losses are wrong, one that is none."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from typing import Any

from snippets.lab.experiment import Experiment, Loop, Schedule

STOPPED: list[str] = []
"""Names of the loops that were stopped, in order."""


def count_down(device: str, size: int, name: str = "", error: float = 0.0, tolerance: float = 1e-2) -> Loop:
    import torch

    def losses() -> Generator[torch.Tensor, None, None]:
        try:
            for step in itertools.count():
                yield torch.full((), size / (step + 1) * (1 + error), device=device)
        finally:
            STOPPED.append(name)

    return Loop(losses(), lambda count: [size / (step + 1) for step in range(count)], tolerance)


def no_loop(device: str, size: int) -> Any:
    return size


def _loop(name: str, loop: Any, **more: Any) -> Experiment:
    return Experiment(chapter="loops", name=name, label="step", parameters={"size": 8}, loop=loop, **more)


EXPERIMENTS = (
    _loop("first", count_down, group="pair"),
    _loop("second", count_down, group="pair", schedule=Schedule(wait=0, warmup=1, active=2)),
    _loop("wrong", lambda device, size: count_down(device, size, error=0.5)),
    _loop("none", no_loop),
    _loop("cold", count_down, first_steps=0, schedule=Schedule(wait=1, warmup=1, active=2)),
)
