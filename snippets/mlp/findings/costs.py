"""What the kernels cost beside their time: launches, memory, the CPU's time, and compilations for new shapes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from snippets.lab.finding import Device, Figure, Measure, NotRecorded, at_least, between, claim, equals, matches
from snippets.lab.finding.figure import format_value
from snippets.lab.finding.measure import paired_ratio, smallest, unpaired_ratio
from snippets.lab.html import Cell, Html, table
from snippets.lab.page import show as show
from snippets.lab.page import timing_bars
from snippets.lab.recording.schema import Timing
from snippets.lab.trace.events import Step
from snippets.mlp.findings.steps import (
    BF16_BYTES,
    ONE_SEQUENCE,
    ONE_TOKEN,
    SWEEPS,
    VARIANTS,
    blocks_and_threads,
    gemm_kernels,
    gemms,
    hidden_elements,
    matmul_shapes,
    pointwise_kernel,
    pointwise_us,
)

MATMULS = ("gate", "up", "down")


def in_trace_and_sustained(device: Device) -> dict[str, tuple[Timing, Timing]]:
    """Eager's three matmuls, by name and shape: time in the trace, and bare for long. Raises `NotTimed`."""
    run, times = device["mlp/eager"], {}
    for index, shape in enumerate(matmul_shapes(run.step)):
        text = "x".join(map(str, shape))
        in_trace = run.step_timing(lambda step, index=index: gemms(step)[index].duration_us)
        times[f"{MATMULS[index]}, {text}"] = in_trace, run.ceiling(f"matmul {text}").timing
    return times


def compilations(device: Device, mode: str) -> list[int]:
    """Compilations so far after each batch size of `new_shapes`, in one mode."""
    data = device["mlp/new_shapes"].data
    if mode not in data:
        raise NotRecorded(f"mlp/new_shapes has no {mode!r}; make record CHAPTER=mlp")
    return [int(count) for count in data[mode]["compiled"]]


def recompiled(device: Device, mode: str) -> str:
    """`1 of 3`: how many changes of the batch size compiled something."""
    counts = compilations(device, mode)
    return f"{sum(b > a for a, b in itertools.pairwise(counts))} of {len(counts) - 1}"


def are_two_kinds(figure: Figure) -> bool:
    """Whether gate and up run one kernel and down another."""
    gate, up, down = str(figure.value).split(", ")
    return gate == up != down


@claim("O-P1", are_two_kinds, scope="this-gpu")
def two_kinds(device: Device) -> Figure:
    """gate and up, two equal products, run one kernel; down runs another."""
    return gemm_kernels(device["mlp/eager"])


@claim("O-P2", matches(r"cuLaunchKernelEx, (\d+) blocks, \1 multiprocessors"), scope="this-gpu")
def blocks_of_gemms(device: Device) -> Figure:
    """Every GEMM is put on the GPU by cuLaunchKernelEx, with as many blocks as the GPU has multiprocessors."""
    count = device["mlp/eager"].environment.multiprocessors

    def launches(step: Step) -> str:
        calls = {kernel.launch.name for kernel in gemms(step) if kernel.launch}
        blocks = {blocks_and_threads(kernel)[0] for kernel in gemms(step)}
        return f"{', '.join(sorted(calls))}, {', '.join(map(str, sorted(blocks)))} blocks, {count} multiprocessors"

    return device["mlp/eager"].per_step(launches)


@claim("O-P3", equals("gate 4 bytes, up 4 bytes"), scope="this-gpu")
def memsets(device: Device) -> Figure:
    """In every variant gate and up each bring along a memset of four bytes, and down brings none."""

    def fills(step: Step) -> str:
        matmuls = {kernel.op: name for kernel, name in zip(gemms(step), MATMULS, strict=True)}
        owners = [(matmuls.get(fill.op, fill.op.name) if fill.op else "?", fill) for fill in step.memsets]
        return ", ".join(f"{name} {fill.moved_bytes} bytes" for name, fill in owners) or "none"

    figures = [device[experiment].per_step(fills) for experiment in VARIANTS.values()]
    values = dict.fromkeys(str(figure.value) for figure in figures)
    listed = values if len(values) == 1 else [str(figure.value) for figure in figures]
    return Figure("; ".join(listed), conclusive=all(figure.conclusive for figure in figures))


@claim("O-P4", lambda figure: figure.number > 1.02, scope="timing")
def sustained_over_trace(device: Device) -> Figure:
    """In the short trace each GEMM is faster than the same product, bare but timed for long."""
    ratios = [long.median_us / short.median_us for short, long in in_trace_and_sustained(device).values()]
    return Figure(min(ratios), "x", (min(ratios), max(ratios)))


