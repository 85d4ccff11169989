"""What `prof.key_averages()` computes, out of a trace: time on the CPU and on the GPU by name, own and in all.

As in torch's `profiler_util.py`: a span's own CPU time is its duration less what ran directly inside it, CUDA calls
included; its own GPU time is that of the work which it launched itself, and its total adds that of all inside it. A
span and the one of the same name that is alone inside it, such as `aten::sum` within `aten::sum`, count as one call.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Literal

from snippets.lab.trace.events import CpuOp, CudaCall, Trace

STEPS = "ProfilerStep*"
"""The one name of all steps, as torch has it."""
_CLOCK_NOISE_US = 0.002  # as in kineto: a span may seem to end that much after the one around it


@dataclass
class Average:
    """Sums over all spans of one name, in microseconds. In the totals a name inside itself counts twice."""

    name: str
    kind: Literal["operator", "annotation", "CUDA call"]
    self_cpu_us: float = 0.0
    cpu_us: float = 0.0
    self_gpu_us: float = 0.0
    gpu_us: float = 0.0
    calls: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether it is an operator that put no work on the GPU, and neither did anything that it called."""
        return self.kind == "operator" and self.gpu_us == 0


def key_averages(trace: Trace) -> tuple[Average, ...]:
    """The rows of the profiler's table, over all of a trace, most own GPU time first, then most own CPU time.

    Left out are rows that repeat GPU work under the kernels' own names, and the profiler's own overhead.
    """
    launched_us: dict[CpuOp, float] = defaultdict(float)
    for activity in trace.activities:
        if activity.op is not None:
            launched_us[activity.op] += activity.duration_us
    rows: dict[tuple[str, str], Average] = {}
    spans: list[CpuOp | CudaCall] = [*trace.cpu_ops, *trace.calls]
    spans.sort(key=lambda span: (span.thread, span.start_us, -span.duration_us))
    for _, of_thread in groupby(spans, key=attrgetter("thread")):
        _add(rows, list(of_thread), launched_us)
    return tuple(sorted(rows.values(), key=lambda row: (-row.self_gpu_us, -row.self_cpu_us, row.name)))


def _add(
    rows: dict[tuple[str, str], Average], spans: Sequence[CpuOp | CudaCall], launched_us: dict[CpuOp, float]
) -> None:
    """Add the spans of one thread, in start order, to the rows of their names."""
    parents = _parents(spans)
    children = Counter(parents)
    inside_cpu, inside_gpu = [0.0] * len(spans), [0.0] * len(spans)
    for index in reversed(range(len(spans))):  # what is inside a span comes after it
        span, parent = spans[index], parents[index]
        gpu = launched_us.get(span, 0.0) if isinstance(span, CpuOp) else 0.0
        row = _row(rows, span)
        row.self_cpu_us += round(span.duration_us - inside_cpu[index], 3)
        row.self_gpu_us += gpu
        if parent is None or children[parent] > 1 or _row(rows, spans[parent]) is not row:
            row.cpu_us += span.duration_us
            row.gpu_us += gpu + inside_gpu[index]
            row.calls += 1
        if parent is not None:
            inside_cpu[parent] += span.duration_us
            inside_gpu[parent] += gpu + inside_gpu[index]


def _row(rows: dict[tuple[str, str], Average], span: CpuOp | CudaCall) -> Average:
    if isinstance(span, CudaCall):
        return rows.setdefault(("CUDA call", span.name), Average(span.name, "CUDA call"))
    name = STEPS if span.name.startswith("ProfilerStep#") else span.name
    kind: Literal["annotation", "operator"] = "annotation" if span.is_annotation else "operator"
    return rows.setdefault((kind, name), Average(name, kind))


def _parents(spans: Sequence[CpuOp | CudaCall]) -> list[int | None]:
    """The place of the innermost span around each that reaches as far."""
    parents: list[int | None] = []
    around: list[int] = []
    for index, span in enumerate(spans):
        reach = max(span.start_us + _CLOCK_NOISE_US, span.end_us - _CLOCK_NOISE_US)
        while around and spans[around[-1]].end_us < reach:
            around.pop()
        parents.append(around[-1] if around else None)
        around.append(index)
    return parents
