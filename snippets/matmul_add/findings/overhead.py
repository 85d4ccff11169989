"""Values of the chapter's traces, and the limit of a step at each size: kernels, totals, memory and arithmetic."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from kinetoscope.trace.averages import key_averages
from kinetoscope.trace.events import (
    CpuOp,
    CudaCall,
    GpuActivity,
    Span,
    Step,
    Trace,
)
from snippets.lab.finding import Device, Figure, Run, TraceError, format_value
from snippets.lab.finding.band import at_least, at_most, between, equals
from snippets.lab.finding.claim import Source, claim
from snippets.lab.finding.measure import (
    derived,
    ratio_of_kinds,
    share_of_ceiling,
)
from snippets.lab.page import (
    Computation,
    prediction as prediction,
    regimes,
    show as show,
    timeline,
)
from snippets.lab.recording.ceilings import matmul_name

LABEL = "matmul_add"
MATMULS = ("aten::mm", "aten::bmm", "aten::addmm")
SWEEPS = {"Eager": "matmul_add/sweep_eager", "Compiled": "matmul_add/sweep_compiled"}
COLD = {f"{size}x{size}": f"matmul_add/eager_{size}_cold" for size in (64, 4096)}
"""Size -> the eager step in a new process."""
SMALL, LARGE = ("eager_64_cold", "eager_64", "unscheduled"), ("eager_4096_cold", "eager_4096")
"""Traces of the eager step at 64 and at 4096, that of the cold process first."""
PRODUCT_4096 = matmul_name(4096, 4096, 4096, "x @ w")
"""The ceiling in the layout of the steps."""


def matmul(step: Step) -> tuple[GpuActivity, CpuOp]:
    """The first kernel that a matmul of a step launched, and its operator."""
    for kernel in step.kernels:
        if kernel.op is not None and kernel.op.name in MATMULS:
            return kernel, kernel.op
    raise TraceError(f"{step.name} has no kernel of {', '.join(MATMULS)}")


def names(spans: Iterable[Span | None]) -> str:
    """The names of operators or calls, in order."""
    return ", ".join(span.name if span else "none" for span in spans) or "none"


def closing_wait(trace: Trace) -> CudaCall:
    """The last `cudaDeviceSynchronize`."""
    waits = [call for call in trace.calls if call.name == "cudaDeviceSynchronize"]
    if not waits:
        raise TraceError("no cudaDeviceSynchronize in the trace")
    return waits[-1]


def self_cpu_us(trace: Trace) -> float:
    """The profiler's `Self CPU time total`: of operators, annotations and CUDA calls."""
    return round(math.fsum(row.self_cpu_us for row in key_averages(trace)), 3)


def self_gpu_us(trace: Trace) -> float:
    """The profiler's `Self CUDA time total`: kernels, copies and fills."""
    return round(sum(activity.duration_us for activity in trace.activities), 3)


def across(
    device: Device, of: Callable[[Step], int | str], *experiments: str, by: str = " → ", unit: str = ""
) -> Figure:
    """A value of all steps of each experiment, joined: `2 → 1`; with `unit`, formatted in it."""
    figures = [device[f"matmul_add/{name}"].per_step(of) for name in experiments]
    display = by.join(format_value(figure.number, unit) for figure in figures) if unit else ""
    return derived(by.join(str(figure.value) if unit else figure.text for figure in figures), *figures, display=display)


def of_traces(device: Device, of: Callable[[Run], Figure], *experiments: str) -> Figure:
    """A number of the first trace, with the spread over all traces."""
    figures = [of(device[f"matmul_add/{name}"]) for name in experiments]
    numbers = [figure.number for figure in figures]
    return replace(figures[0], spread=(min(numbers), max(numbers)), origin="; ".join(one.origin for one in figures))


def is_unchanged(figure: Figure) -> bool:
    """A band: both sides of the arrow are the same."""
    return len(set(str(figure.value).split(" → "))) == 1


def busy_share(run: Run) -> Figure:
    """The profiler's GPU total in percent of its CPU total."""
    trace = run.whole.trace
    gpu, cpu = self_gpu_us(trace), self_cpu_us(trace)
    share = 100 * gpu / cpu
    display = f"{format_value(share, '%')}: {format_value(gpu, 'us')} of {format_value(cpu, 'us')}"
    return Figure(share, "%", origin=run.origin, display=display)


def enqueue_to_work(run: Run) -> Figure:
    """The CPU time of a step over its GPU time."""
    display = f"{run.time('enqueue').text} to enqueue, {run.time().text} to run"
    return replace(ratio_of_kinds(run, "enqueue"), display=display)


def size_of(run: Run, pick: Callable[..., int], applies: Callable[[Run], bool]) -> Figure:
    """The smallest or largest size of a sweep that meets a condition; 0 for none."""
    sizes = [int(at.parameters["size"]) for at in run.points if applies(run.at(**at.parameters))]
    size = pick(sizes, default=0)
    return Figure(size, origin=run.origin, display=str(size) if size else "none of the sizes")


def crossing(run: Run) -> Figure:
    """The smallest size of a sweep that is not overhead-bound: the CPU takes no longer to enqueue it than the GPU."""
    return size_of(run, min, lambda at: ratio_of_kinds(at, "enqueue").number <= 1)


