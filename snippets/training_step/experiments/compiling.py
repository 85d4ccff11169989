"""Loops that compile or change global settings, kept apart from others, and probes of the compiler."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from logging.handlers import BufferingHandler
from typing import Any

from snippets.lab.experiment import Instruments
from snippets.training_step.probes import iteration_us


def without_caches(
    losses: Generator[Any, None, None],
) -> Generator[Any, None, None]:
    """A loop that compiles with empty caches, without files of earlier processes.

    Pointwise kernels are not tuned: hundreds of launches for each would fill the trace.
    """
    from torch._inductor import config

    settings = {
        "force_disable_caches": True,
        "triton.autotune_pointwise": False,
    }
    with config.patch(settings):
        yield from losses


def lengths(
    instruments: Instruments, device: str, iterations: int, **sizes: int
) -> dict[str, Any]:
    """A loop whose batches vary in length, compiled for each length, for any length, and padded to one length.

    Returns for each: lengths, wall times in microseconds and graphs compiled so far, by iteration, and Dynamo's
    warnings.
    """
    import torch
    from torch._dynamo.utils import counters

    from snippets.training_step import faults
    from snippets.training_step.data import batches_of

    found: dict[str, Any] = {}
    for variant in ("before", "after", "padded"):
        torch._dynamo.reset()
        counters.clear()
        seen: dict[str, list[Any]] = {"length": [], "us": [], "graphs": []}
        losses = without_caches(
            getattr(faults, f"recompile_{variant}")(device, **sizes)
        )
        with warnings_of("torch._dynamo") as lines:
            for inputs, _ in itertools.islice(
                batches_of("recompile", **sizes), iterations
            ):
                begin = time.perf_counter_ns()
                next(losses).item()
                seen["us"].append((time.perf_counter_ns() - begin) / 1e3)
                seen["length"].append(inputs.shape[1])
                seen["graphs"].append(counters["stats"]["unique_graphs"])
        losses.close()
        found[variant] = {**seen, "warnings": lines}
    torch._dynamo.reset()
    return found


def with_own_precision(
    losses: Generator[Any, None, None],
) -> Generator[Any, None, None]:
    """A loop whose precision of float32 products does not affect the loops interleaved with it."""
    import torch

    outside = own = torch.get_float32_matmul_precision()
    with closing(losses):
        while True:
            torch.set_float32_matmul_precision(own)
            try:
                loss = next(losses)
            finally:
                own = torch.get_float32_matmul_precision()
                torch.set_float32_matmul_precision(outside)
            yield loss


def graph_breaks(
    instruments: Instruments, device: str, **sizes: int
) -> dict[str, Any]:
    """A compiled loop that a check breaks in each block, and the same without the check.

    Returns for each: graphs compiled, and Dynamo's reasons for its breaks.
    """
    import torch
    from torch._dynamo.utils import counters

    from snippets.training_step import faults

    found: dict[str, Any] = {}
    for variant in ("before", "after"):
        torch._dynamo.reset()
        counters.clear()
        with closing(
            getattr(faults, f"breaks_{variant}")(device, **sizes)
        ) as losses:
            for loss in itertools.islice(losses, 3):
                loss.item()
        found[variant] = {
            "graphs": counters["stats"]["unique_graphs"],
            "breaks": sorted(counters["graph_break"]),
        }
    torch._dynamo.reset()
    return found


def tuning(
    instruments: Instruments, device: str, iterations: int, **sizes: int
) -> dict[str, Any]:
    """The first iterations of a compiled loop, each in its own profile: in the first, Inductor times the launch
    configurations of its kernels.

    Returns {"steps": for each iteration {"us": wall time, "kernels": launched, "busy_us": their time, "names": {kernel:
    times launched}, the ten most launched}}. On a CPU Inductor tunes nothing.
    """
    import torch
    from torch._inductor import config
    from torch.profiler import ProfilerActivity, profile

    from snippets.training_step import faults

    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (
        device == "cuda"
    )
    torch._dynamo.reset()
    steps = []
    with (
        config.patch({"force_disable_caches": True}),
        closing(faults.tiny_compiled(device, **sizes)) as losses,
    ):
        for _ in range(iterations):
            with profile(activities=activities, acc_events=True) as finished:
                us = iteration_us(losses, 1, device)
            ran = (
                [
                    each
                    for each in instruments.read_activities(finished)
                    if each.grid
                ]
                if device == "cuda"
                else []
            )
            names = Counter(each.name for each in ran)
            steps.append(
                {
                    "us": us,
                    "kernels": len(ran),
                    "busy_us": round(
                        math.fsum(each.duration_us for each in ran), 3
                    ),
                    "names": dict(names.most_common(10)),
                }
            )
    torch._dynamo.reset()
    return {"steps": steps}


@contextmanager
def warnings_of(name: str) -> Iterator[list[str]]:
    """Collect the warnings of a logger instead of printing them; complete when the context ends."""
    logger, handler, lines = (
        logging.getLogger(name),
        BufferingHandler(1000),
        list[str](),
    )
    before = logger.level, logger.propagate, logger.handlers
    logger.setLevel(logging.WARNING)
    logger.propagate, logger.handlers = False, [handler]
    try:
        yield lines
    finally:
        level, logger.propagate, logger.handlers = before
        logger.setLevel(level)
        lines += [record.getMessage() for record in handler.buffer]
