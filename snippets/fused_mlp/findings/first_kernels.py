"""The package's first kernels against others: a pointwise kernel, and a Linear with its activation."""

import math
from collections.abc import Mapping, Sequence

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import GpuActivity
from kinetoscope.trace.queries import kernel_names
from snippets.lab.finding import Device, Figure, Measure, Run, format_value, quantity, unpaired_ratio
from snippets.lab.finding.band import at_least, at_most, equals
from snippets.lab.finding.claim import claim
from snippets.lab.finding.measure import (
    derived,
    largest,
    listed,
    paired_ratio,
    percent,
    point_ratio,
    quantity_ratio,
    ratio_of_pairs,
    smallest,
)
from snippets.lab.finding.other_device import H100, H200, measured_on
from snippets.lab.page import Columns, figure_cell, race_table, show as show

OURS = "fused_mlp/pointwise_fused"
POINTWISE = {
    "our kernel": OURS,
    "copy": "fused_mlp/pointwise_copy",
    "compiled": "fused_mlp/pointwise_compiled",
    "Liger": "fused_mlp/pointwise_liger",
    "eager": "fused_mlp/pointwise_eager",
}


def warm_and_cold(upper: Run, lower: Run) -> tuple[Figure, Figure]:
    """The time of `upper` / that of `lower`, interleaved and with a cold cache."""
    return paired_ratio(upper, lower), paired_ratio(upper, lower, "cold")


@claim("F7", at_least(95), scope="timing")
def pointwise_of_copy(device: Device) -> Figure:
    """With a cold cache, our pointwise kernel reaches at least 95 % of the rate of an equally large copy."""
    return percent(paired_ratio(device[POINTWISE["copy"]], device[OURS], "cold"))


@claim("F8", at_most(1.02), scope="timing")
def pointwise_over_compiled(device: Device) -> Figure:
    """In interleaved timing and with a cold cache, our pointwise kernel takes at most 2 % longer than Inductor's
    pointwise kernel."""
    return largest(*warm_and_cold(device[OURS], device[POINTWISE["compiled"]]))


@claim("F9", at_least(1.6), scope="timing")
def eager_over_ours(device: Device) -> Figure:
    """In interleaved timing and with a cold cache, eager's two pointwise kernels take at least 60 % longer than our
    pointwise kernel."""
    return smallest(*warm_and_cold(device[POINTWISE["eager"]], device[OURS]))


@claim("F10", at_least(1.1), scope="timing")
def liger_over_ours(device: Device) -> Figure:
    """In interleaved timing and with a cold cache, Liger's pointwise kernel takes at least 10 % longer than our
    pointwise kernel."""
    return smallest(*warm_and_cold(device[POINTWISE["Liger"]], device[OURS]))


@claim("F11", at_most(1.01), scope="this-gpu")
def error_over_compiled(device: Device) -> Figure:
    """The error of our pointwise kernel is at most 1 % above the error of Inductor's pointwise kernel, which computes
    tanh in full."""
    return point_ratio(device[OURS], device[POINTWISE["compiled"]], "relative_error")


def pointwise_compared(device: Device) -> Html:
    """Five ways to read two tensors and write one, or as many bytes: times, rate, and the resources of a thread."""
    runs = [device[experiment] for experiment in POINTWISE.values()]
    copied = device[POINTWISE["copy"]]
    rows: list[Sequence[Cell]] = [
        ["GPU time, interleaved", *(figure_cell(run.time()) for run in runs)],
        ["GPU time, cold cache", *(figure_cell(run.time("cold")) for run in runs)],
        [
            "cold cache: the copy's time / the variant's time",
            *(figure_cell(percent(paired_ratio(copied, run, "cold"))) for run in runs),
        ],
    ]
    threads = [thread_costs(run) for run in runs]
    headings = ("registers of a thread", "threads of a block", "elements for each thread")
    for index, heading in enumerate(headings):
        rows.append([heading, *(", ".join(costs[index] for costs in kernels) or None for kernels in threads)])
    errors = [run.point.relative_error for run in runs]
    rows.append(["relative error", *(format_value(error) if error else None for error in errors)])
    return table("Four ways to compute GELU and the multiplication, and a copy", ["", *POINTWISE], rows)