@claim("O-P5", between(0.85, 1.15), scope="timing")
def fused_over_mul(device: Device) -> Figure:
    """The fused kernel takes about as long as eager's multiplication alone: GELU comes free."""
    return unpaired_ratio(pointwise_us(device["mlp/compiled"]), pointwise_us(device["mlp/eager"], 1))


@claim("O-P6", at_least(1))
def saved_memory(device: Device) -> Figure:
    """The compiled forward peaks lower than eager by at least one tensor of the hidden size."""
    eager, fused = (device[name].point.peak_memory_bytes for name in ("mlp/eager", "mlp/compiled"))
    hidden = BF16_BYTES * hidden_elements(device["mlp/eager"].step)
    return Figure((eager - fused) / hidden, display=f"{format_value(eager - fused, 'bytes')} less")


@claim("O-P7", equals("8192 blocks of 256 threads for 8192 rows of 3072"))
def liger_launch(device: Device) -> Figure:
    """Liger's launch follows from the shape alone: a block for each row, its threads from the number of columns."""

    def launch(step: Step) -> str:
        (blocks, threads), (rows, _, columns) = blocks_and_threads(pointwise_kernel(step)), matmul_shapes(step)[0]
        return f"{blocks} blocks of {threads} threads for {rows} rows of {columns}"

    return device["mlp/liger"].per_step(launch)


@claim("O-P8", at_least(1.2), scope="timing")
def liger_on_the_cpu(device: Device) -> Figure:
    """Free of Dynamo is not free of overhead: at one token and at one sequence a Liger call keeps the CPU busy at
    least a fifth longer than an eager one.
    """
    eager, liger = SWEEPS["eager"], SWEEPS["Liger"]
    return smallest(
        *(paired_ratio(device[liger + at], device[eager + at], "enqueue") for at in (ONE_TOKEN, ONE_SEQUENCE))
    )


@claim("O-P9", equals("static: 3 of 3, automatic: 1 of 3"))
def static_or_automatic(device: Device) -> Figure:
    """With dynamic=False every new batch size compiles; by default only the first new one does."""
    return Figure(", ".join(f"{mode}: {recompiled(device, mode)}" for mode in ("static", "automatic")))


@claim("O-P10", at_least(20), scope="timing")
def cost_of_compiling(device: Device) -> Figure:
    """A call that compiles takes at least twenty times as long as one that does not."""
    compiling: list[float] = []
    others: list[float] = []
    for mode in ("static", "automatic"):
        changes = itertools.pairwise([0, *compilations(device, mode)])
        calls_ms = map(float, device["mlp/new_shapes"].data[mode]["first_call_ms"])
        for (before, after), ms in zip(changes, calls_ms, strict=True):
            (compiling if after > before else others).append(ms)
    if not others:
        return Figure(0.0, "x", display="every call compiled", conclusive=False)
    return Figure(min(compiling) / max(others), "x")


def by_cpu(device: Device) -> Figure:
    """The variants, from the one that keeps the CPU busy for the shortest time."""
    busy = {name: device[experiment].timings.enqueue.median_us for name, experiment in VARIANTS.items()}
    return Figure(", ".join(sorted(busy, key=busy.__getitem__)), origin="enqueue, interleaved")


FIGURES: Mapping[str, Measure] = {
    "by_cpu": by_cpu,
    "automatic_compilations": lambda device: Figure(compilations(device, "automatic")[-1], origin="mlp/new_shapes"),
}


def gemm_times(device: Device) -> Html:
    """The three GEMMs of eager: time in the trace, and of the same matmul bare and sustained."""
    times = in_trace_and_sustained(device)
    groups = {matmul: {"trace": short, "sustained": long} for matmul, (short, long) in times.items()}
    caption = "The three GEMMs in the trace, and the same products bare and sustained"
    return timing_bars(device, groups, caption, axis="time of one product, M x K x N")


def new_shapes(device: Device) -> Html:
    """Compilations so far and time of the first call, for four batch sizes in turn."""
    data, titles = device["mlp/new_shapes"].data, {"static": "dynamic=False", "automatic": "default", "liger": "Liger"}
    modes = [mode for mode in titles if mode in data]
    rows: list[Sequence[Cell]] = []
    for index, batch in enumerate(data["batches"]):
        calls = ((data[mode]["compiled"][index], data[mode]["first_call_ms"][index]) for mode in modes)
        rows.append([batch, *itertools.chain(*((count, format_value(1e3 * ms, "us")) for count, ms in calls))])
    head = ["batch", *itertools.chain(*((titles[mode], "first call") for mode in modes))]
    return table("Four batch sizes in turn: compilations so far, and how long the first call took", head, rows)
