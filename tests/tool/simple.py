"""Traces of a few equal steps, each under a label."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterable, Sequence

from tests.tool import events
from tests.tool.markup import EVIL

Operator = tuple[str, Sequence[Sequence[int]], Sequence[str | tuple[str, float]]]
"""Its name, the shapes of its inputs, and the kernels it launches: names, or (name, microseconds)."""


def trace_json(
    *,
    name: str = "gemm",
    op: str = "aten::mm",
    label: str = "mlp_fwd",
    kernels: Iterable[int] = (2, 2, 2),
    operators: Sequence[Operator] = (),
) -> bytes:
    """A trace of a few steps, each under a label.

    Simple: so many `kernels` in each step, of 10 us each and launched by one op, then a fill; a step takes 100 us, 80
    of them under its label. With `operators`, three equal steps of several:

        trace_json(operators=[("aten::mm", [[64, 32], [32, 8]], ["gemm"]), ("aten::gelu", [[64, 8]], [("gelu", 5.0)])])

    A kernel called `Memcpy ...` or `Memset ...` is a copy or a fill of 64 bytes.
    """
    found: list[events.Event] = []
    if operators:
        for place in range(3):
            found += _step_events(place, label, operators)
    else:
        for place, count in enumerate(kernels):
            found += _simple_step_events(place, label, op, [name] * count, len(found))
    return events.trace_bytes(*found, deviceProperties=[{"id": 0, "name": "NVIDIA Sample"}])


def _simple_step_events(place: int, label: str, op: str, kernels: Sequence[str], before: int) -> list[events.Event]:
    start, external = 1000.0 * place, 10 * (place + 1)
    found = [
        events.step(place + 2, start, 100, external=100 + place),
        events.annotation(label, start + 5, 80),
        events.op(op, start + 10, 60, external=external, dims=[[64, 64], [64, 64]]),
    ]
    for index, name in enumerate(kernels):
        correlation, begin = before + index + 1, start + 20 + 10 * index
        found += [
            events.launch(correlation, begin, name=name if name in EVIL else "cudaLaunchKernel"),
            events.kernel(name, correlation, begin + 50, 10, **{"External id": external}),
        ]
    correlation = before + len(kernels) + 1
    found += [events.launch(correlation, start + 75, name="cudaMemsetAsync")]
    found += [events.memset(correlation, start + 130, 4, 64)]
    return found


def _step_events(place: int, label: str, operators: Sequence[Operator]) -> list[events.Event]:
    """The operators one after the other, each 10 us and 10 more for each launch; the GPU follows 20 us behind."""
    launches = sum(len(kernels) for _, _, kernels in operators)
    cpu_us = 10.0 * (len(operators) + launches)
    gpu_us = sum(_kernel(kernel)[1] for _, _, kernels in operators for kernel in kernels)
    start = place * (cpu_us + gpu_us + 1000)
    external, correlation = 1000 * (place + 1), 10_000 * (place + 1)
    found = [
        events.step(place + 2, start, cpu_us + 20, external=external),
        events.annotation(label, start + 5, cpu_us + 10),
    ]
    begin, free = start + 10, 0.0
    for op, shapes, kernels in operators:
        external += 1
        dims = [list(shape) for shape in shapes]
        types = ["c10::BFloat16" if shape else "Scalar" for shape in dims]
        strides = [_contiguous(shape) for shape in dims]
        duration = 10.0 * (1 + len(kernels))
        found += [events.op(op, begin, duration, external=external, dims=dims, strides=strides, types=types)]
        for index, kernel in enumerate(kernels):
            correlation += 1
            name, kernel_us = _kernel(kernel)
            launch = begin + 5 + 10 * index
            free = max(launch + 20, free)
            found += _activity_events(name, correlation, external, launch, free, kernel_us)
            free += kernel_us
        begin += duration
    return found


def _kernel(kernel: str | tuple[str, float]) -> tuple[str, float]:
    return (kernel, 10.0) if isinstance(kernel, str) else kernel


def _contiguous(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[place + 1 :]) for place in range(len(shape))]


def _activity_events(
    name: str, correlation: int, external: int, launch_us: float, start_us: float, duration_us: float
) -> list[events.Event]:
    if name.startswith("Memcpy"):
        call, activity = "cudaMemcpyAsync", events.memcpy(correlation, start_us, duration_us, 64)
    elif name.startswith("Memset"):
        call, activity = "cudaMemsetAsync", events.memset(correlation, start_us, duration_us, 64)
    else:
        args = {"External id": external}
        call, activity = "cudaLaunchKernel", events.kernel(name, correlation, start_us, duration_us, **args)
    return [events.launch(correlation, launch_us, name=call), activity | {"name": name}]


def gzipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)