def thread_costs(run: Run) -> list[tuple[str, str, str]]:
    """Registers of a thread, threads of a block and elements for each thread, of each kernel of a step."""
    elements = math.prod(int(run.point.parameters[name]) for name in ("tokens", "hidden"))
    costs = []
    for kernel in run.step.kernels:
        threads = math.prod(kernel.block or (0,))
        costs.append((str(kernel.registers), f"{threads:,}", f"{for_each_thread(kernel, elements):g}"))
    return costs


def for_each_thread(kernel: GpuActivity, elements: int) -> float:
    """So many elements over the threads of a launch; 0 where the trace does not have its grid."""
    threads = math.prod((*(kernel.grid or (0,)), *(kernel.block or (0,))))
    return elements / threads if threads else 0


LINEAR = {"our kernel": "fused", "cuBLAS's epilogue": "addmm", "eager": "eager", "compiled": "compiled"}
"""Heading -> suffix of its experiment's name."""
FEW, MANY = 64, 8192
"""Rows of the Linear's input."""


def linear(device: Device, rows: int, variant: str = "fused") -> Run:
    """A variant of the Linear at that many rows."""
    return device[f"fused_mlp/linear_{rows}_{variant}"]


def over_addmm(device: Device, rows: int, kind: str = "interleaved") -> Figure:
    """The time of the package / that of cuBLAS's epilogue."""
    return paired_ratio(linear(device, rows), linear(device, rows, "addmm"), kind)


@claim("F12", equals("our kernel 1, cuBLAS's epilogue 1, eager 2, compiled 2"))
def kernels(device: Device) -> Figure:
    """A Linear with GELU takes two kernels in eager code and in compiled code, but one kernel with cuBLAS's epilogue or
    with our kernel."""
    return listed({heading: _kernel_counts(device, variant) for heading, variant in LINEAR.items()})


def _kernel_counts(device: Device, variant: str) -> Figure:
    counts = [quantity(linear(device, rows, variant), "kernels_per_step") for rows in (FEW, MANY)]
    return derived(" and ".join(dict.fromkeys(count.text for count in counts)), *counts)


@claim("F13", at_most(0.92), scope="timing")
def many_over_addmm(device: Device) -> Figure:
    """For 8192 rows, in interleaved timing and with a cold cache, our kernel for a Linear with GELU takes at least 8 %
    less time than cuBLAS's epilogue."""
    return largest(*warm_and_cold(linear(device, MANY), linear(device, MANY, "addmm")))


@claim("F14", at_most(1.0), scope="timing")
def over_bare_matmul(device: Device) -> Figure:
    """For 8192 rows in interleaved timing, our kernel for a Linear with bias and GELU takes no longer than cuBLAS's
    product without bias and GELU."""
    ours = linear(device, MANY)
    return ratio_of_pairs(
        ours.timing(), ours.ceiling(f"matmul {MANY}x1024x4096").timing, "our kernel over bare product"
    )


def inductors_gelu_over_eagers(device: Device) -> Figure:
    """At 8192 rows, in the traces, the time of Inductor's GELU kernel / eager's."""
    compiled, eager = (linear(device, MANY, name) for name in ("compiled", "eager"))
    return unpaired_ratio(*(run.per_step(lambda step: step.kernels[-1].duration_us, "us") for run in (compiled, eager)))


@claim("F115", equals(True), scope="timing")
def width_decides(device: Device) -> Figure:
    """In the traces for 8192 rows, Inductor's GELU kernel takes at least 1.3 times as long as eager's GELU kernel if
    the threads of Inductor's kernel load fewer numbers each. Otherwise, Inductor's kernel takes at most 1.15 times as
    long."""
    ratio = inductors_gelu_over_eagers(device)
    compiled, eager = (numbers_of_a_thread(device, name) for name in ("compiled", "eager"))
    is_as_wide = compiled.number >= eager.number
    agrees = ratio.number <= 1.15 if is_as_wide else ratio.number >= 1.3
    return derived(agrees, ratio, display=f"{ratio.text}; {compiled.text} numbers to a thread, eager's {eager.text}")


