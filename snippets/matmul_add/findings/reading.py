"""How the traces of matmul and add are read. What a trace lacks is a `TraceError`: not measured."""

import math
from collections.abc import Callable, Iterable

import msgspec

from snippets.lab.finding import Device, Figure, Run, TraceError, derived, format_value
from snippets.lab.trace.averages import key_averages
from snippets.lab.trace.events import CpuOp, CudaCall, GpuActivity, Span, Step, Trace
from snippets.lab.trace.queries import busy_us, require_steps

LABEL = "matmul_add"
MATMULS = ("aten::mm", "aten::bmm", "aten::addmm")
SWEEPS = {"Eager": "matmul_add/sweep_eager", "Compiled": "matmul_add/sweep_compiled"}


def op_named(step: Step, name: str) -> CpuOp:
    """The first operator or annotation of a step whose name starts with `name`."""
    op = next((op for op in step.ops if op.name.startswith(name)), None)
    if op is None:
        raise TraceError(f"{step.name} has no {name!r}")
    return op


def matmul(step: Step) -> tuple[GpuActivity, CpuOp]:
    """The first kernel that a matmul of a step launched, and its operator."""
    for kernel in step.kernels:
        if kernel.op is not None and kernel.op.name in MATMULS:
            return kernel, kernel.op
    raise TraceError(f"{step.name} has no kernel of {', '.join(MATMULS)}")


def calls_under(step: Step, name: str) -> tuple[CudaCall, ...]:
    """The CUDA calls that began inside an operator."""
    return step.calls_in(op_named(step, name))


def names(spans: Iterable[Span | None]) -> str:
    """What operators or calls are called, in order."""
    return ", ".join(span.name if span else "none" for span in spans) or "none"


def is_query(call: CudaCall) -> bool:
    """Whether a call asks how many blocks or clusters fit, rather than putting work on the GPU."""
    return call.name.startswith("cudaOccupancy")


def gap_us(step: Step) -> float:
    """From entering the label to the start of `aten::matmul`."""
    return round(op_named(step, "aten::matmul").start_us - op_named(step, LABEL).start_us, 3)


def hole(step: Step) -> Span:
    """The time between the first two kernels of a step."""
    if len(step.kernels) < 2:
        raise TraceError(f"{step.name} has no two kernels")
    start = step.kernels[0].end_us
    return Span("hole", start, round(step.kernels[1].start_us - start, 3))


def requests(trace: Trace, start_us: float = -math.inf, end_us: float = math.inf) -> list[Span]:
    """The profiler's requests for a buffer that overlap a stretch of time."""
    require_steps(trace)
    named = [span for span in trace.overheads if span.name == "Activity Buffer Request"]
    return [span for span in named if span.start_us < end_us and span.end_us > start_us]


def closing_wait(trace: Trace) -> CudaCall:
    """The last `cudaDeviceSynchronize`."""
    waits = [call for call in trace.calls if call.name == "cudaDeviceSynchronize"]
    if not waits:
        raise TraceError("no cudaDeviceSynchronize in the trace")
    return waits[-1]


def busy_within_us(trace: Trace, span: Span) -> float:
    """Time in which the GPU was busy during a stretch of CPU time."""
    inside = [one for one in trace.activities if one.start_us < span.end_us and one.end_us > span.start_us]
    bounds = [(max(one.start_us, span.start_us), min(one.end_us, span.end_us)) for one in inside]
    return busy_us(
        msgspec.structs.replace(one, start_us=start, duration_us=end - start)
        for one, (start, end) in zip(inside, bounds, strict=True)
    )


def busy_percent_of_wait(trace: Trace) -> float:
    """Percent of the closing wait in which the GPU worked."""
    wait = closing_wait(trace)
    return 100 * busy_within_us(trace, wait) / wait.duration_us


def self_cpu_us(trace: Trace) -> float:
    """The profiler's `Self CPU time total`: of operators, annotations and CUDA calls."""
    return round(math.fsum(row.self_cpu_us for row in key_averages(trace)), 3)


def self_gpu_us(trace: Trace) -> float:
    """The profiler's `Self CUDA time total`: kernels, copies and fills."""
    return round(sum(activity.duration_us for activity in trace.activities), 3)


def first_to_rest(run: Run, of: Callable[[Step], float]) -> Figure:
    """How many times the first step's value is the largest of the others; all the values in words."""
    first, *rest = (of(step) for step in run.steps)
    if not rest or max(rest) <= 0:
        raise TraceError("one step alone cannot be compared")
    display = f"{format_value(first, 'us')}, then {' and '.join(format_value(us, 'us') for us in rest)}"
    return Figure(first / max(rest), "x", origin=run.origin, display=display)


def across(
    device: Device, of: Callable[[Step], int | str], *experiments: str, by: str = " → ", unit: str = ""
) -> Figure:
    """What each of several experiments shows in all of its steps, joined: `2 → 1`; with a unit, written in it."""
    figures = [device[f"matmul_add/{name}"].per_step(of) for name in experiments]
    display = by.join(format_value(figure.number, unit) for figure in figures) if unit else ""
    return derived(by.join(str(figure.value) if unit else figure.text for figure in figures), *figures, display=display)


def is_unchanged(figure: Figure) -> bool:
    """Whether the same is on both sides of the arrow: a band."""
    return len(set(str(figure.value).split(" → "))) == 1
