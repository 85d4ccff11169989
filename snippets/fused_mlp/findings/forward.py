"""The whole forward against a user's alternatives."""

import statistics
from collections.abc import Mapping

from kinetoscope.html import Html
from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import op_name
from snippets.fused_mlp.findings.traffic import BF16_BYTES, POINTWISE
from snippets.lab.finding import Device, Figure, Measure, at_least, at_most, claim, equals, format_value, quantity
from snippets.lab.finding.measure import listed, paired_ratio, point_difference, quantity_ratio, unpaired_ratio
from snippets.lab.finding.other_device import H200, measured_on
from snippets.lab.page import (
    Columns,
    figure_cell,
    kernel_table,
    race_bars as race_bars,
    race_table,
    show as show,
    timeline,
)
from snippets.mlp.findings.fused_kernels import launch_of

FORWARDS = {
    "eager": "fused_mlp/eager",
    "compiled": "fused_mlp/compiled",
    "max-autotune": "fused_mlp/max_autotune",
    "reduce-overhead": "fused_mlp/reduce_overhead",
    "Liger": "fused_mlp/liger",
    "our forward": "fused_mlp/fused",
    "our forward, kernelized": "fused_mlp/kernelized",
    "our forward, compiled": "fused_mlp/fused_compiled",
    "our forward, reduce-overhead": "fused_mlp/fused_reduce_overhead",
    "our forward, portable": "fused_mlp/portable",
}

PEAK = "peak_memory_bytes"

THREE = {name: FORWARDS[name] for name in ("eager", "compiled", "our forward")}
"""What the chapter's first figure and its timelines compare."""
FOUR = {name: FORWARDS[name] for name in ("eager", "compiled", "Liger", "our forward")}


def forward_ratio(device: Device, upper: str, lower: str, kind: str = "interleaved") -> Figure:
    """The time of one forward / another's, by their headings."""
    return paired_ratio(device[FORWARDS[upper]], device[FORWARDS[lower]], kind)


@claim("F40", at_most(0.78), scope="timing")
def forward_over_compiled(device: Device) -> Figure:
    """In interleaved timing, our forward takes at most 0.78 of the compiled forward's time."""
    return forward_ratio(device, "our forward", "compiled")


@claim("F59", at_most(0.86), scope="timing")
def forward_over_compiled_steady(device: Device) -> Figure:
    """In steady timing, our forward takes at most 0.86 of the compiled forward's time."""
    return unpaired_ratio(*(device[FORWARDS[name]].time("steady") for name in ("our forward", "compiled")))


@claim("F111", at_most(0.86), scope="timing")
def energy_over_compiled(device: Device) -> Figure:
    """In steady timing, our forward takes at most 0.86 of the compiled forward's energy."""
    return quantity_ratio(device[FORWARDS["our forward"]], device[FORWARDS["compiled"]], "joules")


@claim("F49", at_most(0.78), scope="timing")
def over_max_autotune(device: Device) -> Figure:
    """In interleaved timing, our forward takes at most 0.78 of the time of max-autotune's forward."""
    return forward_ratio(device, "our forward", "max-autotune")


@claim("F41", at_most(0.70), scope="timing")
def forward_over_eager(device: Device) -> Figure:
    """In interleaved timing, our forward takes at most 0.70 of the eager forward's time."""
    return forward_ratio(device, "our forward", "eager")


@claim("F42", at_most(0.75), scope="timing")
def forward_over_liger(device: Device) -> Figure:
    """In interleaved timing, our forward takes at most 0.75 of the time of Liger's forward."""
    return forward_ratio(device, "our forward", "Liger")


@claim("F45", equals("eager 5, compiled 4, Liger 4, our forward 2"), scope="this-gpu")
def kernel_counts(device: Device) -> Figure:
    """For a forward, eager runs five kernels, compiled code and Liger run four kernels each, and our forward runs two
    kernels."""
    return listed({name: quantity(device[forward], "kernels_per_step") for name, forward in FOUR.items()})


@claim("F46", equals(True), scope="this-gpu")
def held_memory(device: Device) -> Figure:
    """At its peak, our forward holds the hidden tensor and the result, and no other tensor."""
    point = device[FORWARDS["our forward"]].point
    tokens, dim, hidden = (int(point.parameters[name]) for name in ("tokens", "dim", "hidden"))
    held = point.peak_memory_bytes
    display = format_value(held, "bytes")
    return Figure(held == BF16_BYTES * tokens * (hidden + dim), display=display, origin="peak memory of a call")


@claim("F47", at_least(1.4), scope="this-gpu")
def least_other_error(device: Device) -> Figure:
    """At the series' shape, the error of every other forward is at least 1.4 times the error of our forward."""
    ours = device[FORWARDS["our forward"]].point.relative_error
    others = (experiment for name, experiment in FORWARDS.items() if not name.startswith("our forward"))
    least = min(device[experiment].point.relative_error for experiment in others)
    return Figure(least / ours, "x", origin="the least error of the other forwards over our forward's")


