"""The figures and claims of the page on what each row means. R are our own."""

import math
import statistics
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import partial

from snippets.lab.finding import Device, Figure, Run, at_least, between, claim, equals, format_value
from snippets.lab.finding.measure import derived
from snippets.lab.html import Cell, Html, code, table
from snippets.lab.page import kernel_table, timeline
from snippets.lab.page import show as show
from snippets.lab.trace.averages import Average, key_averages
from snippets.lab.trace.events import CpuOp, CudaCall, Span, Step
from snippets.lab.trace.queries import busy_us

QUEUE = "trace_rows/full_queue"
LAUNCHES = "*LaunchKernel*"
ROW_HEAD = ["row", "self CPU", "CPU total", "self GPU", "GPU total", "calls"]


def averages(device: Device, experiment: str, *patterns: str) -> list[Average]:
    """The rows of the profiler's table whose names match one of the patterns, in the order of the patterns."""
    rows = key_averages(device[experiment].trace)
    return [row for pattern in patterns for row in rows if fnmatchcase(row.name, pattern)]


def rows_of(device: Device, experiment: str, patterns: Sequence[str], caption: str) -> Html:
    """Some rows of the profiler's table of a recording, summed over its steps."""
    rows = [
        [
            Html(f"{code(row.name, 44)}{'' if row.kind == 'operator' else f'<small>{row.kind}</small>'}"),
            *(format_value(us, "us") if us else None for us in (row.self_cpu_us, row.cpu_us)),
            *(format_value(us, "us") if us else None for us in (row.self_gpu_us, row.gpu_us)),
            row.calls,
        ]
        for row in averages(device, experiment, *patterns)
    ]
    return table(caption, ROW_HEAD, rows)


def average(device: Device, experiment: str, name: str) -> Average:
    """One row of the profiler's table. Raises `StopIteration` if the recording lacks it."""
    return next(iter(averages(device, experiment, name)))


@claim("R1", at_least(3), scope="timing")
def total_to_self(device: Device) -> Figure:
    """The total CPU time of `aten::linear` is at least three times its self time, because it calls other operators."""
    row = average(device, "mlp/eager", "aten::linear")
    return Figure(row.cpu_us / row.self_cpu_us, "x", origin="mlp/eager, CPU total over self CPU of aten::linear")


def summed_to_busy(run: Run) -> Figure:
    """How often a step counts the time in which its GPU works, when it adds up its kernels."""
    return run.per_step(
        lambda step: math.fsum(kernel.duration_us for kernel in step.kernels) / busy_us(step.activities), "x"
    )


@claim("R2", at_least(1.5), scope="timing")
def overlapping(device: Device) -> Figure:
    """Two kernels on two streams add up to at least 1.5 times the time in which the GPU works."""
    return summed_to_busy(device["trace_rows/two_streams"])


