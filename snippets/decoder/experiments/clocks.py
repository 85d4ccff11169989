"""Clocks of the probes: steps of tens of microseconds to tens of
milliseconds, on the GPU's own time or from Python."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

Step = Callable[[], object]
BLOCK_US = 10_000.0
"""Of a sample; shorter steps are called several times for it."""
ROUNDS = 9


def recorded(step: Step, device: str) -> Step:
    """A CUDA graph of a step, and its replay; on a CPU the step itself.

    What the step refers to lives as long as the replay, which reads it. The
    stream of the recording is the graph's own: graphs of one stream share the
    workspace of cuBLAS, and the first of them to be freed takes it along
    (https://github.com/pytorch/pytorch/issues/193402).
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
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        kept.append(step())

    def replay() -> object:
        graph.replay()
        return kept[0]

    replay.step = step  # type: ignore[attr-defined]
    return replay


def times_us(
    steps: Mapping[str, Step], device: str, rounds: int = ROUNDS
) -> dict[str, list[float]]:
    """Microseconds of each step, in blocks, A B, B A: until the GPU is done,
    or until a CPU is."""
    counts = {}
    for name, step in steps.items():
        block_us(step, device, 1)
        once_us = block_us(step, device, 1)
        counts[name] = max(1, math.ceil(BLOCK_US / once_us))
    samples: dict[str, list[float]] = {name: [] for name in steps}
    for index in range(rounds):
        for name in list(steps)[:: 1 if index % 2 == 0 else -1]:
            us = block_us(steps[name], device, counts[name])
            samples[name].append(round(us, 3))
    return samples


def block_us(step: Step, device: str, count: int) -> float:
    """Microseconds of a step in one block of `count`."""
    import torch

    if device != "cuda":
        begin = time.perf_counter_ns()
        for _ in range(count):
            step()
        return (time.perf_counter_ns() - begin) / 1e3 / count
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(count):
        step()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / count


def kernels_of(instruments: Any, step: Step, device: str) -> list[Any]:
    """What one call puts on the GPU: name, grid and microseconds of each
    activity, and the gap to the one before. Empty on a CPU."""
    import torch

    if device != "cuda":
        return []
    step()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as finished:
        step()
        torch.cuda.synchronize()
    found: list[Any] = []
    end_us = None
    for one in instruments.read_activities(finished):
        gap_us = None if end_us is None else round(one.start_us - end_us, 3)
        end_us = one.start_us + one.duration_us
        found.append(
            {
                "name": one.name,
                "grid": one.grid,
                "us": one.duration_us,
                "gap_us": gap_us,
            }
        )
    return found


def numbers(text: str) -> list[int]:
    """`1,8,64` -> [1, 8, 64]."""
    return [int(number) for number in text.split(",")]


def by_name(kernels: list[Any]) -> dict[str, dict[str, Any]]:
    """Count and microseconds of what `kernels_of` returns, by name."""
    found: dict[str, dict[str, Any]] = {}
    for one in kernels:
        entry = found.setdefault(one["name"], {"count": 0, "us": 0.0})
        entry["count"] += 1
        entry["us"] = round(entry["us"] + one["us"], 3)
    return found


def stopped(error: Exception) -> dict[str, str]:
    """Why a variant has no times: the first line of its error."""
    lines = str(error).splitlines() or [""]
    return {"stopped": f"{type(error).__name__}: {lines[0]}"}
