"""The whole forward beside everything else that a user could pick, and beside QuACK's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from snippets.fused_mlp.findings.halves import variants_table
from snippets.fused_mlp.findings.ideas import probe_ratio, probe_time
from snippets.fused_mlp.findings.traffic import BF16_BYTES
from snippets.lab.finding import Device, Figure, Measure, Run, at_least, at_most, between, claim, equals, format_value
from snippets.lab.finding.measure import listed, paired_ratio, point_difference, ratio_of_kinds
from snippets.lab.finding.quantities import quantity
from snippets.lab.html import Cell, Html, table
from snippets.lab.page import figure_cell, kernel_table, timeline
from snippets.lab.page import show as show
from snippets.lab.trace.events import Step

FORWARDS = {
    "eager": "fused_mlp/eager",
    "compiled": "fused_mlp/compiled",
    "max-autotune": "fused_mlp/max_autotune",
    "reduce-overhead": "fused_mlp/reduce_overhead",
    "Liger": "fused_mlp/liger",
    "ours": "fused_mlp/fused",
    "ours, kernelized": "fused_mlp/kernelized",
}


def forward_ratio(device: Device, upper: str, lower: str) -> Figure:
    """The time of one forward over that of another, by their headings."""
    return paired_ratio(device[FORWARDS[upper]], device[FORWARDS[lower]])


@claim("F40", at_most(0.78), scope="timing")
def forward_over_compiled(device: Device) -> Figure:
    """Warm, our forward takes at most 0.78 of the compiled one's time."""
    return forward_ratio(device, "ours", "compiled")


@claim("F49", at_most(0.78), scope="timing")
def over_max_autotune(device: Device) -> Figure:
    """Against max-autotune it takes at most 0.78 as well."""
    return forward_ratio(device, "ours", "max-autotune")


@claim("F41", at_most(0.70), scope="timing")
def forward_over_eager(device: Device) -> Figure:
    """It takes at most 0.70 of eager's time."""
    return forward_ratio(device, "ours", "eager")


@claim("F42", at_most(0.75), scope="timing")
def forward_over_liger(device: Device) -> Figure:
    """It takes at most 0.75 of the time with Liger's layer."""
    return forward_ratio(device, "ours", "Liger")


def over_quack(device: Device, part: str) -> Figure:
    """Ours over QuACK's, from the pairs of their turns."""
    run = device["fused_mlp/quack"]
    probe_time(run, part, "quack")  # raises where QuACK was not installed
    low, middle, high = run.data[f"{part}_ratio"]
    return Figure(middle, "x", (low, high), f"{run.id}, {part}: fused over quack, interleaved")


@claim("F43", between(0.97, 1.03), scope="timing")
def forward_over_quack(device: Device) -> Figure:
    """It takes the time of QuACK's kernel followed by cuBLAS, to within 3 %."""
    return over_quack(device, "forward")


@claim("F44", at_most(1.0), scope="timing")
def half_over_quack(device: Device) -> Figure:
    """Its first half takes at most the time of QuACK's kernel.

    QuACK's kernel is a few percent faster. It shares loads between two multiprocessors and cuts tiles of 128x192, which
    Triton cannot: its tiles are powers of two. What remains to be won is in how long the tensor cores wait.
    """
    return over_quack(device, "gate_up")


@claim("F45", equals("eager 5, compiled 4, Liger 4, ours 2"), scope="this-gpu")
def kernel_counts(device: Device) -> Figure:
    """Eager runs five kernels, the compiled forward and Liger's four, ours two."""
    names = ("eager", "compiled", "Liger", "ours")
    return listed({name: quantity(device[FORWARDS[name]], "kernels_per_step") for name in names})


@claim("F46", equals(True), scope="this-gpu")
def held_memory(device: Device) -> Figure:
    """At its peak our forward holds the hidden tensor and its result, and nothing else."""
    point = device[FORWARDS["ours"]].point
    tokens, dim, hidden = (int(point.parameters[name]) for name in ("tokens", "dim", "hidden"))
    held = point.peak_memory_bytes
    display = format_value(held, "bytes")
    return Figure(held == BF16_BYTES * tokens * (hidden + dim), display=display, origin="peak memory of a call")


