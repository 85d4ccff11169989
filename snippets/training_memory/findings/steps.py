"""A training step by phase and by optimizer: kernels, launches and GPU time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.queries import annotation_us, kernel_time_us
from snippets.lab.charts.bar_charts import stacked_bars
from snippets.lab.finding import Device, Figure, Measure, Run, at_most, between, claim, equals, format_value
from snippets.lab.finding.measure import percent, unpaired_ratio
from snippets.lab.page import show as show, timing_bars
from snippets.training_step.findings.pictures import phase_of, phase_spans, phases_timeline as phases_timeline

PHASES = ("forward", "loss", "backward", "optimizer")
"""The annotations of a step, in order."""
EAGER: Mapping[str, str] = {
    "float32": "fp32",
    "TF32": "tf32",
    "autocast to bf16": "autocast",
    "bf16 weights": "bfloat16",
}
COMPILED: Mapping[str, str] = {"autocast, compiled": "autocast_compiled", "bf16 weights, compiled": "bfloat16_compiled"}
"""Heading of a variant -> the name of its experiment."""


def run_of(device: Device, variant: str) -> Run:
    """The run of a variant."""
    return device[f"training_memory/{variant}"]


def in_phase(step: Step, phase: str) -> list[GpuActivity]:
    """The GPU work that a phase of a step launched, on any thread."""
    spans = phase_spans(step)
    return [activity for activity in step.activities if phase_of(spans, activity) == phase]


def share_of_gpu_time(run: Run, part: Callable[[Step], Iterable[GpuActivity]]) -> Figure:
    """The share of the GPU's time of a step that a part of its activities takes."""
    return run.per_step(lambda step: 100 * kernel_time_us(part(step)) / kernel_time_us(step.activities), "%")


def is_matmul(activity: GpuActivity) -> bool:
    """Whether an activity is the kernel of a matrix product."""
    return activity.kind == "kernel" and decode_kernel_name(activity.name).operation in ("gemm", "gemv")


def products(step: Step, phase: str) -> int:
    """Matrix products of a phase: operators that launched a kernel of one, however many kernels each took."""
    return len({activity.op for activity in in_phase(step, phase) if is_matmul(activity)})


def opening(device: Device) -> Html:
    """An iteration of each precision, eager and compiled."""
    groups = {
        name: {"iteration": run_of(device, variant).timing("iteration")}
        for name, variant in {**EAGER, **COMPILED}.items()
    }
    return timing_bars(device, groups, "Time of a training step by precision", axis="time of an iteration")


def phase_kernels(device: Device) -> Html:
    """The phases of a step under autocast: what each launches, and its time on both sides; then the same, compiled."""
    step, compiled = (run_of(device, variant).step for variant in ("autocast", "autocast_compiled"))
    whole = kernel_time_us(step.activities)
    rows: list[list[Cell]] = []
    for phase in PHASES:
        work, work_compiled = in_phase(step, phase), in_phase(compiled, phase)
        gpu_us = kernel_time_us(work)
        rows.append(
            [
                code(phase),
                _kernel_count(work),
                f"{products(step, phase):,}",
                format_value(annotation_us(step, phase), "us"),
                format_value(gpu_us, "us"),
                format_value(100 * gpu_us / whole, "%"),
                _kernel_count(work_compiled),
                format_value(kernel_time_us(work_compiled), "us"),
            ]
        )
    head = [
        "phase",
        "kernels",
        "products",
        "CPU time, with the profiler",
        "GPU time",
        "share of GPU time",
        "compiled: kernels",
        "compiled: GPU time",
    ]
    return table("The phases of one step under autocast, eager and compiled", head, rows)


def _kernel_count(work: Sequence[GpuActivity]) -> str:
    return f"{sum(activity.kind == 'kernel' for activity in work):,}"


def phase_times(device: Device) -> Html:
    """The GPU's time by phase, for each precision but float32."""
    variants = {name: variant for name, variant in {**EAGER, **COMPILED}.items() if variant != "fp32"}
    groups = {}
    for name, variant in variants.items():
        step = run_of(device, variant).step
        groups[name] = [(phase, kernel_time_us(in_phase(step, phase))) for phase in PHASES]
    return stacked_bars(device, groups, "The GPU's time of one step, by phase", axis="GPU time")


@claim("TM1", equals(2))
def backward_products(device: Device) -> Figure:
    """Backward computes two matrix products for each matrix product of forward."""
    return run_of(device, "autocast").per_step(lambda step: products(step, "backward") / products(step, "forward"))


def backward_over_forward(device: Device, variant: str) -> Figure:
    """The GPU's time in backward over its time in forward."""

    def ratio(step: Step) -> float:
        return kernel_time_us(in_phase(step, "backward")) / kernel_time_us(in_phase(step, "forward"))

    return run_of(device, variant).per_step(ratio, "x")


@claim("TM2", between(1.8, 2.2), scope="timing")
def backward_in_float32(device: Device) -> Figure:
    """In float32, backward keeps the GPU busy about twice as long as forward."""
    return backward_over_forward(device, "fp32")


@claim("TM3", at_most(10), scope="timing")
def optimizer_is_small(device: Device) -> Figure:
    """The fused optimizer takes at most a tenth of the GPU's time of a step under autocast."""
    return share_of_gpu_time(run_of(device, "autocast"), lambda step: in_phase(step, "optimizer"))


def profiled_cpu(device: Device) -> Figure:
    """The CPU's time for a step under autocast, with the profiler."""
    run = run_of(device, "autocast")
    return run.per_step(lambda step: annotation_us(step, run.label), "us")


def gpu_us(device: Device, variant: str) -> Figure:
    """The GPU's time of a step, in its trace."""
    return run_of(device, variant).per_step(lambda step: kernel_time_us(step.activities), "us")


def busy_share(device: Device, variant: str) -> Figure:
    """The GPU's time of a step in its trace, in percent of an iteration without the profiler.

    The rest is waiting, or a clock that is lower in the timed loop than in the trace.
    """
    return percent(unpaired_ratio(gpu_us(device, variant), run_of(device, variant).time("iteration")))


def missed_without_update(device: Device) -> Figure:
    """How far the first three losses would be off, had no step updated a weight: relative error, in percent."""
    run = device["training_memory/accuracy"]
    first, *rest = run.data["1e-3"]["fp32"]["losses"][:3]
    missed = math.hypot(*(loss - first for loss in rest)) / math.hypot(first, *rest)
    return Figure(100 * missed, "%", origin=f"{run.origin}, float32")


FIGURES: Mapping[str, Measure] = {
    "backward_under_autocast": lambda device: backward_over_forward(device, "autocast"),
    "gpu_time": lambda device: gpu_us(device, "autocast"),
}
