"""The state of the CPU at each time, as far as a trace shows it: the calls, operators and functions of each cause."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Literal, TypeVar, get_args

from kinetoscope.diagnosis.sites import find_sites
from kinetoscope.trace.events import (
    CpuOp,
    CudaCall,
    GpuActivity,
    PythonFunction,
    Span,
    Trace,
    by_start,
    last_end_us,
    outer_first,
    starting_in,
)
from kinetoscope.trace.intervals import Interval, intersect, interval, ns, subtract, union, union_of
from kinetoscope.trace.queries import copy_direction, is_sync

Cause = Literal[
    "garbage collection",
    "compiling",
    "data loading",
    "memory allocation",
    "pageable copy",
    "launching",
    "synchronization",
    "Python",
    "nothing recorded",
]
CAUSES: tuple[Cause, ...] = get_args(Cause)
"""By precedence: the first cause at a time is the CPU's state, so a launch on one thread precedes a wait on another."""
_ALLOCATION = re.compile(
    r"(cuda|hip)(Malloc|Free)(Host|Managed|Pitch|3D|Array)?(_\w+)?|cuda(Host|Free)(Alloc|Register|Unregister|Host)"
    r"|hipHost(Malloc|Free|Alloc|Register|Unregister)|hipExtMallocWithFlags|cuMem(Alloc|Free|AllocHost|FreeHost|HostAlloc)(_v2)?"
    r"|(cu|hip)Mem(Create|Release|Map|Unmap|SetAccess|AddressReserve|AddressFree)"
    r"|zeMem(Alloc(Device|Host|Shared)|Free)|urUSM((Device|Host|Shared)Alloc|Free)"
)
_QUERY = re.compile(r"(cuda|hip|cu)(Event|Stream)Query(_\w+)?")
_COMPILING_OP = re.compile(r".* \(dynamo_timed\)|entire_frame_compile|compile_fx|dynamo")
_COMPILING_FUNCTION = re.compile(
    r"(.*[/\\])?torch[/\\]_dynamo[/\\]convert_frame\.py\(\d+\): (_compile|compile_inner)"
    r"|(.*[/\\])?triton[/\\]compiler[/\\]compiler\.py\(\d+\): compile"
)
_COLLECTING = re.compile(r"Python GC|<built-in function collect>|gc \(dynamo_timed\)")
_LOADING = re.compile(r"enumerate\(DataLoader\)#.*")
_LOADING_FUNCTION = re.compile(r"(.*[/\\])?torch[/\\]utils[/\\]data[/\\]dataloader\.py\(\d+\): __next__")
_LOADED_BY_WORKERS = re.compile(r"enumerate\(DataLoader\)#_MultiProcessing.*")
_IDLE: tuple[Cause, ...] = ("data loading", "pageable copy", "synchronization")
"""Causes in which the CPU may wait; in those before Python that are not here, it works."""
_SHORT_NS = 1_000_000
"""Between two events of a pause, Python runs; a longer gap may be anything."""
E = TypeVar("E", bound=Span)
CpuSpan = CpuOp | CudaCall | PythonFunction


def named(spans: Sequence[E], pattern: re.Pattern[str]) -> list[E]:
    """The spans whose whole name matches the pattern, which is matched once per name."""
    names = {name for name in {span.name for span in spans} if pattern.fullmatch(name)}
    return [span for span in spans if span.name in names] if names else []


def is_pageable_upload(activity: GpuActivity) -> bool:
    """Whether an activity copies from pageable memory of the host to the GPU."""
    return activity.kind == "memcpy" and copy_direction(activity.name) == "HtoD" and "Pageable" in activity.name


def is_download(activity: GpuActivity) -> bool:
    """Whether an activity copies from the GPU to the host."""
    return activity.kind == "memcpy" and copy_direction(activity.name) == "DtoH"


def launcher(activity: GpuActivity) -> CpuOp | CudaCall | None:
    """The operator that launched an activity, else the launch: ids of old traces lead to unrelated operators."""
    op, call = activity.op, activity.launch
    if call is None or op is None or op.is_annotation or op.thread != call.thread:
        return call
    return op if op.start_us <= call.start_us < op.end_us else call


