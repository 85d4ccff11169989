"""Clocks of the probes: all ranks run the same steps in turns, and the
slowest rank's time counts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

Step = Callable[[], object]
BLOCK_US = 10_000.0
"""Of a sample; shorter steps are called several times for it."""
ROUNDS = 7


def slowest(us: float, device: str) -> float:
    """The largest value of all ranks."""
    import torch
    import torch.distributed as dist

    value = torch.tensor(us, dtype=torch.float64, device=device)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return float(value)


def times_us(
    steps: Mapping[str, Step], device: str, rounds: int = ROUNDS
) -> dict[str, list[float]]:
    """Microseconds of each step on the slowest rank, in blocks, A B, B A: until
    the GPU is done, or until a CPU is."""
    counts = {}
    for name, step in steps.items():
        block_us(step, device, 2)
        once_us = block_us(step, device, 2)
        counts[name] = max(1, math.ceil(BLOCK_US / once_us))
    samples: dict[str, list[float]] = {name: [] for name in steps}
    for index in range(rounds):
        for name in list(steps)[:: 1 if index % 2 == 0 else -1]:
            us = block_us(steps[name], device, counts[name])
            samples[name].append(round(us, 3))
    return samples


def block_us(step: Step, device: str, count: int) -> float:
    """Microseconds of a step on the slowest rank, in one block of `count`
    behind a barrier."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    if device != "cuda":
        begin = time.perf_counter_ns()
        for _ in range(count):
            step()
        return slowest((time.perf_counter_ns() - begin) / 1e3 / count, device)
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        step()
    end.record()
    end.synchronize()
    return slowest(start.elapsed_time(end) * 1e3 / count, device)


def recorded(step: Step, device: str) -> Step:
    """A CUDA graph of a step, collectives included, and its replay; on a CPU
    the step itself.

    Another thread of PyTorch asks the GPU how far NCCL is, so only this
    thread's calls are checked while the graph is recorded.
    """
    import torch

    step()
    if device != "cuda":
        return step
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    kept: list[Any] = []
    with torch.cuda.graph(
        graph,
        stream=torch.cuda.Stream(),
        capture_error_mode="thread_local",
    ):
        kept.append(step())

    def replay() -> object:
        graph.replay()
        return kept[0]

    replay.step = step  # type: ignore[attr-defined]
    return replay


def numbers(text: str) -> list[int]:
    """`1,8,64` -> [1, 8, 64]."""
    return [int(number) for number in text.split(",")]


def stopped(error: Exception) -> dict[str, str]:
    """Why a variant has no times: the first line of its error."""
    lines = str(error).splitlines() or [""]
    return {"stopped": f"{type(error).__name__}: {lines[0]}"}


def relative_error(result: Any, expected: Any) -> float:
    """Of a result, against one in higher precision."""
    expected = expected.double()
    distance = (result.double() - expected).norm() / expected.norm()
    return float(distance)