@claim("R3", equals(2))
def streams_annotated(device: Device) -> Figure:
    """An annotation around work on two streams appears twice a step on the GPU, once for each stream."""
    run = device["trace_rows/two_streams"]
    spans = [span for span in run.trace.gpu_annotations if span.name == run.label]
    return Figure(len(spans) // len(run.trace.steps), origin=f"{run.origin}, annotations on the GPU a step")


def launches(step: Step) -> list[CudaCall]:
    """The launches of kernels in a step."""
    return [call for call in step.calls if fnmatchcase(call.name, LAUNCHES)]


def longest_launch(device: Device) -> CudaCall:
    """The longest launch of the step that fills the queue."""
    return max(launches(device[QUEUE].step), key=lambda call: call.duration_us)


@claim("R4", between(900, 1100), scope="this-gpu")
def queued(device: Device) -> Figure:
    """About a thousand launches return at once, and the next one waits until the GPU has finished a kernel."""
    return Figure(launches(device[QUEUE].step).index(longest_launch(device)), origin=f"{QUEUE}, launches before")


@claim("R5", at_least(100), scope="timing")
def waiting_launch(device: Device) -> Figure:
    """The launch that finds the queue full takes at least a hundred times as long as the median launch."""
    median = statistics.median(call.duration_us for call in launches(device[QUEUE].step))
    return Figure(longest_launch(device).duration_us / median, "x", origin=f"{QUEUE}, longest over median launch")


@claim("R6", at_least(90), scope="timing")
def buffer_full(device: Device) -> Figure:
    """A row `Command Buffer Full` covers at least 90 % of the launch that waits."""
    launch = longest_launch(device)
    rows = [span for span in device[QUEUE].trace.overheads if span.name == "Command Buffer Full"]
    inside = math.fsum(_shared_us(row, launch) for row in rows)
    return Figure(100 * inside / launch.duration_us, "%", origin=f"{QUEUE}, Command Buffer Full of the longest launch")


def _shared_us(one: Span, other: Span) -> float:
    """How long two spans run at once."""
    return max(0.0, min(one.end_us, other.end_us) - max(one.start_us, other.start_us))


@claim("R7", equals(True))
def waits_for_the_sum(device: Device) -> Figure:
    """`.item()` waits: `cudaStreamSynchronize` ends after the copy of the number to the host has ended."""
    run = device["trace_rows/item"]
    return run.per_step(lambda step: _wait(step).end_us >= step.memcpys[-1].end_us)


def _wait(step: Step) -> CudaCall:
    return next(call for call in step.calls if call.name == "cudaStreamSynchronize")


@claim("R8", equals(5))
def five_copies(device: Device) -> Figure:
    """All five lines that copy end in `aten::copy_`."""
    return device["trace_rows/copies"].per_step(lambda step: sum(op.name == "aten::copy_" for op in step.ops))


def host_copy_us(step: Step, memory: str) -> float:
    """Time of the copy from one kind of host memory: Pageable or Pinned."""
    return next(copy.duration_us for copy in step.memcpys if memory in copy.name)


@claim("R9", at_least(1.5), scope="timing")
def pageable_to_pinned(device: Device) -> Figure:
    """A copy from pageable memory takes at least 1.5 times as long as one from pinned memory."""
    return device["trace_rows/copies"].per_step(
        lambda step: host_copy_us(step, "Pageable") / host_copy_us(step, "Pinned"), "x"
    )


@claim("R10", equals("aten::sum"))
def fills(device: Device) -> Figure:
    """The fill of a few bytes before a long sum is launched by `aten::sum` itself."""
    return device["trace_rows/item"].per_step(lambda step: ", ".join(_owner(fill.op) for fill in step.memsets))


def _owner(op: CpuOp | None) -> str:
    return op.name if op else "none"


@claim("R11", equals(True))
def region_of_a_graph(device: Device) -> Figure:
    """`## Call CompiledFxGraph` lies in `Torch-Compiled Region`, and all kernels of the forward in it."""
    run = device["mlp/compiled"]
    return run.per_step(lambda step: all(_in_compiled_graph(kernel.op) for kernel in step.kernels))


def _in_compiled_graph(op: CpuOp | None) -> bool:
    names = [each.name for each in op.chain] if op else []
    called = [index for index, name in enumerate(names) if name.startswith("## Call CompiledFxGraph")]
    return bool(called) and any(name.startswith("Torch-Compiled Region") for name in names[: called[0]])


@claim("R12", equals(True))
def backward_elsewhere(device: Device) -> Figure:
    """The rows `autograd::engine::evaluate_function` are on another thread than the forward."""
    return device["trace_rows/train"].per_step(_backward_elsewhere)


def _backward_elsewhere(step: Step) -> bool:
    threads = {op.thread for op in step.ops if op.name.startswith("autograd::engine::evaluate_function")}
    forward = {op.thread for op in step.ops if op.name == "aten::linear"}
    return bool(threads) and not threads & forward


@claim("R13", at_least(1))
def freed(device: Device) -> Figure:
    """With `profile_memory`, some rows have negative bytes, because they freed more than they allocated."""
    rows = device["trace_rows/memory"].data["rows"]
    return Figure(sum(row["self_bytes"] < 0 for row in rows), origin="trace_rows/memory, rows with negative bytes")


@claim("R14", at_least(4))
def without_gpu(device: Device) -> Figure:
    """In an eager MLP, at least four of the operators that appear as rows put nothing on the GPU."""
    idle = [row.name for row in key_averages(device["mlp/eager"].trace) if row.is_idle]
    return Figure(len(idle), origin="mlp/eager, operators without GPU time", display=", ".join(sorted(idle)))


@claim("R15", equals(True))
def launched_by_replay(device: Device) -> Figure:
    """In a replayed CUDA graph, one `cudaGraphLaunch` puts all kernels on the GPU."""
    return device["trace_rows/graph"].per_step(
        lambda step: {_launch(kernel.launch) for kernel in step.kernels} == {"cudaGraphLaunch"}
    )


def _launch(call: CudaCall | None) -> str:
    return call.name if call else "none"


def closing_wait(device: Device) -> Figure:
    """How long after the last step the profiler's own `cudaDeviceSynchronize` begins."""
    trace = device["mlp/eager"].trace
    wait = next(call for call in reversed(trace.calls) if call.name == "cudaDeviceSynchronize")
    return Figure(wait.start_us - trace.steps[-1].end_us, "us", origin="mlp/eager, cudaDeviceSynchronize after the end")


@claim("R16", at_least(0), scope="timing")
def closing_wait_is_outside(device: Device) -> Figure:
    """The `cudaDeviceSynchronize` at the end of a trace begins after the last step: it is the profiler's own."""
    return closing_wait(device)


@claim("R17", at_least(1.2), scope="timing")
def first_to_next(device: Device) -> Figure:
    """The first training step of a process takes the CPU at least 20 % longer than the second."""
    first, second, *_ = device["trace_rows/first"].trace.steps
    ratio = (first.end_us - first.start_us) / (second.end_us - second.start_us)
    return Figure(ratio, "x", origin="trace_rows/first, first step over second")


FIGURES = {
    "queued_launches": lambda device: Figure(queued(device).value, origin=QUEUE),
    "waiting_us": lambda device: Figure(longest_launch(device).duration_us, "us", origin=QUEUE),
    "median_launch": lambda device: Figure(
        statistics.median(call.duration_us for call in launches(device[QUEUE].step)), "us", origin=QUEUE
    ),
    "summed_factor": lambda device: summed_to_busy(device["trace_rows/two_streams"]),
    "pageable_factor": lambda device: pageable_to_pinned(device),
    "wait": lambda device: device["trace_rows/item"].per_step(lambda step: _wait(step).duration_us, "us"),
    "closing_wait": closing_wait,
    "linear_self": lambda device: derived(
        average(device, "mlp/eager", "aten::linear").self_cpu_us, total_to_self(device), unit="us"
    ),
    "linear_total": lambda device: derived(
        average(device, "mlp/eager", "aten::linear").cpu_us, total_to_self(device), unit="us"
    ),
}


self_and_total = partial(
    rows_of,
    experiment="mlp/eager",
    patterns=("ProfilerStep*", "mlp_fwd", "aten::linear", "aten::matmul", "aten::mm"),
    caption="Each row calls the next",
)
compiled_rows = partial(
    rows_of,
    experiment="mlp/compiled",
    patterns=("TorchDynamo*", "Pregraph*", "Torch-Compiled*", "AOTDispatcher*", "## Call*", "aten::mm", "triton*"),
    caption="A compiled forward",
)
idle_rows = partial(
    rows_of,
    experiment="mlp/eager",
    patterns=("aten::t", "aten::transpose", "aten::as_strided", "aten::view", "aten::reshape", "aten::_unsafe_view"),
    caption="Operators that only rewrite metadata",
)
training_rows = partial(
    rows_of,
    experiment="trace_rows/train",
    patterns=("autograd::engine*", "*Backward0", "Optimizer*"),
    caption="Rows of backward and optimizer",
)
copy_rows = partial(
    rows_of,
    experiment="trace_rows/copies",
    patterns=("aten::to", "aten::_to_copy", "aten::contiguous", "aten::clone", "aten::copy_"),
    caption="Five copies, one operator",
)
both_streams = partial(
    timeline, variants={"two streams": "trace_rows/two_streams"}, caption="Two running sums on two streams"
)
the_copies = partial(kernel_table, experiment="trace_rows/copies")
the_sum = partial(timeline, variants={"sum and look": "trace_rows/item"}, caption="A sum that the CPU looks at")


def memory_rows(device: Device) -> Html:
    """The rows that allocate and free the most, over three steps."""
    data = sorted(device["trace_rows/memory"].data["rows"], key=lambda row: -abs(row["self_bytes"]))
    rows: list[Sequence[Cell]] = [
        [code(row["name"], 44), _signed(row["self_bytes"]), _signed(row["bytes"]), row["calls"]] for row in data[:6]
    ]
    return table("Bytes that a row allocated less those it freed", ["row", "self", "total", "calls"], rows)


def _signed(bytes_: int) -> str:
    return f"{'-' if bytes_ < 0 else ''}{format_value(abs(bytes_), 'bytes')}"
