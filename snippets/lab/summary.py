"""A trace in one screen: `python -m snippets.lab summary TRACE [--json]`."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from operator import attrgetter
from statistics import fmean, median_low

import msgspec
from msgspec import Struct

from snippets.lab.trace import (
    GpuActivity,
    Trace,
    Triple,
    busy_us,
    idle_us,
    kernel_time_us,
    read,
    require_kernels,
    require_steps,
    steps_agree,
)

_COLUMNS = 100
_NUMBER_COLUMNS = 32  # calls, total and mean, with the gaps between
_OP_COLUMNS = 24


class KernelSummary(Struct, frozen=True):
    """The launches, over all active steps, of one kernel with one shape."""

    name: str
    calls: int
    total_us: float
    mean_us: float
    op: str | None  # the one that launched it most often
    grid: Triple | None
    block: Triple | None
    registers: int | None
    shared_memory_bytes: int | None


class Summary(Struct, frozen=True):
    """Counts are those of a step (the low median where steps differ), times the mean over the active steps."""

    device: str | None
    steps: int
    steps_agree: bool
    kernels_per_step: int
    memcpy_per_step: int
    memset_per_step: int
    launches_per_step: int  # the calls that put work on the GPU, so not the queries and waits
    kernel_time_us_per_step: float
    gpu_busy_us_per_step: float
    gpu_idle_us_per_step: float
    unattributed: int  # GPU activities of no step
    kernels: tuple[KernelSummary, ...]


def summarise(trace: Trace) -> Summary:
    """The whole summary; raises TraceError when there is no active step or no kernel to summarise."""
    require_steps(trace)
    require_kernels(trace)
    steps = trace.steps
    kinds = [Counter(map(attrgetter("kind"), step.activities)) for step in steps]
    return Summary(
        device=trace.device,
        steps=len(steps),
        steps_agree=steps_agree(trace),
        kernels_per_step=median_low(kind["kernel"] for kind in kinds),
        memcpy_per_step=median_low(kind["memcpy"] for kind in kinds),
        memset_per_step=median_low(kind["memset"] for kind in kinds),
        launches_per_step=median_low(_working_launches(trace, step.activities) for step in steps),
        kernel_time_us_per_step=round(fmean(kernel_time_us(step.activities) for step in steps), 3),
        gpu_busy_us_per_step=round(fmean(busy_us(step.activities) for step in steps), 3),
        gpu_idle_us_per_step=round(fmean(idle_us(step.activities) for step in steps), 3),
        unattributed=len(trace.unattributed),
        kernels=_kernels(trace),
    )


def _working_launches(trace: Trace, activities: tuple[GpuActivity, ...]) -> int:
    return len({activity.correlation for activity in activities if trace.launch_of(activity) is not None})


def _kernels(trace: Trace) -> tuple[KernelSummary, ...]:
    groups: dict[tuple[object, ...], list[GpuActivity]] = defaultdict(list)
    for step in trace.steps:
        for kernel in step.kernels:
            groups[_shape(kernel)].append(kernel)
    return tuple(sorted((_kernel(trace, calls) for calls in groups.values()), key=_order))


def _kernel(trace: Trace, calls: list[GpuActivity]) -> KernelSummary:
    ops = Counter(None if op is None else op.name for op in map(trace.op_of, calls))
    total_us = kernel_time_us(calls)
    first = calls[0]
    return KernelSummary(
        name=first.name,
        calls=len(calls),
        total_us=total_us,
        mean_us=round(total_us / len(calls), 3),
        op=min(ops, key=lambda name: (-ops[name], name or "")),
        grid=first.grid,
        block=first.block,
        registers=first.registers,
        shared_memory_bytes=first.shared_memory_bytes,
    )


_shape = attrgetter("name", "grid", "block", "registers", "shared_memory_bytes")


def _order(kernel: KernelSummary) -> tuple[float, str, str]:
    return -kernel.total_us, kernel.name, repr(_shape(kernel))


def as_json(summary: Summary) -> str:
    """JSON in plain ASCII, so that no name can steer a terminal."""
    return __import__("json").dumps(msgspec.to_builtins(summary), indent=2)


def main(path: str, json: bool) -> int:
    summary = summarise(read(path))
    print(as_json(summary) if json else "")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], True))
