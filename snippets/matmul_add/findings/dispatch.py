"""The calls on the way to a kernel, the CUDA queries before a launch, and the CPU's closing wait."""

import statistics
from collections import Counter
from collections.abc import Sequence
from functools import partial

from kinetoscope.html import Cell, Html, code, details, table
from kinetoscope.trace.events import CudaCall, Span, Step, Trace
from kinetoscope.trace.intervals import intersect, interval, length_us, union_of
from kinetoscope.trace.queries import find_op
from snippets.lab.finding import Device, Figure, Run, Source, at_least, between, claim, equals, format_value, matches
from snippets.lab.finding.measure import unpaired_ratio
from snippets.lab.page import comparison_table, dispatch_tree, show as show, timeline
from snippets.matmul_add.findings.overhead import (
    COLD,
    LABEL,
    LARGE,
    MATMULS,
    SMALL,
    across,
    closing_wait,
    matmul,
    names,
    of_traces,
    self_gpu_us,
)
from snippets.matmul_add.findings.steps import is_query

QUERY = "cudaOccupancyMaxActiveBlocksPerMultiprocessor"


def calls_under(step: Step, name: str) -> tuple[CudaCall, ...]:
    """The CUDA calls that began inside an operator."""
    return step.calls_in(find_op(step, name))


def busy_within_us(trace: Trace, span: Span) -> float:
    """Time that the GPU was busy during an interval of CPU time."""
    return length_us(intersect([interval(span)], union_of(trace.activities)))


def wait_busy(run: Run) -> Figure:
    """Percent of the closing wait in which the GPU was busy."""
    trace = run.whole.trace
    wait = closing_wait(trace)
    return Figure(100 * busy_within_us(trace, wait) / wait.duration_us, "%", origin=run.origin)


@claim("P13", equals(f"ProfilerStep#N > {LABEL} > aten::matmul > aten::mm"), source=Source("Part 1", "the same chain"))
def chain(device: Device) -> Figure:
    """An eager step reaches the matrix product through ProfilerStep#N, matmul_add, aten::matmul and aten::mm."""
    return device["matmul_add/eager_64"].per_step(
        lambda step: " > ".join(op.name.replace(step.name, "ProfilerStep#N") for op in matmul(step)[1].chain)
    )


@claim("P14", equals("aten::matmul, aten::add"), source=Source("Part 1", "aten::matmul, aten::add"))
def siblings(device: Device) -> Figure:
    """In an eager step, aten::add is a sibling of aten::matmul, not its child."""
    return device["matmul_add/eager_64"].per_step(lambda step: names(step.children(find_op(step, LABEL))))


@claim("P15", equals("aten::mm → aten::bmm"), source=Source("Part 1", "aten::mm → aten::bmm"))
def stacked_op(device: Device) -> Figure:
    """A leading batch axis on x, w and b turns aten::mm into aten::bmm."""
    return across(device, lambda step: matmul(step)[1].name, "eager_64", "stacked")


def is_more(figure: Figure) -> bool:
    """A band: the number to the right of the arrow is the larger one."""
    before, after = (int(number) for number in str(figure.value).split(" → "))
    return after > before


@claim("P16", is_more, scope="this-gpu", source=Source("Part 1", "a bunch more"))
def stacked_calls(device: Device) -> Figure:
    """With a leading batch axis, aten::matmul makes more CUDA calls than without it.

    The batch axis adds operators that rearrange metadata on the CPU. The CUDA call is the same single launch."""
    return across(device, lambda step: len(calls_under(step, "aten::matmul")), "eager_64", "stacked")


@claim("O-M10", equals("aten::mm"))
def folded_op(device: Device) -> Figure:
    """With a batch axis on x and b only, the product stays aten::mm, because PyTorch folds x into one tall matrix."""
    return device["matmul_add/stacked_input"].per_step(lambda step: matmul(step)[1].name)


@claim("P17", equals("2 and 1"), scope="this-gpu", source=Source("Part 1", "2 and 1"))
def calls_of_both(device: Device) -> Figure:
    """aten::mm makes one CUDA call more than aten::add.

    At size 64, each of these operators makes one CUDA call, its launch. At size 4096, aten::mm makes a second call,
    which queues a memset."""
    return device["matmul_add/eager_64"].per_step(
        lambda step: " and ".join(str(len(calls_under(step, op))) for op in ("aten::mm", "aten::add"))
    )


@claim("P18", matches(f".*{QUERY}.*"), scope="this-gpu", source=Source("Part 1", f"{QUERY}, cudaLaunchKernel"))
def calls_of_mm(device: Device) -> Figure:
    """aten::mm calls cudaOccupancyMaxActiveBlocksPerMultiprocessor before it launches its kernel.

    Here cuBLAS also makes occupancy queries, but only in the first step of a process. A trace should leave this first
    step out."""
    return device["matmul_add/eager_64"].per_step(lambda step: names(calls_under(step, "aten::mm")))


