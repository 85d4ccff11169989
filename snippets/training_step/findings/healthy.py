"""The healthy step: its phases, who waits for whom, what the GPU's time is spent on, and memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.html import Cell, Html, code, table
from kinetoscope.trace.events import CpuOp, GpuActivity, Step
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.queries import annotation_us, busy_us
from snippets.lab.charts.bar_charts import stacked_bars
from snippets.lab.finding import Device, Figure, Measure, TraceError, at_least, at_most, between, claim, format_value
from snippets.lab.page import Computation, kernel_name_html, prediction as prediction, show as show
from snippets.lab.recording.ceilings import LARGE_MATMUL
from snippets.training_step.findings.loops import busy_share
from snippets.training_step.findings.pictures import PHASES, phase_of, phase_spans, phases_timeline as phases_timeline

HEALTHY = "training_step/healthy"
STACKS = "training_step/healthy_stacks"
KINDS: Mapping[str, str] = {
    "gemm": "matrix products",
    "gemv": "matrix products",
    "attention": "attention",
    "elementwise": "pointwise",
    "normalization": "norms and sums",
    "reduction": "norms and sums",
    "softmax": "norms and sums",
    "copy": "casts and copies",
}
"""Operation of a kernel -> what it is for; the optimizer's kernels are told by their phase."""
OPTIMIZER = ("clip", "optimizer")
LOOKS = {"matrix products": "gemm", "pointwise": "pointwise", "casts and copies": "copy"}
"""What a purpose looks like; all others look like other kernels."""


def purpose(spans: Sequence[CpuOp], activity: GpuActivity) -> str:
    """The purpose of an activity of a step with these phases."""
    if phase_of(spans, activity) in OPTIMIZER:
        return "clip and optimizer"
    if activity.kind != "kernel":
        return "casts and copies"
    if activity.op is not None and "attention" in activity.op.name:
        return "attention"  # cuDNN's backward has kernels of its own that sum and convert
    return KINDS.get(decode_kernel_name(activity.name).operation, "other")


def gpu_time_us(step: Step) -> dict[str, float]:
    """GPU time of a step by purpose, the longest first."""
    spans, sums = phase_spans(step), dict[str, float]()
    for activity in step.activities:
        name = purpose(spans, activity)
        sums[name] = sums.get(name, 0.0) + activity.duration_us
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def _share(device: Device, name: str) -> Figure:
    """The share of the GPU's time that a purpose takes."""

    def share(step: Step) -> float:
        times = gpu_time_us(step)
        return 100 * times.get(name, 0.0) / math.fsum(times.values())

    return device[HEALTHY].per_step(share, "%")


def product_weights(device: Device) -> Figure:
    """The weights of the model's Linears, from the sizes of the recorded experiment."""
    size = device[HEALTHY].point.parameters
    dim, layers = int(size["dim"]), int(size["layers"])
    return Figure(layers * 12 * dim * dim + dim * int(size["vocab"]), origin="the sizes of the model")


def product_rate(device: Device) -> Figure:
    """The rate of a large product on this GPU, measured with the chapter mlp."""
    return Figure(device["mlp/eager"].ceiling(LARGE_MATMUL).rate, "flop/s", origin=f"mlp/eager, {LARGE_MATMUL}")


def products_floor(device: Device) -> Figure:
    """The time of six FLOPs for each weight and token, at the rate of a large product."""
    size = device[HEALTHY].point.parameters
    flops = 6 * product_weights(device).number * int(size["batch"]) * int(size["seq"])
    return Figure(1e6 * flops / product_rate(device).number, "us", origin="6 FLOPs x weights x tokens")


PRODUCTS = Computation(
    "How long do the matrix products take at the rate of a large product?",
    "training_step.products_floor_us",
    "Six FLOPs for each weight and token, at {training_step.product_rate}.",
    "Multiply weights by tokens by six, and divide by the rate.",
    {"training_step.products_forward_us": "that is the time of forward alone. Backward has twice as many products."},
)


@claim("TS50", at_least(2), scope="timing")
def products_over_next(device: Device) -> Figure:
    """In the healthy step, matrix products take at least twice as much GPU time as the kernels of any other
    purpose."""

    def ratio(step: Step) -> float:
        times = gpu_time_us(step)
        return times.pop("matrix products", 0.0) / max(times.values())

    return device[HEALTHY].per_step(ratio, "x")


@claim("TS51", between(10, 45), scope="timing")
def pointwise_share(device: Device) -> Figure:
    """In the healthy step, pointwise kernels take between 10 and 45 % of the GPU's time."""
    return _share(device, "pointwise")


def pointwise_of_iteration(device: Device) -> Figure:
    """The share of pointwise kernels in a healthy iteration."""
    share, busy = pointwise_share(device), gpu_busy(device)
    bounds = [low_or_high * of / 100 for low_or_high, of in zip(share.bounds, busy.bounds, strict=True)]
    return Figure(share.number * busy.number / 100, "%", (bounds[0], bounds[1]), busy.origin)