def outermost(spans: Iterable[E]) -> list[E]:
    """The spans, in start order, that start outside all earlier spans of the list."""
    chosen: list[E] = []
    reached = float("-inf")
    for span in spans:
        if span.start_us >= reached:
            chosen.append(span)
            reached = span.end_us
    return chosen


@dataclass(frozen=True)
class CpuStates:
    """The states of the threads that launch GPU work."""

    trace: Trace
    threads: frozenset[str]
    activities: Sequence[GpuActivity]
    steps: Sequence[Interval] = ()
    """The times of steps that an annotation marks: there, Python runs wherever nothing else is recorded."""

    @cached_property
    def ops(self) -> list[CpuOp]:
        """Operators and annotations on these threads."""
        return [op for op in self.trace.cpu_ops if op.thread in self.threads]

    @cached_property
    def calls(self) -> list[CudaCall]:
        """CUDA calls on these threads."""
        return [call for call in self.trace.calls if call.thread in self.threads]

    @cached_property
    def functions(self) -> list[PythonFunction]:
        """Python functions on these threads."""
        return [function for function in self.trace.functions if function.thread in self.threads]

    @cached_property
    def syncs(self) -> list[CudaCall]:
        """Calls that wait for the GPU. A copy to pageable memory waits inside its own call."""
        downloads = {id(a.launch) for a in self.activities if is_download(a) and "Pageable" in a.name}
        return [call for call in self.calls if is_sync(call.name) or id(call) in downloads]

    @cached_property
    def _op_names(self) -> frozenset[str]:
        return frozenset(op.name for op in self.ops)

    def _named_ops(self, pattern: re.Pattern[str]) -> list[CpuOp]:
        return named(self.ops, pattern) if any(map(pattern.fullmatch, self._op_names)) else []

    @cached_property
    def spans(self) -> dict[Cause, list[CpuSpan]]:
        """The spans of each cause that occurs, in start order; spans of a cause may nest."""
        copying = [a.launch for a in self.activities if a.launch is not None and is_pageable_upload(a)]
        sites = find_sites(self.trace, [(call.thread, call.start_us) for call in copying]) if copying else []
        annotated, nested = self._named_ops(_COLLECTING), self._named_ops(_COMPILING_OP)
        collecting: list[CpuSpan] = [*named(self.functions, _COLLECTING), *annotated]
        compiling: list[CpuSpan] = [*named(self.functions, _COMPILING_FUNCTION), *nested]
        spans: dict[Cause, Iterable[CpuSpan]] = {
            "garbage collection": collecting,
            "compiling": (span for span in compiling if not _COLLECTING.fullmatch(span.name)),
            "data loading": self._named_ops(_LOADING) or named(self.functions, _LOADING_FUNCTION),
            "memory allocation": named(self.calls, _ALLOCATION),
            "pageable copy": (site.op or call for call, site in zip(copying, sites, strict=True)),
            "synchronization": self.syncs,
        }
        found = {cause: sorted(each, key=by_start) for cause, each in spans.items()}
        return found | {"launching": [op for op in self.ops if not op.is_annotation]}

    @cached_property
    def _times(self) -> dict[Cause, list[Interval]]:
        return {
            cause: self._launching() if cause == "launching" else union_of(spans) for cause, spans in self.spans.items()
        }

    def _launching(self) -> list[Interval]:
        """Times inside an operator or call, not waiting, on any thread: one thread may launch while another waits."""
        work: dict[str, list[Span]] = {thread: [] for thread in self.threads}
        waits: dict[str, list[Span]] = {thread: [] for thread in self.threads}
        for op in self.spans["launching"]:
            work[op.thread].append(op)
        queries = {id(call) for call in named(self.calls, _QUERY)}
        for call in self.calls:
            if id(call) not in queries:
                work[call.thread].append(call)
        for call in self.syncs:
            waits[call.thread].append(call)
        times = [subtract(_times_of(work[thread]), union_of(waits[thread])) for thread in work]
        return times[0] if len(times) == 1 else union(chain.from_iterable(times))

    @cached_property
    def recorded(self) -> list[Interval]:
        """Times in which Python runs or something is recorded: from the first to the last event, but with marked steps
        not in the pauses between them, unless the pause has events. In a trace that shows calls alone, only during
        calls and in the short gaps between them."""
        if self._shows_calls_alone:
            return _with_short_gaps(union_of(sorted([*self.calls, *self.between_steps], key=by_start)))
        if self.steps:
            return self._recorded_around_steps()
        spans = [*self.ops[:1], *self.calls[:1], *self.functions[:1]]
        start = min((interval(span)[0] for span in spans), default=0)
        end = ns(max(last_end_us(self.ops), last_end_us(self.calls), last_end_us(self.functions)))
        return [(start, end)] if start < end else []

    def _recorded_around_steps(self) -> list[Interval]:
        """The steps, if they have an event, and the events between them, with the short gaps between these times."""
        if not (self.ops or self.calls or self.functions):
            return []
        return _with_short_gaps(union([*self.steps, *map(interval, self.between_steps)]))

    @property
    def _shows_calls_alone(self) -> bool:
        """Whether these threads have calls, but neither operators nor functions: then nothing tells that Python
        runs."""
        return bool(self.calls) and not self.functions and all(op.is_annotation for op in self.ops)

    def unrecorded(self, windows: Sequence[Interval]) -> list[Interval]:
        """Times without any call, function or span of a cause: all of them in a trace that shows calls alone, else
        those that last long, since Python runs in the short ones."""
        times = [*self._times.values(), union_of(self.calls), union_of(self.functions)]
        rest = subtract(windows, union(chain.from_iterable(times)))
        return rest if self._shows_calls_alone else [each for each in rest if each[1] - each[0] >= _SHORT_NS]

    @cached_property
    def between_steps(self) -> list[CpuSpan]:
        """The outermost events of each thread that begin and end between two steps."""
        lists: tuple[Sequence[CpuSpan], ...] = (self.ops, self.calls, self.functions)
        found: list[CpuSpan] = []
        for (_, pause), (end, _) in pairwise(self.steps):
            starting = [span for spans in lists for span in starting_in(spans, pause / 1000, end / 1000)]
            within = sorted((span for span in starting if interval(span)[1] <= end), key=outer_first)
            for thread in self.threads:
                found += outermost(span for span in within if span.thread == thread)
        return found

    def partition(self, windows: Sequence[Interval]) -> dict[Cause, list[Interval]]:
        """Divide `windows`, sorted and disjoint, among the causes."""
        rest = list(windows)
        parts: dict[Cause, list[Interval]] = {}
        for cause in CAUSES:
            if cause == "Python":
                times = self.recorded
            elif cause == "nothing recorded":
                times = rest
            else:
                times = self._times[cause]
            parts[cause] = intersect(rest, times)
            rest = subtract(rest, times)
        return parts

    def idle(self, windows: Sequence[Interval]) -> list[Interval]:
        """Times in which the CPU waits for the GPU or for a loader's workers, or has no recorded event.

        As `partition` tells, without its millions of intervals: most times are subtracted from few.
        """
        unseen = subtract(windows, self.recorded)
        waits = intersect(windows, union_of([*self.syncs, *named(self.spans["data loading"], _LOADED_BY_WORKERS)]))
        idle: list[Interval] = []
        for cause in CAUSES[: CAUSES.index("Python")]:
            times = self._times[cause]
            unseen = subtract(unseen, times)
            if cause in _IDLE:
                idle += intersect(waits, times)
            waits = subtract(waits, times)
        return union([*idle, *waits, *unseen])


def _with_short_gaps(times: list[Interval]) -> list[Interval]:
    """Sorted, disjoint times with the short gaps between them."""
    return union([*times, *((end, start) for (_, end), (start, _) in pairwise(times) if start - end < _SHORT_NS)])


def _times_of(spans: list[Span]) -> list[Interval]:
    """The times of operators and then calls, each in start order."""
    spans.sort(key=by_start)
    return union_of(spans)