@claim("P19", equals("cudaLaunchKernel"), scope="this-gpu", source=Source("Part 1", "cudaLaunchKernel"))
def product_call(device: Device) -> Figure:
    """cudaLaunchKernel launches the kernel of the matrix product.

    cuBLAS launches the kernel by cuLaunchKernelEx, a call of the driver. So a search for cudaLaunchKernel finds only
    the kernels of aten::add."""
    return device["matmul_add/eager_64"].per_step(lambda step: names([matmul(step)[0].launch]))


@claim("P20", equals("cudaLaunchKernel"), source=Source("Part 1", "cudaLaunchKernel only"))
def calls_of_add(device: Device) -> Figure:
    """aten::add makes a single CUDA call, cudaLaunchKernel."""
    return device["matmul_add/eager_64"].per_step(lambda step: names(calls_under(step, "aten::add")))


@claim("P21", equals(100), scope="this-gpu", source=Source("Part 1", "every one"), is_advice=True)
def queries_before_matmuls(device: Device) -> Figure:
    """Rule of thumb: an occupancy query marks the launch of a matrix product.

    In this chapter, no product after the first step follows an occupancy query. Look at the operator that launched a
    kernel instead."""
    warm = ("eager_64", "eager_4096", "compiled_64", "compiled_4096", "stacked", "row_bias_4096")
    steps = [step for name in warm for step in device[f"matmul_add/{name}"].steps]
    has_query = [any(map(is_query, step.calls_in(matmul(step)[1]))) for step in steps]
    display = f"{sum(has_query)} of {len(has_query)} launches of a product"
    return Figure(100 * sum(has_query) / len(has_query), "%", display=display)


@claim("O-M11", at_least(1), scope="this-gpu")
def first_queries(device: Device) -> Figure:
    """cuBLAS makes occupancy queries in the first step of a process, and none in later steps."""
    run = device["matmul_add/unscheduled"]
    first, *rest = (sum(map(is_query, step.calls)) for step in run.steps)
    asked = Counter(call.name for call in run.whole.steps[0].calls if is_query(call)).most_common()
    by_name = ", ".join(f"{count} {name}" for name, count in asked) or "0"
    display = f"{by_name} in step #0, {sum(rest)} in the {len(rest)} steps after it"
    return Figure(0 if sum(rest) else first, origin=run.origin, display=display)


@claim("O-M12", equals("4"), scope="this-gpu")
def memset_bytes(device: Device) -> Figure:
    """At size 4096, a memset of four bytes comes with the matrix product."""
    return device["matmul_add/eager_4096"].per_step(
        lambda step: ", ".join(str(memset.moved_bytes) for memset in step.memsets) or "none"
    )


@claim("P22", equals(32), scope="this-gpu", source=Source("Part 1", "32"))
def add_registers(device: Device) -> Figure:
    """A thread of the add kernel uses 32 registers.

    The compiler assigns registers again for each kind of GPU. Here the profiler estimates less than full occupancy, but
    aten::add makes no occupancy query."""
    return device["matmul_add/eager_64"].per_step(lambda step: step.kernels[-1].registers or 0)


@claim("P23", equals(0), source=Source("Part 1", "0"))
def add_shared_memory(device: Device) -> Figure:
    """The add kernel uses no shared memory."""
    return device["matmul_add/eager_64"].per_step(lambda step: step.kernels[-1].shared_memory_bytes or 0)


@claim("P24", between(90, 100), scope="timing", source=Source("Part 1", "98 %"))
def wait_idle(device: Device) -> Figure:
    """At size 64, the GPU is idle for nearly all of the cudaDeviceSynchronize at the end of the trace."""
    return of_traces(device, lambda run: Figure(100 - wait_busy(run).number, "%", origin=run.origin), *SMALL)


@claim("P25", at_least(10), scope="timing", source=Source("Part 1", "1.78 ms for 26 µs of work"))
def wait_to_work_64(device: Device) -> Figure:
    """At size 64, the cudaDeviceSynchronize at the end of the trace is many times as long as all GPU work of the trace.

    When no GPU work is left, cudaDeviceSynchronize takes only its own time. In Part 1's trace, the GPU began its work
    late."""

    def wait_to_work(run: Run) -> Figure:
        trace = run.whole.trace
        wait, work = closing_wait(trace).duration_us, self_gpu_us(trace)
        display = f"{format_value(wait, 'us')} for {format_value(work, 'us')} of work"
        return Figure(wait / work, "x", origin=run.origin, display=display)

    return of_traces(device, wait_to_work, *SMALL)


