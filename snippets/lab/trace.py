"""A profiler trace as data, and the questions one asks of it. `kineto.read` makes one out of a file.

Times are microseconds since the first event that is kept, with three decimals. Names are the profiler's own, untouched:
they are untrusted text, and whoever shows them escapes them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal, TypeVar

from msgspec import Struct

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S", bound="Span")
Triple = tuple[int, int, int]
Shapes = tuple[tuple[int, ...], ...]
Kind = Literal["kernel", "memcpy", "memset"]


class TraceError(ValueError):
    """Says what is wrong with a trace and what to do about it."""


class Span(Struct, frozen=True, gc=False):
    """A named stretch of time: profiler overhead, or an annotation mirrored on the GPU."""

    name: str
    start_us: float
    duration_us: float

    @property
    def end_us(self) -> float:
        """Where it ends, on the clock of `start_us`."""
        return round(self.start_us + self.duration_us, 3)


class CpuOp(Span, frozen=True, gc=False):
    """An operator or an annotation on a CPU thread; `index` and `parent` are places in `Trace.cpu_ops`."""

    thread: str  # "pid/tid"
    external_id: int | None = None
    is_annotation: bool = False
    input_shapes: Shapes = ()  # one per input, () for a scalar; the tensors of a list in its place
    input_strides: Shapes = ()  # as the shapes
    input_types: tuple[str, ...] = ()  # one per input, c10::BFloat16, Scalar, or empty; of a list, one for all of it
    parent: int | None = None
    index: int = 0


class Launch(Span, frozen=True, gc=False):
    """A call of the CUDA runtime or driver: launches, copies, but also queries and waits."""

    thread: str
    correlation: int  # 0 when the trace gives none
    external_id: int | None = None
    is_driver: bool = False


class GpuActivity(Span, frozen=True, gc=False):
    """A kernel, a copy or a fill on a stream of a GPU."""

    kind: Kind
    device: int
    stream: int
    correlation: int | None = None
    external_id: int | None = None
    grid: Triple | None = None
    block: Triple | None = None
    registers: int | None = None  # per thread
    shared_memory_bytes: int | None = None
    moved_bytes: int | None = None
    occupancy_percent: float | None = None


class Step(Struct, frozen=True, gc=False):
    """One `ProfilerStep#N`: what began in it on the CPU, on any thread, and the GPU work launched from it."""

    number: int
    name: str
    start_us: float
    end_us: float
    ops: tuple[CpuOp, ...]
    launches: tuple[Launch, ...]
    activities: tuple[GpuActivity, ...]

    @property
    def kernels(self) -> tuple[GpuActivity, ...]:
        """The kernels, in GPU start order."""
        return tuple(a for a in self.activities if a.kind == "kernel")

    @property
    def memcpys(self) -> tuple[GpuActivity, ...]:
        """The copies, in GPU start order."""
        return tuple(a for a in self.activities if a.kind == "memcpy")

    @property
    def memsets(self) -> tuple[GpuActivity, ...]:
        """The fills, in GPU start order."""
        return tuple(a for a in self.activities if a.kind == "memset")


class Trace(Struct, frozen=True, dict=True):
    """A whole trace, every tuple in start order. `unattributed` is the GPU work that belongs to no step."""

    device: str | None
    device_properties: dict[str, Any]
    cpu_ops: tuple[CpuOp, ...]
    launches: tuple[Launch, ...]
    activities: tuple[GpuActivity, ...]
    steps: tuple[Step, ...]
    overheads: tuple[Span, ...]
    gpu_annotations: tuple[Span, ...]
    unattributed: tuple[GpuActivity, ...]

    @cached_property
    def _launch_by_correlation(self) -> dict[int | None, Launch]:
        return _by_correlation(self.launches)

    @cached_property
    def _op_by_external_id(self) -> dict[int | None, CpuOp]:
        return {op.external_id: op for op in reversed(self.cpu_ops) if op.external_id is not None}

    @cached_property
    def _ops_of_thread(self) -> dict[str, list[CpuOp]]:
        return _grouped((op.thread, op) for op in self.cpu_ops)

    @cached_property
    def _launches_of_thread(self) -> dict[str, list[Launch]]:
        return _grouped((launch.thread, launch) for launch in self.launches)

    @cached_property
    def _children(self) -> dict[int | None, list[CpuOp]]:
        return _grouped((op.parent, op) for op in self.cpu_ops)

    def launch_of(self, activity: GpuActivity) -> Launch | None:
        """The call that put `activity` on the GPU; one `cudaGraphLaunch` may own many."""
        return self._launch_by_correlation.get(activity.correlation)

    def launch_delay_us(self, activity: GpuActivity) -> float | None:
        """From the start of the launching call to the start on the GPU."""
        launch = self.launch_of(activity)
        return None if launch is None else round(activity.start_us - launch.start_us, 3)

    def op_of(self, activity: GpuActivity) -> CpuOp | None:
        """The op with the activity's external id, else the innermost op around its launch on the launching thread."""
        op = self._op_by_external_id.get(activity.external_id)
        if op is not None or (launch := self.launch_of(activity)) is None:
            return op
        if (op := self._op_by_external_id.get(launch.external_id)) is not None:
            return op
        ops = self._ops_of_thread.get(launch.thread, [])
        before = bisect_right(ops, launch.start_us, key=_start_us)
        op = ops[before - 1] if before else None
        while op is not None and op.end_us <= launch.start_us:
            op = None if op.parent is None else self.cpu_ops[op.parent]
        return op

    def dispatch_chain(self, op: CpuOp) -> tuple[CpuOp, ...]:
        """What called what, outermost first (usually the step's own span), ending with `op`."""
        chain = [op]
        while chain[-1].parent is not None:
            chain.append(self.cpu_ops[chain[-1].parent])
        return tuple(reversed(chain))

    def children(self, op: CpuOp) -> tuple[CpuOp, ...]:
        """The ops directly inside `op`."""
        return tuple(self._children.get(op.index, ()))

    def launches_under(self, op: CpuOp) -> tuple[Launch, ...]:
        """The CUDA calls that began inside `op` on its thread."""
        return tuple(starting_in(self._launches_of_thread.get(op.thread, []), op.start_us, op.end_us))

    def label_span(self, step: Step, label: str) -> CpuOp | None:
        """The first annotation called `label` in `step`, as `record_function(label)` leaves it."""
        return next((op for op in step.ops if op.is_annotation and op.name == label), None)


