"""Steps that go wrong, and a right one."""

from __future__ import annotations

import os
import sys
import time

from snippets.lab.experiment import Subject, Work


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