@claim("O-M13", between(50, 100), scope="timing")
def wait_busy_4096(device: Device) -> Figure:
    """At size 4096, the GPU works for most of the cudaDeviceSynchronize at the end of the trace."""
    return of_traces(device, wait_busy, *LARGE)


@claim("O-M26", equals("0 of 1"))
def waits_in_steps(device: Device) -> Figure:
    """The only cudaDeviceSynchronize of a trace is outside of the trace's steps."""
    run = device["matmul_add/eager_4096"]
    inside = [call for step in run.whole.steps for call in step.calls]
    counts = (sum(call.name == "cudaDeviceSynchronize" for call in calls) for calls in (inside, run.whole.trace.calls))
    return Figure(" of ".join(map(str, counts)), origin=run.origin)


@claim("O-M27", matches(".*cudaMemcpyAsync.*cudaStreamSynchronize.*"))
def calls_of_item(device: Device) -> Figure:
    """Inside a step, `.item()` calls cudaMemcpyAsync to copy a number to the CPU, and then waits in
    cudaStreamSynchronize."""
    return device["matmul_add/item_4096"].per_step(lambda step: names(calls_under(step, "aten::item")))


def idle_after(run: Run, index: int) -> float:
    """The time on the GPU between the last activity of a kept step and the first of the next."""
    step, later = run.whole.steps[index : index + 2]
    return round(later.activities[0].start_us - step.activities[-1].end_us, 3)


def idle_between(device: Device, *experiments: str) -> Figure:
    """The idle time after the second kept step: the median of some traces. The first kept step is no guide."""
    runs = [device[f"matmul_add/{name}"] for name in experiments]
    idle_us = [idle_after(run, 1) for run in runs]
    origin = "; ".join(run.origin for run in runs)
    return Figure(statistics.median(idle_us), "us", (min(idle_us), max(idle_us)), origin)


@claim("O-M28", at_least(5), scope="timing")
def idle_by_item(device: Device) -> Figure:
    """At size 4096, `.item()` in the step makes the GPU idle at least five times as long between the last two kept
    steps."""
    return unpaired_ratio(idle_between(device, "item_4096"), idle_between(device, *LARGE))


FIGURES = {
    "idle_with_item": lambda device: idle_between(device, "item_4096"),
    "idle_without_item": lambda device: idle_between(device, *LARGE),
}
with_item = partial(timeline, variants={"Without": "matmul_add/eager_4096", "With .item()": "matmul_add/item_4096"})


def calls(device: Device) -> Html:
    """The CUDA calls of each matmul and each add, for the very first step and for later steps."""
    rows: list[Sequence[Cell]] = []
    for name in ("eager_64", "stacked", "eager_4096"):
        step = device[f"matmul_add/{name}"].step
        for op in (op for op in step.ops if op.name in (*MATMULS, "aten::add")):
            rows.append([code(name), code(op.name), Html("<br>".join(code(call.name) for call in step.calls_in(op)))])
    head = ["experiment", "operator", "its CUDA calls, in order"]
    asked = table("CUDA calls of each operator", head, rows, text_columns=3)
    first, second = (Counter(call.name for call in step.calls) for step in device["matmul_add/unscheduled"].steps[:2])
    by_name: list[Sequence[Cell]] = [[code(name), count, second[name]] for name, count in first.most_common()]
    folded = table("CUDA calls by name", ["call", "step #0", "step #1"], by_name)
    return Html(asked + details("Every CUDA call of the first step", folded))


def stacks(device: Device) -> Html:
    """Both ways to stack: counts beside each other, and the operators of each."""
    ways = {
        "one matrix": "matmul_add/eager_64",
        "x, w and b stacked": "matmul_add/stacked",
        "x and b stacked": "matmul_add/stacked_input",
    }
    counts = {"operators": "ops_per_step", "CUDA calls": "cuda_calls_per_step", "kernels": "kernels_per_step"}
    listed = comparison_table(
        device,
        ways,
        "Operators, CUDA calls and kernels per step, with one matrix and with stacks of eight",
        quantities=counts,
    )
    trees = (details(f"Operators: {way}", dispatch_tree(device, ways[way])) for way in list(ways)[1:])
    return Html(listed + "".join(trees))


def waits(device: Device) -> Html:
    """The closing wait at both sizes, and the GPU's busy time in it."""
    rows: list[Sequence[Cell]] = []
    for size, experiment in COLD.items():
        trace = device[experiment].trace
        wait = closing_wait(trace)
        times = (wait.duration_us, busy_within_us(trace, wait), self_gpu_us(trace))
        rows.append([size, *(format_value(us, "us") for us in times)])
    head = ["size", "time of the call", "GPU busy during the call", "all GPU work of the trace"]
    return table("cudaDeviceSynchronize at the end of the trace", head, rows)
