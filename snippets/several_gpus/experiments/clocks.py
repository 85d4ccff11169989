"""Clocks of the probes: all ranks begin together, and the slowest rank's time
counts."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from snippets.lab.experiment import Instruments

Step = Callable[[], object]
BLOCK_US = 10_000.0
"""Of a sample; shorter steps are called several times for it."""
PROFILES = 3
"""Tries: the profiler may drop what runs at the start of its first session."""
ROUNDS = 5
WARM_STEPS = 10
"""Before a profile: large products lower the clock after some steps, and other
ranks have waited while rank 0 computed the reference."""


def slowest(values: Sequence[float], device: str) -> list[float]:
    """The largest of the ranks' values, one by one; every rank calls this."""
    import torch
    import torch.distributed as dist

    numbers = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(numbers, op=dist.ReduceOp.MAX)
    return [float(number) for number in numbers.tolist()]


def times_us(
    steps: Mapping[str, Step], device: str, rounds: int = ROUNDS
) -> dict[str, list[float]]:
    """Microseconds of each step on the slowest rank, in blocks, A B, B A.
    Every rank calls this with steps of the same names."""
    counts = {}
    for name, step in steps.items():
        block_us(step, device, 1)
        (once_us,) = slowest([block_us(step, device, 1)], device)
        counts[name] = max(1, math.ceil(BLOCK_US / once_us))
    samples: dict[str, list[float]] = {name: [] for name in steps}
    for index in range(rounds):
        for name in list(steps)[:: 1 if index % 2 == 0 else -1]:
            us = block_us(steps[name], device, counts[name])
            samples[name].append(us)
    return {
        name: [round(us, 3) for us in slowest(each, device)]
        for name, each in samples.items()
    }


def block_us(step: Step, device: str, count: int) -> float:
    """Microseconds of a step on this rank in one block of `count`: until the
    GPU is done, or until a CPU is."""
    import torch
    import torch.distributed as dist

    if device != "cuda":
        dist.barrier()
        begin = time.perf_counter_ns()
        for _ in range(count):
            step()
        return (time.perf_counter_ns() - begin) / 1e3 / count
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    dist.barrier()
    start.record()
    for _ in range(count):
        step()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / count


def repeated(step: Step, device: str, calls: int) -> Step:
    """A CUDA graph of so many calls, and its replay; on a CPU the calls. A
    collective must have run before, and the graph must be gone before its
    process group is."""
    import torch

    def call() -> None:
        for _ in range(calls):
            step()

    if device != "cuda":
        return call
    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # NCCL's watchdog may ask for events of other streams meanwhile
    own = torch.cuda.Stream()  # graphs of one stream share a workspace
    with torch.cuda.graph(graph, stream=own, capture_error_mode="thread_local"):
        call()
    return functools.partial(_replay, graph, call)


def _replay(graph: Any, call: Step) -> None:
    """Replay a graph; `call` keeps alive what the graph reads."""
    graph.replay()


def each_us(samples: Sequence[float], calls: int) -> list[float]:
    """Microseconds of a call, from samples of so many calls."""
    return [round(us / calls, 3) for us in samples]


def activities_of(
    instruments: Instruments, step: Step, device: str
) -> list[dict[str, Any]]:
    """What one call puts on this rank's GPU: name, blocks (0 of a copy) and
    microseconds of each activity. Empty on a CPU."""
    import torch

    step()
    if device != "cuda":
        return []
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    for _ in range(PROFILES):
        with torch.profiler.profile(activities=activities) as finished:
            step()
            torch.cuda.synchronize()
        found = [
            {
                "name": one.name,
                "blocks": math.prod(one.grid) if one.grid else 0,
                "us": one.duration_us,
            }
            for one in instruments.read_activities(finished)
        ]
        (is_missing,) = slowest([float(not found)], device)
        if not is_missing:
            break
    return found


def stopped(error: Exception) -> dict[str, str]:
    """Why a part has no times: the first line of its error."""
    lines = str(error).splitlines() or [""]
    return {"stopped": f"{type(error).__name__}: {lines[0]}"}


def numbers(text: str) -> list[int]:
    """`1,8,64` -> [1, 8, 64]."""
    return [int(number) for number in text.split(",")]
