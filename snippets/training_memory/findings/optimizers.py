"""AdamW three ways: its kernels, its time, and the bytes that it moves."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.queries import annotation_us, kernel_time_us
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import Device, Figure, Measure, NotTimed, Run, at_least, between, claim, equals
from snippets.lab.finding.measure import derived, paired_ratio, unpaired_ratio
from snippets.lab.page import show as show
from snippets.lab.recording.ceilings import COPY
from snippets.training_memory.findings.steps import busy_share, in_phase, run_of

OPTIMIZERS: Mapping[str, str] = {"loop": "optimizer_loop", "foreach": "optimizer_foreach", "fused": "autocast"}
"""Heading of a variant -> the name of its experiment."""


def _optimizer_kernels(device: Device, variant: str) -> Figure:
    return run_of(device, variant).per_step(
        lambda step: sum(activity.kind == "kernel" for activity in in_phase(step, "optimizer"))
    )


def loop_kernels(device: Device) -> Figure:
    """Kernels of the optimizer that goes from parameter to parameter."""
    return _optimizer_kernels(device, "optimizer_loop")


def foreach_kernels(device: Device) -> Figure:
    """Kernels of the optimizer that handles all parameters at each of its operations."""
    return _optimizer_kernels(device, "optimizer_foreach")


def fused_kernels(device: Device) -> Figure:
    """Kernels of the fused optimizer."""
    return _optimizer_kernels(device, "autocast")


@claim("TM4", equals(True))
def order_of_optimizers(device: Device) -> Figure:
    """The fused optimizer launches fewer kernels than foreach, and foreach launches fewer kernels than the loop over
    parameters."""
    fused, foreach, loop = fused_kernels(device), foreach_kernels(device), loop_kernels(device)
    return derived(fused.number < foreach.number < loop.number, fused, foreach, loop)


def _optimizer_us(step: Step) -> float:
    return kernel_time_us(in_phase(step, "optimizer"))


@claim("TM5", at_least(2), scope="timing")
def loop_over_fused_gpu(device: Device) -> Figure:
    """The optimizer that loops over parameters keeps the GPU busy at least twice as long as the fused optimizer."""
    loop, fused = (run_of(device, name).per_step(_optimizer_us, "us") for name in ("optimizer_loop", "autocast"))
    return unpaired_ratio(loop, fused)


@claim("TM6", at_least(1.05), scope="timing")
def loop_over_fused(device: Device) -> Figure:
    """A step whose optimizer loops over parameters takes at least 1.05 times as long as a step with the fused
    optimizer."""
    return paired_ratio(run_of(device, "optimizer_loop"), run_of(device, "autocast"), "iteration")


@claim("TM7", at_least(1.05), scope="timing")
def foreach_over_fused(device: Device) -> Figure:
    """A step with the foreach optimizer takes at least 1.05 times as long as a step with the fused optimizer."""
    return paired_ratio(run_of(device, "optimizer_foreach"), run_of(device, "autocast"), "iteration")


@claim("TM27", between(0.95, 1.05), scope="timing")
def foreach_over_loop_gpu(device: Device) -> Figure:
    """The foreach optimizer keeps the GPU busy as long as the optimizer that loops over parameters, within 5 %."""
    runs = (run_of(device, name) for name in ("optimizer_foreach", "optimizer_loop"))
    return unpaired_ratio(*(run.per_step(_optimizer_us, "us") for run in runs))


def _phase_cpu(device: Device, variant: str) -> Figure:
    """The CPU's time in the optimizer's phase, with the profiler."""
    return run_of(device, variant).per_step(lambda step: annotation_us(step, "optimizer"), "us")


def optimizers(device: Device) -> Html:
    """The optimizer's phase, three ways, and the step that it is part of."""
    rows: list[list[Cell]] = []
    for name, variant in OPTIMIZERS.items():
        run = run_of(device, variant)
        figures = (
            _optimizer_kernels(device, variant),
            _phase_cpu(device, variant),
            run.per_step(_optimizer_us, "us"),
            run.time("iteration"),
        )
        rows.append([code(name), *map(figure_cell, figures)])
    head = ["AdamW", "kernels", "CPU time, with the profiler", "GPU time", "time of the whole iteration"]
    return table("Three implementations of AdamW, under autocast", head, rows)


def _numbers(run: Run, *, with_norms: bool = True) -> int:
    """How many numbers the parameters have: three matrices in each layer, and the two vectors of its norm."""
    sizes = {name: int(value) for name, value in run.point.parameters.items()}
    norms = 2 * sizes["dim"] if with_norms else 0
    return sizes["layers"] * (3 * sizes["dim"] * sizes["hidden"] + norms)


def updated_bytes(device: Device) -> Figure:
    """Bytes that AdamW must move for its parameters: gradients read, parameters and moments read and written."""
    run = run_of(device, "autocast")
    return Figure(4 * 7 * _numbers(run), "bytes", origin=run.origin)


def update_rate(device: Device) -> Figure:
    """The rate at which the fused optimizer moves these bytes."""
    us = run_of(device, "autocast").per_step(_optimizer_us, "us")
    return _rate(updated_bytes(device).number, us)


def _rate(moved: float, us: Figure) -> Figure:
    low, high = us.bounds
    rates = (1e6 * moved / high, 1e6 * moved / low) if math.isfinite(low) and low > 0 else None
    return Figure(1e6 * moved / us.number, "bytes/s", rates, us.origin)


def _share_of_copy(device: Device, rate: Figure) -> Figure:
    copy = device["devices/copy"]
    copied = copy.ceiling(COPY).rate
    low, high = (100 * bound / copied for bound in rate.bounds)
    return Figure(100 * rate.number / copied, "%", (low, high), f"{rate.origin}; {copy.origin}")


def loop_squares_share(device: Device) -> Figure:
    """The rate at which the loop's `addcmul_` of a matrix moves its bytes, in percent of a large copy's (page devices).

    It adds a gradient's squares to a second moment: it reads both and writes the moment. Kernels of the norms are too
    short for a rate.
    """
    matrices = _numbers(run_of(device, "optimizer_loop"), with_norms=False)
    return _squares_share(device, "optimizer_loop", "aten::addcmul_", matrices)


def foreach_squares_share(device: Device) -> Figure:
    """The rate at which the foreach optimizer's `addcmul_` moves its bytes, in percent of a large copy's."""
    run = run_of(device, "optimizer_foreach")
    return _squares_share(device, "optimizer_foreach", "aten::_foreach_addcmul_", _numbers(run))


def _squares_share(device: Device, variant: str, operator: str, numbers: int) -> Figure:
    def is_one(activity: GpuActivity) -> bool:
        op = activity.op
        return op is not None and op.name == operator and (variant != "optimizer_loop" or len(op.input_shapes[0]) == 2)

    run = run_of(device, variant)
    us = run.per_step(lambda step: kernel_time_us(filter(is_one, in_phase(step, "optimizer"))), "us")
    if not us.number:
        raise NotTimed(f"{run.id} has no kernel of {operator}")
    return _share_of_copy(device, _rate(4 * 3 * numbers, us))


FIGURES: Mapping[str, Measure] = {
    "foreach_over_loop_cpu": lambda device: unpaired_ratio(
        *(_phase_cpu(device, name) for name in ("optimizer_foreach", "optimizer_loop"))
    ),
    "loop_busy": lambda device: busy_share(device, "optimizer_loop"),
    "update_share": lambda device: _share_of_copy(device, update_rate(device)),
}