def printable(name: str) -> str:
    """A name for a terminal, without control characters, direction marks or lone surrogates: it could hold commands."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in name)


def busy_us(activities: Iterable[GpuActivity]) -> float:
    """Time in which at least one activity ran: the union of their intervals over all streams, not their sum."""
    busy, reached = 0.0, -math.inf
    for activity in sorted(activities, key=_start_us):
        start, end = activity.start_us, activity.start_us + activity.duration_us
        if end > reached:
            busy += end - max(start, reached)
            reached = end
    return round(busy, 3)


def extent_us(activities: Sequence[GpuActivity]) -> float:
    """From the first start to the last end."""
    first = min((a.start_us for a in activities), default=0.0)
    return round(max((a.start_us + a.duration_us for a in activities), default=0.0) - first, 3)


def idle_us(activities: Sequence[GpuActivity]) -> float:
    """Time in which none ran, between the first start and the last end."""
    return max(0.0, round(extent_us(activities) - busy_us(activities), 3))


def kernel_time_us(activities: Iterable[GpuActivity]) -> float:
    """Sum of the kernels' durations; copies and fills do not count."""
    return round(math.fsum(a.duration_us for a in activities if a.kind == "kernel"), 3)


def steps_agree(trace: Trace) -> bool:
    """Whether all steps ran the same GPU work in the same order. One step alone agrees; no step does not."""
    sequences = ([(a.kind, a.name) for a in step.activities] for step in trace.steps)
    first = next(sequences, None)
    return first is not None and all(sequence == first for sequence in sequences)


def require_steps(trace: Trace) -> None:
    """Raise TraceError when there is no step to speak of."""
    if not trace.steps:
        raise TraceError(
            "no active steps: the trace has no ProfilerStep annotation. Profile with a schedule, call prof.step() "
            "after each iteration and run at least wait + warmup + active iterations"
        )


def require_kernels(trace: Trace) -> None:
    """Raise TraceError when no kernel was recorded, on any step or none."""
    if not any(activity.kind == "kernel" for activity in trace.activities):
        raise TraceError(
            "no GPU kernels in the trace. Check: ProfilerActivity.CUDA among the activities; that warm-up did not "
            "swallow the steps; that the work ran on the GPU; that the driver lets this user profile "
            "(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: load it with NVreg_RestrictProfilingToAdminUsers=0)"
        )


def _by_correlation(launches: tuple[Launch, ...]) -> dict[int | None, Launch]:
    return {launch.correlation: launch for launch in reversed(launches) if launch.correlation}


def _grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    groups: dict[K, list[V]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def starting_in(spans: Sequence[S], start_us: float, end_us: float) -> Sequence[S]:
    """The spans, sorted by start, that begin at `start_us` or later and before `end_us`."""
    return spans[bisect_left(spans, start_us, key=_start_us) : bisect_left(spans, end_us, key=_start_us)]


_start_us = attrgetter("start_us")
