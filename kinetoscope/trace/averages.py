"""`prof.key_averages()`, computed from a trace: CPU and GPU time by name, self and total.

As in torch's `profiler_util.py`: a span's self CPU time is its duration minus the spans directly inside it, CUDA calls
included. Its self GPU time is that of the work it launched directly; the total adds the work of all spans inside it. A
span whose only child has the same name, such as `aten::sum` within `aten::sum`, counts as one call with that child.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor
from typing import Literal

from kinetoscope.trace.events import CpuOp, CudaCall, Trace, by_start

Kind = Literal["operator", "annotation", "CUDA call"]
STEPS = "ProfilerStep*"
"""Torch gives all steps this one name."""
_CLOCK_NOISE_US = 0.002  # as in assembly.py: rounding may end a span this much after its parent


@dataclass
class Average:
    """Sums over all spans of one name, in microseconds. A name nested in itself counts twice in its totals."""

    name: str
    kind: Kind
    self_cpu_us: float = 0.0
    cpu_us: float = 0.0
    self_gpu_us: float = 0.0
    gpu_us: float = 0.0
    calls: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether this is an operator that launched no GPU work, directly or through its callees."""
        return self.kind == "operator" and self.gpu_us == 0


def key_averages(trace: Trace) -> tuple[Average, ...]:
    """Return the rows of the profiler's table for a whole trace, sorted by self GPU time, then self CPU time, down.

    Omits the rows that repeat GPU work under kernel names, and the profiler's overhead.
    """
    launched_us: dict[CpuOp, float] = defaultdict(float)
    for activity in trace.activities:
        if activity.op is not None:
            launched_us[activity.op] += activity.duration_us
    rows = _Rows()
    threads: dict[str, list[CpuOp | CudaCall]] = defaultdict(list)
    for spans in (trace.cpu_ops, trace.calls):
        for span in spans:
            threads[span.thread].append(span)
    for thread in sorted(threads):
        _add(rows, _by_start(threads[thread]), launched_us)
    return tuple(sorted(rows.values(), key=lambda row: (-row.self_gpu_us, -row.self_cpu_us, row.name)))


class _Rows(dict[tuple[Kind, str], Average]):
    def __missing__(self, key: tuple[Kind, str]) -> Average:
        kind, name = key
        return self.setdefault(key, Average(name, kind))


def _by_start(spans: list[CpuOp | CudaCall]) -> list[CpuOp | CudaCall]:
    """The spans in start order; of spans that start together, the longest comes first."""
    spans.sort(key=by_start)
    if any(one.start_us == next_.start_us and one.duration_us < next_.duration_us for one, next_ in pairwise(spans)):
        spans.sort(key=lambda span: (span.start_us, -span.duration_us))
    return spans


def _add(rows: _Rows, spans: Sequence[CpuOp | CudaCall], launched_us: dict[CpuOp, float]) -> None:
    """Add the spans of one thread, in start order, to the rows of their names."""
    parents, rows_of = _nest(rows, spans)
    children = array("I", bytes(4 * len(spans)))
    for parent in parents:
        if parent >= 0:
            children[parent] += 1
    inside_cpu, inside_gpu = (array("d", bytes(8 * len(spans))) for _ in range(2))
    for index in reversed(range(len(spans))):  # children follow their parent, so this adds them first
        span, parent, row = spans[index], parents[index], rows_of[index]
        gpu = launched_us.get(span, 0.0) if launched_us and isinstance(span, CpuOp) else 0.0
        duration_us = span.duration_us
        row.self_cpu_us += floor((duration_us - inside_cpu[index]) * 1000 + 0.5) / 1000  # as in_whole_ns, inlined
        if gpu:
            row.self_gpu_us += gpu
        if parent < 0:
            row.cpu_us += duration_us
            row.gpu_us += gpu + inside_gpu[index]
            row.calls += 1
            continue
        if children[parent] > 1 or rows_of[parent] is not row:
            row.cpu_us += duration_us
            row.gpu_us += gpu + inside_gpu[index]
            row.calls += 1
        inside_cpu[parent] += duration_us
        inside_gpu[parent] += gpu + inside_gpu[index]


def _row(rows: _Rows, span: CpuOp | CudaCall) -> Average:
    if isinstance(span, CudaCall):
        return rows["CUDA call", span.name]
    name = STEPS if span.name.startswith("ProfilerStep#") else span.name
    return rows["annotation" if span.is_annotation else "operator", name]


def _nest(rows: _Rows, spans: Sequence[CpuOp | CudaCall]) -> tuple[array[int], list[Average]]:
    """Return for each span the index of its parent, the innermost span around it that ends no earlier, -1 without one;
    and its row, which is looked for once for each name."""
    parents, rows_of = array("q"), []
    known: dict[tuple[bool | None, str], Average] = {}
    around: list[tuple[float, int]] = []  # end and index, innermost last
    for index, span in enumerate(spans):
        start = span.start_us
        end = floor((start + span.duration_us) * 1000 + 0.5) / 1000  # as in_whole_ns, inlined
        reach = end - _CLOCK_NOISE_US
        if reach < start + _CLOCK_NOISE_US:
            reach = start + _CLOCK_NOISE_US
        while around and around[-1][0] < reach:
            around.pop()
        parents.append(around[-1][1] if around else -1)
        around.append((end, index))
        key = span.is_annotation if isinstance(span, CpuOp) else None, span.name
        rows_of.append(known[key] if key in known else known.setdefault(key, _row(rows, span)))
    return parents, rows_of
