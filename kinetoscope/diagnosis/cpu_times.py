"""The CPU's time in steps: by state, by operator and by Python function; all times are means per step."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from msgspec import structs

from kinetoscope.diagnosis.cpu_states import CAUSES, Cause
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.sites import is_own_code
from kinetoscope.trace.events import CpuOp, CudaCall, PythonFunction, in_whole_ns
from kinetoscope.trace.intervals import Interval, contains, length_us, ns, union_of
from kinetoscope.trace.text import without_address

E = TypeVar("E", bound=CpuOp | CudaCall | PythonFunction)
STATES: dict[Cause, tuple[str, str]] = {
    "garbage collection": ("garbage collection", "Python frees objects"),
    "compiling": ("compiling", "Dynamo, Inductor or Triton compile"),
    "data loading": ("fetching batches", "the iterator of a DataLoader"),
    "memory allocation": ("CUDA's memory calls", "cudaMalloc, cudaFree"),
    "pageable copy": ("copies", "from memory that is not pinned"),
    "launching": ("operators", "PyTorch computes, or calls CUDA"),
    "synchronization": ("synchronize calls", "the CPU waits for a GPU"),
    "Python": ("code outside operators", "Python, files, the network, sleeping"),
    "nothing recorded": ("time in which nothing is recorded", "the threads of the steps show no event"),
}
"""Cause -> the CPU's activity, and its meaning."""


class OwnTime(NamedTuple):
    """Time of a name without what it calls, per step, and its calls in all steps."""

    us: float
    calls: int


def is_cpu_only(facts: Facts) -> bool:
    """Whether the program ran on the CPU as far as the trace shows: no work on a GPU and no call that could be work
    of which the events are lost."""
    trace = facts.trace
    return facts.has_operators and not (trace.activities or trace.calls or trace.unread)


def cpu_causes(facts: Facts) -> dict[Cause, float]:
    """Time by state of the steps' threads, the longest first; the times add up to a step."""
    times = {cause: length_us(facts.cpu_parts[cause]) / len(facts.steps) for cause in CAUSES}
    return dict(sorted(((cause, us) for cause, us in times.items() if us), key=lambda item: -item[1]))


def operator_times(facts: Facts) -> dict[str, OwnTime]:
    """Operators by their own time, the longest first, without operators that fetch batches."""
    return _by_name(own_times(facts.step_operators), len(facts.steps))


def call_times(facts: Facts) -> dict[str, OwnTime]:
    """Calls of the runtime outside of operators by their own time, the longest first; each until its step ends."""
    inside = union_of(facts.step_operators)
    calls = [call for call in facts.in_steps(facts.cpu.calls) if not contains(inside, ns(call.start_us))]
    starts = [start for start, _ in facts.windows]
    ends = (facts.windows[bisect_right(starts, ns(call.start_us)) - 1][1] / 1000 for call in calls)
    within = (
        structs.replace(call, duration_us=min(call.duration_us, end_us - call.start_us))
        for call, end_us in zip(calls, ends, strict=True)
    )
    return _by_name(own_times(within), len(facts.steps))


def function_times(facts: Facts) -> dict[str, OwnTime]:
    """Python functions by their own time, the longest first; an operator counts for its calling function."""
    functions = facts.in_steps(facts.cpu.functions)
    named = (structs.replace(each, name=without_address(each.name)) for each in functions)
    return _by_name(own_times(named), len(facts.steps))


def slowest_own_code(facts: Facts, windows: list[Interval]) -> str:
    """The program's function with the most time in `windows`, with the libraries that it calls; empty without stacks.

    Of nested functions the innermost counts: `data.py(12): <listcomp>` and not the loop around the loader. Time counts
    by the functions that begin in a window.
    """
    times: dict[str, int] = defaultdict(int)
    callers: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for function, own_ns in own_times(facts.cpu.functions):
        stack = callers[function.thread]
        while stack and stack[-1][0] <= function.start_us:
            stack.pop()
        name = function.name if is_own_code(function.name) else stack[-1][1] if stack else ""
        stack.append((function.end_us, name))
        if contains(windows, ns(function.start_us)):
            times[name] += own_ns
    times.pop("", None)
    return max(times, key=lambda name: (times[name], name)) if times else ""


def own_times(spans: Iterable[E]) -> Iterator[tuple[E, int]]:
    """Each span with its ns without the spans directly inside it on its thread; `spans` in start order, as are the
    pairs."""
    stacks: dict[str, list[tuple[float, int]]] = defaultdict(list)
    listed: list[E] = []
    own = array("q")
    for index, span in enumerate(spans):
        start_us, duration_ns = span.start_us, ns(span.duration_us)
        stack = stacks[span.thread]
        while stack and stack[-1][0] <= start_us:
            stack.pop()
        if stack:
            own[stack[-1][1]] -= duration_ns
        listed.append(span)
        own.append(duration_ns)
        stack.append((in_whole_ns(start_us + span.duration_us), index))
    return zip(listed, own, strict=True)


def _by_name(times: Iterable[tuple[CpuOp | CudaCall | PythonFunction, int]], steps: int) -> dict[str, OwnTime]:
    own: dict[str, int] = defaultdict(int)
    calls: dict[str, int] = defaultdict(int)
    for span, own_ns in times:
        own[span.name] += own_ns
        calls[span.name] += 1
    ordered = sorted(own.items(), key=lambda item: (-item[1], item[0]))
    return {name: OwnTime(total / 1000 / steps, calls[name]) for name, total in ordered}
