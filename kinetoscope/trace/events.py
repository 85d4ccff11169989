"""The types of a profiler trace. `kineto.read_trace` reads one from a file; `queries` analyzes it.

Times are microseconds since the first kept event, with three decimals. Names are the profiler's, unchanged: untrusted
text, which the caller must escape before showing it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import floor
from operator import attrgetter
from typing import Any, Literal, TypeVar

from msgspec import Struct

from kinetoscope.trace.errors import TraceError as TraceError
from kinetoscope.trace.units import format_value

S = TypeVar("S", bound="Span")
Triple = tuple[int, int, int]
Shapes = tuple[tuple[int, ...], ...]
Kind = Literal["kernel", "memcpy", "memset"]


def in_whole_ns(us: float) -> float:
    """Microseconds rounded to three decimals, 4 times as fast as round()."""
    return floor(us * 1000 + 0.5) / 1000


class Span(Struct, frozen=True, gc=False):
    """A named stretch of time: profiler overhead, or an annotation mirrored on the GPU."""

    name: str
    start_us: float
    duration_us: float

    @property
    def end_us(self) -> float:
        """The end, on the clock of `start_us`."""
        return floor((self.start_us + self.duration_us) * 1000 + 0.5) / 1000  # as in_whole_ns, inlined


class CpuOp(Span, frozen=True, gc=False, eq=False):
    """An operator or an annotation on a CPU thread."""

    thread: str  # "pid/tid"
    external_id: int | None = None
    is_annotation: bool = False
    input_shapes: Shapes = ()  # one per input, () for a scalar; a list of tensors is replaced by its tensors
    input_strides: Shapes = ()  # same layout as input_shapes
    input_types: tuple[str, ...] = ()  # one per input: c10::BFloat16, Scalar, or empty; a list has one type
    parent: CpuOp | None = None  # the innermost op around it on its thread

    @property
    def chain(self) -> tuple[CpuOp, ...]:
        """The call chain, from the outermost op (usually the step's own span) to this op."""
        chain = [self]
        while chain[-1].parent is not None:
            chain.append(chain[-1].parent)
        return tuple(reversed(chain))


class CudaCall(Span, frozen=True, gc=False):
    """A call of the CUDA runtime or driver: a launch, a copy, a query or a wait."""

    thread: str
    correlation: int  # 0 if the trace has none
    external_id: int | None = None
    is_driver: bool = False


class Collective(Struct, frozen=True, gc=False):
    """The data of a collective, from the profiler's arguments."""

    name: str  # allreduce, _allgather_base, ...
    elements_in: int | None = None
    elements_out: int | None = None
    type: str = ""
    group_size: int | None = None
    group: str = ""  # the process group's name or description
    ranks: tuple[int, ...] = ()  # the members of the group in the whole job; () if the trace does not tell
    sequence: int | None = None  # number of the collective in its group
    peer: int | None = None  # of a send or a receive: the other rank in the whole job
    comms_id: int | None = None  # the same on all ranks of one collective
    rank: int | None = None  # the rank of this process in the whole job


class GpuActivity(Span, frozen=True, gc=False):
    """A kernel, memcpy or memset on a stream of a GPU."""

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
    launch: CudaCall | None = None  # the call that put it on the GPU; one cudaGraphLaunch may launch many
    op: CpuOp | None = None  # the op with its external id, else the innermost op around its launch
    collective: Collective | None = None  # of a kernel that communicates, from its arguments or its operators
    graph_id: int | None = None  # of work in a CUDA graph: the executable graph, and the node in it
    graph_node_id: int | None = None

    @property
    def launch_delay_us(self) -> float | None:
        """From the start of the launching call to the start on the GPU."""
        return None if self.launch is None else in_whole_ns(self.start_us - self.launch.start_us)


class PythonFunction(Span, frozen=True, gc=False):
    """A Python function on the stack, recorded with `with_stack`: `train.py(12): step`, or `nn.Module: Linear_0`."""

    thread: str


class StreamWait(Span, frozen=True, gc=False):
    """A wait: `Stream Sync`, `Event Sync` and `Context Sync` of the CPU, `Stream Wait Event` of a stream.

    It is no work of a GPU. The profiler records it with `enable_cuda_sync_events` of `experimental_config`.
    """

    correlation: int
    stream: int | None = None  # the stream that the CPU waits for, or the stream that waits
    waited_stream: int | None = None  # the stream that recorded the event


class CounterSample(Struct, frozen=True, gc=False):
    """A counter's value at a time: of the GPU's hardware, or of another tool."""

    name: str
    process: str  # "GPU 0 Counters"
    at_us: float
    value: float


class MemoryEvent(Struct, frozen=True, gc=False):
    """An allocation or a release, recorded with `profile_memory`."""

    at_us: float
    bytes: int  # negative: released
    total_allocated: int | None
    total_reserved: int | None
    device: int  # -1: the CPU
    address: int = 0  # of the block; 0 if the trace has none
    thread: str = ""  # that allocated or released it


class Uncounted(Struct, frozen=True):
    """GPU activities that belong to no step, for one reason."""

    reason: str
    activities: tuple[GpuActivity, ...]


class DamagedEvent(Struct, frozen=True):
    """An event with a missing or impossible value."""

    name: str
    recorded_us: float | None = None  # its duration in the file, if it is cut
    at_most_us: float | None = None  # the duration that counts; None if the event is left out


class Damage(Struct, frozen=True):
    """The events of a file with missing or impossible values, for one reason, and what the reader did with them."""

    reason: str
    done: str
    count: int
    events: tuple[DamagedEvent, ...]  # the longest, or one of each name, at most 10
    work: int = 0  # the events that are GPU work, calls or operators, or may be

    @property
    def text(self) -> str:
        """A sentence with the names of three events."""
        shown = ", ".join(_damaged_text(event) for event in self.events[:3])
        plural, more = "s" * (self.count != 1), ", ..." * (len(self.events) > 3)
        return f"damaged: {self.count:,} event{plural} {self.reason}, {self.done}{': ' * bool(shown)}{shown}{more}"


def _damaged_text(event: DamagedEvent) -> str:
    name = event.name[:80]
    if event.recorded_us is None:
        return name
    recorded, at_most = format_value(event.recorded_us, "us"), format_value(event.at_most_us or 0.0, "us")
    return f"{name} ({recorded} recorded, at most {at_most})"


class Step(Struct, frozen=True, gc=False):
    """A step: ops and CUDA calls that start in it, on any CPU thread, and the GPU work it launched.

    `Trace.steps_from` tells what marks steps in a trace.
    """

    number: int
    name: str
    start_us: float
    end_us: float
    ops: tuple[CpuOp, ...]
    calls: tuple[CudaCall, ...]
    activities: tuple[GpuActivity, ...]
    process: str = ""  # which of `Trace.processes`, where several ranks were merged into the file

    @property
    def kernels(self) -> tuple[GpuActivity, ...]:
        """The kernels, in GPU start order."""
        return tuple(a for a in self.activities if a.kind == "kernel")

    @property
    def memcpys(self) -> tuple[GpuActivity, ...]:
        """The memcpys, in GPU start order."""
        return tuple(a for a in self.activities if a.kind == "memcpy")

    @property
    def memsets(self) -> tuple[GpuActivity, ...]:
        """The memsets, in GPU start order."""
        return tuple(a for a in self.activities if a.kind == "memset")

    def children(self, op: CpuOp) -> tuple[CpuOp, ...]:
        """The ops directly inside `op`."""
        return tuple(child for child in self.ops if child.parent is op)

    def calls_in(self, op: CpuOp) -> tuple[CudaCall, ...]:
        """The CUDA calls that began inside `op` on its thread."""
        return tuple(call for call in starting_in(self.calls, op.start_us, op.end_us) if call.thread == op.thread)

    def find_annotation(self, label: str) -> CpuOp | None:
        """The first annotation named `label`, as `record_function(label)` records it."""
        return next((op for op in self.ops if op.is_annotation and op.name == label), None)


class Trace(Struct, frozen=True):
    """A whole trace, every tuple in start order. `unattributed` is the GPU work outside all steps, in start order."""

    device: str | None
    device_properties: dict[str, Any]
    cpu_ops: tuple[CpuOp, ...]
    calls: tuple[CudaCall, ...]
    activities: tuple[GpuActivity, ...]
    steps: tuple[Step, ...]
    overheads: tuple[Span, ...]
    gpu_annotations: tuple[CpuOp, ...]  # mirrored on the GPU, with device and stream as the thread
    unattributed: tuple[GpuActivity, ...]
    steps_from: str = "ProfilerStep"  # or another mark of steps: see marks.py
    uncounted: tuple[Uncounted, ...] = ()  # the activities of `unattributed`, by reason
    devices: tuple[dict[str, Any], ...] = ()  # `deviceProperties`, one for each GPU
    functions: tuple[PythonFunction, ...] = ()
    memory: tuple[MemoryEvent, ...] = ()
    stream_waits: tuple[StreamWait, ...] = ()
    counters: tuple[CounterSample, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    processes: tuple[str, ...] = ()  # "rank 0", "rank 1" where several ranks were merged into the file
    is_merged: bool = False  # kinetoscope merged them: `kinetoscope report` compares the ranks of the file
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()  # process group -> its members, from `distributedInfo`
    origin_ns: int = 0  # the time 0 of the trace, in ns since 1970; 0 if the file does not tell
    is_cut: bool = False  # the file ends in the middle; complete events are here
    damaged: tuple[Damage, ...] = ()  # events with missing or impossible values
    unread: tuple[tuple[str, int], ...] = ()  # categories of events that are not read, empty if none, with their number
    origin: str = ""  # if no event is read: the profiler that wrote the file, and what reads it


def starting_in(spans: Sequence[S], start_us: float, end_us: float) -> Sequence[S]:
    """The spans that start at `start_us` or later and before `end_us`; `spans` must be sorted by start."""
    return spans[bisect_left(spans, start_us, key=by_start) : bisect_left(spans, end_us, key=by_start)]


def last_end_us(spans: Sequence[Span]) -> float:
    """The end of the span that ends last; 0 without a span."""
    return in_whole_ns(max((span.start_us + span.duration_us for span in spans), default=0.0))


by_start = attrgetter("start_us")


def outer_first(span: Span) -> tuple[float, float]:
    """A key: in start order, and of spans that start together, the longest first, as the parent."""
    return span.start_us, -span.duration_us