def numbers_of_a_thread(device: Device, variant: str) -> Figure:
    """How many numbers each thread of a variant's GELU kernel computes at 8192 rows."""
    run = linear(device, MANY, variant)
    numbers = math.prod(int(run.point.parameters[name]) for name in ("tokens", "outputs"))
    each = for_each_thread(run.step.kernels[-1], numbers)
    return Figure(each, origin=f"{run.id}'s launch", display=f"{each:g}")


def chosen_kernel(device: Device) -> Figure:
    """The kernel that our Linear took in the recorded steps, or both, if the two sizes got different ones."""
    many, few = (linear(device, rows).per_step(kernel_names) for rows in (MANY, FEW))
    both = f"{many.value} at {MANY} rows, {few.value} at {FEW}"
    return derived(str(many.value) if many.value == few.value else both, many, few)


@claim("F15", at_most(0.93), scope="timing")
def few_over_addmm(device: Device) -> Figure:
    """For 64 rows in back-to-back replays, our kernel for a Linear with GELU takes at least 7 % less time than cuBLAS's
    epilogue."""
    return over_addmm(device, FEW)


@claim("F16", at_most(1.0), scope="timing")
def few_over_addmm_cold(device: Device) -> Figure:
    """For 64 rows, alone and with a cold cache, our kernel for a Linear with GELU takes no longer than cuBLAS's
    epilogue.

    A kernel that runs alone can't overlap its start with another kernel, and with a cold cache, both kernels read the
    weight from memory. In this timing, cuBLAS's kernel is faster than our kernel. In back-to-back replays, our kernel
    is faster only because its launches overlap.
    """
    return over_addmm(device, FEW, "cold")


@claim("F17", at_least(1.08), scope="timing")
def in_trace_over_replays(device: Device) -> Figure:
    """For 64 rows, our kernel for a Linear with GELU takes at least 8 % longer in the trace than in back-to-back
    replays."""
    ours = linear(device, FEW)
    return unpaired_ratio(quantity(ours, "kernel_time_us"), ours.time())


@claim("F19", at_least(1.05), scope="timing")
def few_over_addmm_in_trace(device: Device) -> Figure:
    """For 64 rows in the trace, where each kernel runs alone, our kernel for a Linear with GELU takes at least 5 %
    longer than cuBLAS's epilogue."""
    return quantity_ratio(linear(device, FEW), linear(device, FEW, "addmm"), "kernel_time_us")


@claim("F18", at_most(1.25), scope="timing")
def few_enqueue_over_addmm(device: Device) -> Figure:
    """In enqueue timing for a Linear of 64 rows with GELU, a call of our kernel keeps the CPU busy at most 25 % longer
    than a call of cuBLAS's epilogue."""
    return over_addmm(device, FEW, "enqueue")


def linear_few_from_python(device: Device) -> Figure:
    """The four ways at few rows from Python, the fastest first."""
    times = {heading: linear(device, FEW, variant).time("from_python") for heading, variant in LINEAR.items()}
    return derived(", ".join(sorted(times, key=lambda heading: times[heading].number)), *times.values())


def linear_compared(device: Device, rows: int) -> Html:
    """A Linear with GELU, four ways, for an input of that many rows."""
    variants = {heading: linear(device, rows, variant).id for heading, variant in LINEAR.items()}
    kinds = ("interleaved", "steady", "cold", "from_python", "enqueue")
    more: Columns = {"kernel time in the trace": "kernel_time_us", "relative error": "relative_error"}
    return race_table(device, variants, f"A Linear with GELU, {rows:,} rows", kinds=kinds, more=more)


FIGURES: Mapping[str, Measure] = {
    "h200_over_bare_matmul": measured_on(H200, over_bare_matmul),
    "h100_over_bare_matmul": measured_on(H100, over_bare_matmul),
    "linear_over_addmm": lambda device: over_addmm(device, MANY),
    "linear_over_addmm_steady": lambda device: unpaired_ratio(
        *(linear(device, MANY, name).time("steady") for name in ("fused", "addmm"))
    ),
    "inductors_gelu_over_eagers": inductors_gelu_over_eagers,
    "numbers_of_a_thread_compiled": lambda device: numbers_of_a_thread(device, "compiled"),
    "numbers_of_a_thread_eager": lambda device: numbers_of_a_thread(device, "eager"),
    "linear_kernel": chosen_kernel,
}