@claim("F89", at_most(0.95), scope="timing")
def portable_over_compiled(device: Device) -> Figure:
    """In interleaved timing, a forward with the portable kernels takes at most 0.95 of the compiled forward's GPU
    time."""
    return forward_ratio(device, "our forward, portable", "compiled")


@claim("F106", at_most(1.05), scope="timing")
def slowest_process(device: Device) -> Figure:
    """Six processes run our forward, three of them with the packaged forward. In interleaved timing, the slowest of the
    six processes takes at most 5 % longer than the fastest process."""
    names = ("our forward", "our forward, kernelized")
    medians = [statistics.median(part) for name in names for part in device[FORWARDS[name]].timing().parts]
    ratio = max(medians) / min(medians)
    return Figure(ratio, "x", (1.0, ratio), "medians of the processes of fused_mlp/fused and fused_mlp/kernelized")


def second_product(device: Device) -> Figure:
    """Whose kernel computes `down` in our forward: cuBLAS's if an operator of PyTorch launched it."""
    return device[FORWARDS["our forward"]].per_step(
        lambda step: "cuBLAS's" if op_name(step.kernels[-1]) == "aten::mm" else "our own"
    )


def process_medians(device: Device, name: str) -> Figure:
    """A forward's interleaved time in each process."""
    run = device[FORWARDS[name]]
    medians = [statistics.median(samples_us) for samples_us in run.timing().parts]
    return Figure(", ".join(format_value(us, "us") for us in medians), origin=f"{run.origin}, median of each process")


def three_forwards(device: Device) -> Html:
    """Eager, compiled and the package as pictures on one scale."""
    return timeline(device, THREE, "One forward, three ways")


def our_kernels(device: Device) -> Html:
    """The GPU work of our forward."""
    return kernel_table(device, FORWARDS["our forward"], "Our forward on the GPU", work=kernels_work)


def kernels_work(step: Step) -> dict[int, tuple[int, int]]:
    """FLOPs and least bytes of our two kernels by their index in a step, from the shapes of the operator's inputs."""
    work: dict[int, tuple[int, int]] = {}
    for index, activity in enumerate(step.activities):
        if activity.op is None or not activity.op.name.endswith("::forward"):
            continue
        (tokens, dim), (hidden, _), *_ = activity.op.input_shapes
        matmuls = 1 if work else 2  # gate and up, then down
        moved = tokens * dim + matmuls * hidden * dim + tokens * hidden
        work[index] = 2 * matmuls * tokens * hidden * dim, BF16_BYTES * moved
    return work


def pointwise_us(device: Device, heading: str) -> Figure:
    """The time in the trace of the pointwise kernel that Inductor put between the products of a forward."""
    return device[FORWARDS[heading]].per_step(
        lambda step: sum(kernel.duration_us for kernel in step.kernels if kernel.name.startswith(POINTWISE)), "us"
    )


def forwards(device: Device) -> Html:
    """Every variant of the whole forward: each kind of time, clock, energy, memory and error.

    The peak of a replayed graph isn't counted: its tensors are allocated when the graph is recorded.
    """
    more: Columns = {
        "from Python, CPU part": "enqueue_us",
        "kernels": "kernels_per_step",
        "peak memory": lambda run: figure_cell(quantity(run, PEAK)) if run.point.peak_memory_bytes else None,
        "error": lambda run: f"{run.point.relative_error:.1e}",
    }
    return race_table(device, FORWARDS, "The whole forward", more=more)


FIGURES: Mapping[str, Measure] = {
    "saved_memory_bytes": lambda device: point_difference(
        device[FORWARDS["eager"]], device[FORWARDS["our forward"]], PEAK
    ),
    "compiled_speedup": lambda device: forward_ratio(device, "eager", "compiled"),
    "portable_speedup": lambda device: forward_ratio(device, "eager", "our forward, portable"),
    "forward_speedup": lambda device: forward_ratio(device, "eager", "our forward"),
    "over_compiled": lambda device: forward_ratio(device, "compiled", "our forward"),
    "over_compiled_steady": lambda device: forward_ratio(device, "compiled", "our forward", "steady"),
    "h200_overlap_us": measured_on(H200, lambda device: quantity(device[FORWARDS["our forward"]], "overlap_us")),
    "pointwise_compiled_us": lambda device: pointwise_us(device, "compiled"),
    "pointwise_max_autotune_us": lambda device: pointwise_us(device, "max-autotune"),
    "pointwise_launch": lambda device: launch_of(device, FORWARDS["compiled"]),
    "max_autotune_over_compiled": lambda device: forward_ratio(device, "max-autotune", "compiled"),
    "of_each_process": lambda device: process_medians(device, "our forward"),
    "of_each_process_packaged": lambda device: process_medians(device, "our forward, kernelized"),
}
