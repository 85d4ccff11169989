"""Quantities of every run, by name: `kernels_per_step` from a trace, `interleaved_us` from a point."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import annotation_us, busy_us, count_launches, extent_us, kernel_time_us, overlaps_us
from snippets.lab.experiment import UnknownName, nearest
from snippets.lab.finding.device import KINDS, Run
from snippets.lab.finding.figure import Figure
from snippets.lab.recording.schema import NotTimed

COUNTS: Mapping[str, Callable[[Step], int]] = {
    "kernels_per_step": lambda step: len(step.kernels),
    "memcpys_per_step": lambda step: len(step.memcpys),
    "memsets_per_step": lambda step: len(step.memsets),
    "activities_per_step": lambda step: len(step.activities),
    "gpu_calls_per_step": count_launches,
    "cuda_calls_per_step": lambda step: len(step.calls),
    "ops_per_step": lambda step: sum(not op.is_annotation for op in step.ops),
}
"""Counts per step. `activities` is the sum of `kernels`, `memcpys` and `memsets`."""

TIMES_US: Mapping[str, Callable[[Step], float]] = {
    "kernel_time_us": lambda step: kernel_time_us(step.activities),
    "busy_us": lambda step: busy_us(step.activities),
    "extent_us": lambda step: extent_us(step.activities),
    "overlap_us": lambda step: math.fsum(overlaps_us(step)),
}
"""Times per step, in microseconds; `cpu_us` is that of the annotation with the run's label.

`kernel_time_us` is a sum, in which overlapping kernels count twice. `busy_us` and `extent_us` count each moment once.
"""


def _rate(run: Run, work: int, unit: str) -> Figure:
    """Work divided by the interleaved time."""
    timing = run.timing()
    fast_us, slow_us = timing.spread_us
    rate, low, high = (work / us * 1e6 for us in (timing.median_us, slow_us, fast_us))
    return Figure(rate, unit, (low, high), run.origin)


def _sensor(kind: str, name: str, unit: str) -> Callable[[Run], Figure]:
    """NVML's value while a timing ran, without a spread."""

    def measure(run: Run) -> Figure:
        value: float = getattr(run.timing(kind), name)
        if not value:
            raise NotTimed(f"{run.id} has no {name} of its {kind} timing; make record CHAPTER={run.recording.chapter}")
        return Figure(value, unit, origin=run.origin)

    return measure


OF_POINT: Mapping[str, Callable[[Run], Figure]] = {
    "flops": lambda run: Figure(run.point.flops, "flop", origin=run.origin),
    "bytes": lambda run: Figure(run.point.bytes, "bytes", origin=run.origin),
    "flops_per_s": lambda run: _rate(run, run.point.flops, "flop/s"),
    "bytes_per_s": lambda run: _rate(run, run.point.bytes, "bytes/s"),
    "peak_memory_bytes": lambda run: Figure(run.point.peak_memory_bytes, "bytes", origin=run.origin),
    "relative_error": lambda run: Figure(run.point.relative_error, origin=run.origin),
}

SENSORS: Mapping[str, Callable[[Run], Figure]] = {
    "interleaved_clock_mhz": _sensor("interleaved", "clock_mhz", "MHz"),
    "interleaved_watts": _sensor("interleaved", "watts", "W"),
    "steady_clock_mhz": _sensor("steady", "clock_mhz", "MHz"),
    "steady_watts": _sensor("steady", "watts", "W"),
    "joules": _sensor("steady", "joules", "J"),
}
"""The clock and the power draw during a timing, and the energy of one steady step."""

QUANTITIES = (*COUNTS, *TIMES_US, "cpu_us", *(f"{kind}_us" for kind in KINDS), *SENSORS, *OF_POINT)


def quantity(run: Run, name: str) -> Figure:
    """A quantity of a run. Raises `UnknownName` and the exceptions of reading the run."""
    if name not in QUANTITIES:
        raise UnknownName(f"no quantity {name!r}{nearest(name, QUANTITIES)}")
    if name in OF_POINT:
        return OF_POINT[name](run)
    if name in SENSORS:
        return SENSORS[name](run)
    if name.removesuffix("_us") in KINDS:
        return run.time(name.removesuffix("_us"))
    if run.selector:
        raise UnknownName(f"{run.id}[{run.selector}]: {name} needs a trace, and a point of a sweep has none")
    if name == "cpu_us":
        return run.per_step(lambda step: annotation_us(step, run.label), "us")
    return run.per_step(TIMES_US[name], "us") if name in TIMES_US else run.per_step(COUNTS[name])