def worth_a_graph(run: Run) -> Figure:
    """The largest size of a sweep at which a loop takes at least half as long again as the replay."""
    return size_of(run, max, lambda at: ratio_of_kinds(at, "from_python").number >= 1.5)


@claim("P1", equals("2 and 2"), source=Source("Part 1", "2 kernels"))
def two_kernels(device: Device) -> Figure:
    """An eager step of matmul_add runs two kernels, at size 64 and at size 4096."""
    return across(device, lambda step: len(step.kernels), "eager_64", "eager_4096", by=" and ")


@claim("P2", equals("aten::mm, aten::add"), source=Source("Part 1", "GEMM, then add"))
def matmul_then_add(device: Device) -> Figure:
    """In an eager step, the first kernel is the matrix product, and the second kernel is the pointwise add."""
    return device["matmul_add/eager_64"].per_step(lambda step: names(kernel.op for kernel in step.kernels))


@claim("P3", at_most(5), scope="timing", source=Source("Part 1", "1.0 %: 23.104 µs of 2.314 ms"))
def idle_at_64(device: Device) -> Figure:
    """At size 64, the profiler's total of GPU time is at most 5 % of its total of CPU time."""
    return of_traces(device, busy_share, *SMALL)


@claim("P4", between(90, 110), scope="timing", source=Source("Part 1", "92 %: 4.495 ms of 4.908 ms"))
def totals_meet(device: Device) -> Figure:
    """At size 4096, the profiler's totals of CPU time and of GPU time differ by at most 10 %.

    Until the first kernel starts, only the CPU works. This GPU finishes three steps sooner than Part 1's GPU, so the
    time before the first kernel is a larger part of the CPU total."""
    return of_traces(device, busy_share, *LARGE)


@claim("O-M1", at_least(3), scope="timing")
def overhead_bound(device: Device) -> Figure:
    """On this host, enqueueing a step at size 64 takes the CPU at least three times as long as running the step takes
    the GPU."""
    return enqueue_to_work(device["matmul_add/eager_64"])


@claim("O-M2", at_most(0.5), scope="timing")
def cpu_done_early(device: Device) -> Figure:
    """On this host, a step at size 4096 isn't overhead-bound: its CPU time is at most half of its GPU time."""
    return enqueue_to_work(device["matmul_add/eager_4096"])


@claim("O-M3", at_least(70), scope="timing")
def product_share_4096(device: Device) -> Figure:
    """At size 4096, an eager step reaches at least 70 % of the rate of the product alone, in the same shape and
    layout."""
    return share_of_ceiling(device["matmul_add/eager_4096"], PRODUCT_4096)


GROWTH = Computation(
    "How many times the arithmetic of size 64 does size 512 need?",
    "matmul_add.work_512",
    "A result of size 512 has eight times the rows, eight times the columns, and eight times the numbers in each sum.",
    "A product of n x n matrices multiplies and adds n x n x n times.",
    {
        8.0: "that is the growth of one dimension. A product has three dimensions.",
        64.0: "that is the growth of the result. But each number of the result also sums more products.",
    },
)


@claim("O-M4", at_most(2), scope="timing")
def growth(device: Device) -> Figure:
    """From size 64 to size 512, the arithmetic of an eager step grows 512-fold, but its GPU time at most doubles."""
    small, large = (device[f"matmul_add/sweep_eager[size={size}]"].time() for size in (64, 512))
    return derived(large.number / small.number, small, unit="x", display=f"{small.text} at 64, {large.text} at 512")


@claim("O-M5", equals(True), scope="timing")
def crossings(device: Device) -> Figure:
    """On this host, compiled steps stay overhead-bound up to the same size as eager steps, or up to a larger size."""
    eager, compiled = sizes = [crossing(device[name]) for name in SWEEPS.values()]
    is_later = eager.number > 0 and (compiled.number == 0 or eager.number <= compiled.number)
    return derived(is_later, *sizes, display=f"eager from {eager.value}, compiled from {compiled.value}")


@claim("O-M6", at_least(10), scope="timing")
def wait_share_4096(device: Device) -> Figure:
    """At size 4096, the final wait for the GPU is at least 10 % of the profiler's total of CPU time."""

    def share(run: Run) -> Figure:
        trace = run.whole.trace
        return Figure(100 * closing_wait(trace).duration_us / self_cpu_us(trace), "%", origin=run.origin)

    return of_traces(device, share, *LARGE)


FIGURES = {
    "work_512": lambda device: Figure((512 / 64) ** 3, "x", origin="the sizes"),
    "growth_512": lambda device: replace(growth(device), display=""),
    "crossing_eager": lambda device: crossing(device["matmul_add/sweep_eager"]),
    "crossing_compiled": lambda device: crossing(device["matmul_add/sweep_compiled"]),
    "graph_until_eager": lambda device: worth_a_graph(device["matmul_add/sweep_eager"]),
    "graph_until_compiled": lambda device: worth_a_graph(device["matmul_add/sweep_compiled"]),
}


one_step = partial(timeline, variants={"Eager, 64x64": "matmul_add/eager_64"})
two_sizes = partial(timeline, variants=COLD)


by_size = partial(regimes, variants=SWEEPS, size=lambda at: float(at["size"]), unit="rows and columns")
