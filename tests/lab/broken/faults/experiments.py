"""On a CPU: one of a pair that answers wrongly, and three that end in other ways."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from snippets.lab.experiment import Experiment, Subject, Work


def work(size: int) -> Work:
    return Work(bytes=6 * size * size, matmuls=((size, size, size),))


def right(device: str, size: int, error: float = 0.0) -> Subject:
    import torch

    return Subject(
        step=lambda x, y: (x @ y) * (1 + error),
        inputs=lambda: (torch.randn(size, size, device=device), torch.randn(size, size, device=device)),
        reference=lambda x, y: x.double() @ y.double(),
        notes={"origin": "/home/alice/models/right.py"},
    )


def wrong(device: str, size: int) -> Subject:
    return right(device, size, error=0.5)


def raises(device: str, size: int) -> Subject:
    print("about to raise")
    raise ValueError("the first line\nthe second line")


def hangs(device: str, size: int) -> Subject:
    time.sleep(600)
    raise AssertionError


def aborts(device: str, size: int) -> Subject:
    print("the last words", file=sys.stderr, flush=True)
    os.abort()


def _profiled(name: str, make: Any, **more: Any) -> Experiment:
    return Experiment(chapter="faults", name=name, label="f", parameters={"size": 16}, make=make, work=work, **more)


EXPERIMENTS = (
    _profiled("wrong", wrong, group="pair"),
    _profiled("right", right, group="pair"),
    _profiled("raises", raises),
    _profiled("hangs", hangs, time_limit_s=9),
    _profiled("aborts", aborts),
)