@claim("TS52", at_most(10), scope="timing")
def optimizer_share(device: Device) -> Figure:
    """In the healthy step, clipping and the optimizer together take at most a tenth of the GPU's time."""
    return _share(device, "clip and optimizer")


@claim("TS53", at_least(90), scope="timing")
def gpu_busy(device: Device) -> Figure:
    """In the healthy loop, the GPU works for at least 90 % of an iteration."""
    return busy_share(device[HEALTHY])


def by_phase(step: Step) -> dict[str, list[GpuActivity]]:
    """The GPU's work for each phase of a step, in the order of the phases."""
    spans = phase_spans(step)
    found = {name: list[GpuActivity]() for name in (*PHASES, "other")}
    for activity in step.activities:
        found[phase_of(spans, activity)].append(activity)
    return {name: found[name] for name in PHASES}


def peak_memory(device: Device) -> Figure:
    """The peak bytes of an iteration beyond the bytes before."""
    run = device[HEALTHY]
    return Figure(run.point.peak_memory_bytes, "bytes", origin=run.origin)


def opening(device: Device) -> Html:
    """The CPU's time, with the profiler, and the GPU's for each phase of a step."""
    step = device[HEALTHY].step
    groups = {
        "CPU": [(name, annotation_us(step, name)) for name in PHASES],
        "GPU": [(name, busy_us(activities)) for name, activities in by_phase(step).items()],
    }
    caption = "CPU time and GPU time of each phase of one healthy step"
    return stacked_bars(device, groups, caption, axis="time, with the profiler")


def phases(device: Device) -> Html:
    """The phases of a step: what the CPU and the GPU take for each."""
    step = device[HEALTHY].step
    rows: list[list[Cell]] = []
    for name, on_gpu in by_phase(step).items():
        cpu_us = annotation_us(step, name)
        cells = (format_value(cpu_us, "us"), format_value(busy_us(on_gpu), "us"), f"{len(on_gpu):,}")
        rows.append([code(name), *cells])
    head = ["phase", "CPU time, with the profiler", "GPU time", "kernels, copies and fills"]
    return table("The phases of one healthy step", head, rows)


def purposes(device: Device) -> Html:
    """The GPU's time of a step by purpose."""
    parts = list(gpu_time_us(device[HEALTHY].step).items())
    caption = "The GPU's time of one healthy step, by purpose of the kernels"
    return stacked_bars(device, {"one step": parts}, caption, axis="GPU time", kinds=LOOKS)


def owners(device: Device) -> Html:
    """The longest kernels of a step, with the module and the line that launched them."""
    run = device[STACKS]
    facts, spans = Facts(run.trace), phase_spans(run.step)
    longest = sorted(run.step.kernels, key=lambda kernel: -kernel.duration_us)
    rows: list[list[Cell]] = []
    seen: set[str] = set()
    for kernel in longest:
        if kernel.name not in seen and len(rows) < 10:
            seen.add(kernel.name)
            place = facts.place(kernel)
            rows.append(
                [
                    kernel_name_html(kernel.name),
                    code(phase_of(spans, kernel)),
                    place or None,
                    format_value(kernel.duration_us, "us"),
                ]
            )
    head = ["kernel", "phase", "operator, module and line", "GPU time"]
    return table(
        "The ten longest kernels with different names, and the code that launches them",
        head,
        rows,
        text_columns=3,
    )


def memory(device: Device) -> Html:
    """The bytes allocated on the GPU at the end of each phase, and its peak."""
    run = device[STACKS]
    step = run.step
    rows: list[list[Cell]] = []
    for name in PHASES:
        span = step.find_annotation(name)
        if span is None:
            raise TraceError(f"{step.name} has no annotation {name!r}")
        held = [
            event.total_allocated
            for event in run.trace.memory
            if event.device >= 0 and event.total_allocated is not None and span.start_us <= event.at_us < span.end_us
        ]
        cells = (format_value(held[-1], "bytes"), format_value(max(held), "bytes")) if held else (None, None)
        rows.append([code(name), *cells])
    return table(
        "GPU memory allocated in one healthy step", ["phase", "at the end of the phase", "highest in the phase"], rows
    )


FIGURES: Mapping[str, Measure] = {
    "product_weights": product_weights,
    "product_rate": product_rate,
    "products_floor_us": products_floor,
    "products_forward_us": lambda device: Figure(products_floor(device).number / 3, "us", origin="2 FLOPs"),
    "products_share": lambda device: _share(device, "matrix products"),
    "backward_gpu": lambda device: device[HEALTHY].per_step(lambda step: busy_us(by_phase(step)["backward"]), "us"),
    "iteration": lambda device: device[HEALTHY].time("iteration"),
}