@claim("F47", at_least(1.05), scope="this-gpu")
def least_other_error(device: Device) -> Figure:
    """None of the other forwards is as near to float64 as ours."""
    errors = {name: device[experiment].point.relative_error for name, experiment in FORWARDS.items()}
    others = [error for name, error in errors.items() if not name.startswith("ours")]
    return Figure(min(others) / errors["ours"], "x", origin="the least error of the others over ours")


@claim("F48", at_least(0.9), scope="timing")
def cpu_over_gpu(device: Device) -> Figure:
    """From Python the CPU hardly keeps up with our forward: to submit it takes at least nine tenths of the time that
    the GPU takes to run it."""
    return ratio_of_kinds(device[FORWARDS["ours"]], "enqueue")


def second_matmul(device: Device) -> Figure:
    """Whose kernel does the second matmul in our forward; one that an operator of PyTorch launched is cuBLAS's."""

    def owner(step: Step) -> str:
        op = step.kernels[-1].op
        return "cuBLAS's" if op and op.name == "aten::mm" else "ours"

    return device[FORWARDS["ours"]].per_step(owner)


def three_forwards(device: Device) -> Html:
    """Eager, compiled and ours as pictures on one scale."""
    variants = {name: FORWARDS[name] for name in ("eager", "compiled", "ours")}
    return timeline(device, variants, "One forward: eager, compiled and ours")


def our_kernels(device: Device) -> Html:
    """The GPU work of our forward."""
    return kernel_table(device, FORWARDS["ours"], "Our forward on the GPU", work=kernels_work)


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


def forwards(device: Device) -> Html:
    """Every variant of the whole forward: kernels, times, memory, error."""
    eager = device[FORWARDS["eager"]]
    columns: Mapping[str, Callable[[Run], Cell]] = {
        "kernels": lambda run: quantity(run, "kernels_per_step").text,
        "GPU time, warm": lambda run: figure_cell(run.time()),
        "eager's over it": lambda run: None if run == eager else figure_cell(paired_ratio(eager, run)),
        "from Python": lambda run: run.time("from_python").text,
        "CPU alone": lambda run: run.time("enqueue").text,
        "peak memory": lambda run: quantity(run, "peak_memory_bytes").text,
        "error": lambda run: f"{run.point.relative_error:.1e}",
    }
    return variants_table(device, FORWARDS, "The whole forward, timed in turns", columns)


def beside_quack(device: Device) -> Html:
    """Ours beside QuACK, in turns, in a session of their own."""
    run = device["fused_mlp/quack"]
    version = run.data.get("version", "")
    headings = {"quack": f"QuACK {version}", "fused": "ours", "bare": "cuBLAS, bare product", "eager": "eager"}
    rows: list[Sequence[Cell]] = []
    for part, half in (("gate_up", "first half"), ("forward", "forward")):
        for name in run.data.get(part, ("quack",)):
            time, over = probe_time(run, part, name), probe_ratio(run, part, name, "quack")
            rows.append([half, headings[name], figure_cell(time), f"{over.number:.3f}x"])
    caption = "Beside QuACK, whose forward is its kernel and cuBLAS: timed in turns, in a session of their own"
    return table(caption, ["", "variant", "median", "over QuACK"], rows, text_columns=2)


FIGURES: Mapping[str, Measure] = {
    "second_product": second_matmul,
    "forward_speedup": lambda device: forward_ratio(device, "eager", "ours"),
    "over_compiled": lambda device: forward_ratio(device, "compiled", "ours"),
    "over_liger": lambda device: forward_ratio(device, "Liger", "ours"),
    "saved_memory_bytes": lambda device: point_difference(
        device[FORWARDS["eager"]], device[FORWARDS["ours"]], "peak_memory_bytes", "bytes"
    ),
    "cpu_over_gpu": cpu_over_gpu,
}
