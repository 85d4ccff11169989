"""What the kernels cost beside their time: launches, memory, the CPU's time, and compilations for new shapes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from snippets.lab.finding import Device, Figure, Measure, NotRecorded, at_least, between, claim, equals, matches
from snippets.lab.finding.device import timing_of_samples
from snippets.lab.finding.figure import format_value
from snippets.lab.finding.measure import derived, paired_ratio, smallest, unpaired_ratio
from snippets.lab.html import Cell, Html, table
from snippets.lab.page import show as show
from snippets.lab.page import timing_bars
from snippets.lab.recording.schema import Timing
from snippets.lab.trace.events import Step
from snippets.mlp.findings.eager import gemm_kernels, pointwise_us
from snippets.mlp.findings.steps import VARIANTS, gate_bytes, gemms, launch_size, matmul_shapes, pointwise

MATMULS = ("gate", "up", "down")


def trace_and_sustained(device: Device) -> dict[str, dict[str, Timing]]:
    """Eager's three matmuls, by name and shape: time in the trace, and of the bare one for long. Raises `NotTimed`."""
    run, times = device["mlp/eager"], {}
    for index, shape in enumerate("x".join(map(str, sizes)) for sizes in matmul_shapes(run.step)):
        in_trace = timing_of_samples([gemms(step)[index].duration_us for step in run.steps])
        times[f"{MATMULS[index]}, {shape}"] = {"trace": in_trace, "sustained": run.ceiling(f"matmul {shape}").timing}
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


@claim("O-P1", matches(r"([^,]+), \1, (?!\1$)[^,]+"), scope="this-gpu")
def two_kinds(device: Device) -> Figure:
    """gate and up, two equal products, run one kernel; down runs another."""
    return gemm_kernels(device["mlp/eager"])


@claim("O-P2", matches(r"cuLaunchKernelEx, (\d+) blocks, \1 multiprocessors"), scope="this-gpu")
def blocks_of_gemms(device: Device) -> Figure:
    """Every GEMM is put on the GPU by cuLaunchKernelEx, with as many blocks as the GPU has multiprocessors."""
    count = device["mlp/eager"].environment.multiprocessors

    def launches(step: Step) -> str:
        calls = {kernel.launch.name for kernel in gemms(step) if kernel.launch}
        blocks = {launch_size(kernel)[0] for kernel in gemms(step)}
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
    values = [str(figure.value) for figure in figures]
    return derived("; ".join(values if len(set(values)) > 1 else values[:1]), *figures)


@claim("O-P4", lambda figure: figure.number > 1.02, scope="timing")
def sustained_over_trace(device: Device) -> Figure:
    """In the short trace each GEMM is faster than the same product, bare but timed for long."""
    ratios = [pair["sustained"].median_us / pair["trace"].median_us for pair in trace_and_sustained(device).values()]
    return Figure(min(ratios), "x", (min(ratios), max(ratios)))


@claim("O-P5", between(0.85, 1.15), scope="timing")
def fused_over_mul(device: Device) -> Figure:
    """The fused kernel takes about as long as eager's multiplication alone: GELU comes free."""
    return unpaired_ratio(pointwise_us(device["mlp/compiled"]), pointwise_us(device["mlp/eager"], 1))


@claim("O-P6", at_least(1))
def saved_memory(device: Device) -> Figure:
    """The compiled forward peaks lower than eager by at least one tensor of the hidden size."""
    eager, fused = (device[name].point.peak_memory_bytes for name in ("mlp/eager", "mlp/compiled"))
    return Figure(
        (eager - fused) / gate_bytes(device["mlp/eager"].step), display=f"{format_value(eager - fused, 'bytes')} less"
    )


@claim("O-P7", equals("8192 blocks of 256 threads for 8192 rows of 3072"))
def liger_launch(device: Device) -> Figure:
    """Liger's launch follows from the shape alone: a block for each row, its threads from the number of columns."""

    def launch(step: Step) -> str:
        (blocks, threads), (rows, _, columns) = launch_size(pointwise(step)[0]), matmul_shapes(step)[0]
        return f"{blocks} blocks of {threads} threads for {rows} rows of {columns}"

    return device["mlp/liger"].per_step(launch)


@claim("O-P8", at_least(1.2), scope="timing")
def liger_on_the_cpu(device: Device) -> Figure:
    """Free of Dynamo is not free of overhead: at one token and at one sequence a Liger call keeps the CPU busy at
    least a fifth longer than an eager one."""
    sizes = ("[batch=1,seq=1]", "[batch=1,seq=128]")
    pairs = [(device["mlp/sweep_liger" + size], device["mlp/sweep_eager" + size]) for size in sizes]
    return smallest(*(paired_ratio(liger, eager, "enqueue") for liger, eager in pairs))


@claim("O-P9", equals("static: 3 of 3, automatic: 1 of 3"))
def static_or_automatic(device: Device) -> Figure:
    """With dynamic=False every new batch size compiles; by default only the first new one does."""
    return Figure(", ".join(f"{mode}: {recompiled(device, mode)}" for mode in ("static", "automatic")))


@claim("O-P10", at_least(20), scope="timing")
def cost_of_compiling(device: Device) -> Figure:
    """A call that compiles takes at least twenty times as long as one that does not."""
    calls_ms: dict[bool, list[float]] = {True: [], False: []}
    for mode in ("static", "automatic"):
        changes = itertools.pairwise([0, *compilations(device, mode)])
        for (before, after), ms in zip(changes, device["mlp/new_shapes"].data[mode]["first_call_ms"], strict=True):
            calls_ms[after > before].append(float(ms))
    if not calls_ms[False]:
        return Figure(0.0, "x", display="every call compiled", conclusive=False)
    return Figure(min(calls_ms[True]) / max(calls_ms[False]), "x")


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
    caption = "The three GEMMs in the trace, and the same products bare and sustained"
    return timing_bars(device, trace_and_sustained(device), caption, axis="time of one product, M x K x N")


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
