"""A profiler trace as data: Kineto JSON, plain or gzipped, in; typed and frozen records out.

Times are microseconds since the first event that is kept, with three decimals. Names are the profiler's own, untouched:
they are untrusted text, and whoever shows them escapes them.
"""

from __future__ import annotations

import gc
import gzip
import io
import math
import os
import re
import zlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field

A = TypeVar("A", bound=Struct)
K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S", bound="Span")
Triple = tuple[int, int, int]
Shapes = tuple[tuple[int, ...], ...]

_KINDS: dict[str, Literal["kernel", "memcpy", "memset"]] = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "gpu_memset": "memset",
}
_KEPT = (*_KINDS, "cpu_op", "user_annotation", "gpu_user_annotation", "cuda_runtime", "cuda_driver", "overhead")
_STEP_NAME = re.compile(r"ProfilerStep#([0-9]{1,18})")
_CLOCK_NOISE_US = 0.002  # a timestamp is printed in ns but read as a float64, which may move it by 1 ns


class TraceError(ValueError):
    """Says what is wrong with a trace and what to do about it."""


class Span(Struct, frozen=True, gc=False):
    """A named stretch of time: profiler overhead, or an annotation mirrored on the GPU."""

    name: str
    start_us: float
    duration_us: float

    @property
    def end_us(self) -> float:
        return round(self.start_us + self.duration_us, 3)


class CpuOp(Span, frozen=True, gc=False):
    """An operator or an annotation on a CPU thread; `index` and `parent` are places in `Trace.cpu_ops`."""

    thread: str  # "pid/tid"
    external_id: int | None = None
    is_annotation: bool = False
    input_shapes: Shapes = ()  # one per input, () for a scalar; the tensors of a list in its place
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

    kind: Literal["kernel", "memcpy", "memset"]
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
        return tuple(a for a in self.activities if a.kind == "kernel")

    @property
    def memcpys(self) -> tuple[GpuActivity, ...]:
        return tuple(a for a in self.activities if a.kind == "memcpy")

    @property
    def memsets(self) -> tuple[GpuActivity, ...]:
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
    def _launch_by_correlation(self) -> dict[int, Launch]:
        return _by_correlation(self.launches)

    @cached_property
    def _op_by_external_id(self) -> dict[int, CpuOp]:
        return {op.external_id: op for op in reversed(self.cpu_ops) if op.external_id is not None}

    @cached_property
    def _ops_of_thread(self) -> dict[str, list[CpuOp]]:
        return _group((op.thread, op) for op in self.cpu_ops)

    @cached_property
    def _launches_of_thread(self) -> dict[str, list[Launch]]:
        return _group((launch.thread, launch) for launch in self.launches)

    @cached_property
    def _children(self) -> dict[int | None, list[CpuOp]]:
        return _group((op.parent, op) for op in self.cpu_ops)

    def launch_of(self, activity: GpuActivity) -> Launch | None:
        """The call that put `activity` on the GPU; one `cudaGraphLaunch` may own many."""
        return None if activity.correlation is None else self._launch_by_correlation.get(activity.correlation)

    def launch_delay_us(self, activity: GpuActivity) -> float | None:
        """From the start of the launching call to the start on the GPU."""
        launch = self.launch_of(activity)
        return None if launch is None else round(activity.start_us - launch.start_us, 3)

    def op_of(self, activity: GpuActivity) -> CpuOp | None:
        """The op with the activity's external id, else the innermost op around its launch on the launching thread."""
        launch = self.launch_of(activity)
        external_id = activity.external_id
        if external_id is None and launch is not None:
            external_id = launch.external_id
        op = None if external_id is None else self._op_by_external_id.get(external_id)
        if op is not None or launch is None:
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
        return tuple(self._children.get(op.index, ()))

    def launches_under(self, op: CpuOp) -> tuple[Launch, ...]:
        """The CUDA calls that began inside `op` on its thread."""
        return tuple(_starting_in(self._launches_of_thread.get(op.thread, []), op.start_us, op.end_us))

    def label_span(self, step: Step, label: str) -> CpuOp | None:
        """The first annotation called `label` in `step`, as `record_function(label)` leaves it."""
        return next((op for op in step.ops if op.is_annotation and op.name == label), None)


def busy_us(activities: Iterable[GpuActivity]) -> float:
    """Time in which at least one activity ran: the union of their intervals over all streams, not their sum."""
    busy, reached = 0.0, -math.inf
    for activity in sorted(activities, key=_start_us):
        start, end = activity.start_us, activity.start_us + activity.duration_us
        if end > reached:
            busy += end - max(start, reached)
            reached = end
    return round(busy, 3)


def idle_us(activities: Sequence[GpuActivity]) -> float:
    """Time in which none ran, between the first start and the last end."""
    if not activities:
        return 0.0
    span = max(a.start_us + a.duration_us for a in activities) - min(a.start_us for a in activities)
    return max(0.0, round(span - busy_us(activities), 3))


def kernel_time_us(activities: Iterable[GpuActivity]) -> float:
    """Sum of the kernels' durations; copies and fills do not count."""
    return round(math.fsum(a.duration_us for a in activities if a.kind == "kernel"), 3)


def steps_agree(trace: Trace) -> bool:
    """Whether all steps ran the same GPU work in the same order. One step alone agrees; no step does not."""
    sequences = ([(a.kind, a.name) for a in step.activities] for step in trace.steps)
    first = next(sequences, None)
    return first is not None and all(sequence == first for sequence in sequences)


def require_steps(trace: Trace) -> None:
    if not trace.steps:
        raise TraceError(
            "no active steps: the trace has no ProfilerStep annotation. Profile with a schedule, call prof.step() "
            "after each iteration and run at least wait + warmup + active iterations"
        )


def require_kernels(trace: Trace) -> None:
    if not any(activity.kind == "kernel" for activity in trace.activities):
        raise TraceError(
            "no GPU kernels in the trace. Check: ProfilerActivity.CUDA among the activities; that warm-up did not "
            "swallow the steps; that the work ran on the GPU; that the driver lets this user profile "
            "(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: load it with NVreg_RestrictProfilingToAdminUsers=0)"
        )


def read(source: str | os.PathLike[str] | bytes, *, limit_bytes: int = 2_000_000_000) -> Trace:
    """Read a trace from a file or from its bytes; refuse one that is over `limit_bytes` once decompressed."""
    where = "trace" if isinstance(source, bytes) else os.fspath(source)
    collecting = gc.isenabled()
    gc.disable()  # half a million live objects and no cycles: each collection would walk them for nothing
    try:
        return _trace(_decoded(_content(source, where, limit_bytes), where))
    except OverflowError as error:
        raise TraceError(f"{where}: a time is out of range; record the trace again") from error
    finally:
        if collecting:
            gc.enable()


class _Event(Struct, gc=False):
    """What every event may have. Its arguments stay text until its category says which of them matter."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: Annotated[float, Meta(ge=-1e18, le=1e18)] = math.nan
    dur: Annotated[float, Meta(le=1e15)] = 0.0
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    args: Raw = Raw(b"{}")


class _File(Struct, gc=False):
    events: list[_Event] = field(name="traceEvents")
    device_properties: Any = field(name="deviceProperties", default=None)


class _OpArgs(Struct, gc=False):
    external_id: int | None = field(name="External id", default=None)
    input_dims: Raw = field(name="Input Dims", default=Raw(b""))


class _LaunchArgs(Struct, gc=False):
    correlation: int = 0
    external_id: int | None = field(name="External id", default=None)


class _GpuArgs(Struct, gc=False):
    device: int | None = None
    stream: int | None = None
    correlation: int | None = None
    external_id: int | None = field(name="External id", default=None)
    grid: Triple | None = None
    block: Triple | None = None
    registers: int | None = field(name="registers per thread", default=None)
    shared_memory_bytes: int | None = field(name="shared memory", default=None)
    moved_bytes: int | None = field(name="bytes", default=None)
    occupancy_percent: float | None = field(name="est. achieved occupancy %", default=None)


def _content(source: str | os.PathLike[str] | bytes, where: str, limit_bytes: int) -> bytes | bytearray:
    try:
        data: bytes | bytearray = source if isinstance(source, bytes) else Path(source).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"{where}: cannot be read ({reason}); give the path of a .json or .json.gz trace") from error
    if data[:2] == b"\x1f\x8b":
        data = _decompressed(data, where, limit_bytes)
    if len(data) > limit_bytes:
        raise TraceError(f"{where}: over {limit_bytes:,} bytes; record fewer steps")
    if not data:
        raise TraceError(f"{where}: empty; record the trace again")
    return data[3:] if data.startswith(b"\xef\xbb\xbf") else data


def _decompressed(data: bytes | bytearray, where: str, limit_bytes: int) -> bytearray:
    content = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            while len(content) <= limit_bytes and (block := file.read(1 << 20)):
                content += block
    except EOFError as error:
        raise TraceError(f"{where}: the gzip stream is cut off; copy or record the trace again") from error
    except (OSError, zlib.error) as error:
        raise TraceError(f"{where}: the gzip stream is damaged ({error}); copy or record the trace again") from error
    return content


def _decoded(data: bytes | bytearray, where: str) -> _File:
    """Perfetto accepts a bare list of events, and so do we."""
    try:
        if data[:64].lstrip()[:1] == b"[":
            return _File(msgspec.json.decode(data, type=list[_Event]))
        return msgspec.json.decode(data, type=_File)
    except msgspec.ValidationError as error:
        raise TraceError(f"{where}: JSON, but no Kineto trace ({error}); export one by export_chrome_trace") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            data.decode()
        except UnicodeDecodeError as not_text:
            raise TraceError(f"{where}: is not UTF-8 text ({not_text.reason}); give a .json or .json.gz") from error
        raise TraceError(f"{where}: is no whole JSON ({error}); copy or record the trace again") from error


def _trace(file: _File) -> Trace:
    kept = _kept(file)
    base = min((events[0].ts for events in kept.values() if events), default=0.0)
    cpu_ops = _cpu_ops(kept.pop("cpu_op") + kept.pop("user_annotation"), base)  # popped: freed as soon as built
    launches = _launches(kept.pop("cuda_runtime") + kept.pop("cuda_driver"), base)
    activities = _activities([event for category in _KINDS for event in kept.pop(category)], base)
    gpu_annotations = _spans(kept.pop("gpu_user_annotation"), base)
    steps, unattributed = _steps(cpu_ops, launches, activities, gpu_annotations)
    properties = file.device_properties
    first = properties[0] if isinstance(properties, list) and properties and isinstance(properties[0], dict) else {}
    return Trace(
        device=name if isinstance(name := first.get("name"), str) else None,
        device_properties=first,
        cpu_ops=cpu_ops,
        launches=launches,
        activities=activities,
        steps=steps,
        overheads=_spans(kept.pop("overhead"), base),
        gpu_annotations=gpu_annotations,
        unattributed=unattributed,
    )


def _kept(file: _File) -> dict[str, list[_Event]]:
    """The complete events by category, each list in start order, names shared; the file's own list is emptied."""
    kept: dict[str, list[_Event]] = {category: [] for category in _KEPT}
    names: dict[str, str] = {}
    for event in file.events:
        events = kept.get(event.cat)
        if events is not None and event.ph == "X" and event.ts == event.ts:  # NaN: no timestamp
            event.name = names.setdefault(event.name, event.name)
            events.append(event)
    file.events.clear()
    for events in kept.values():
        events.sort(key=_ts)
    return kept


def _cpu_ops(events: list[_Event], base: float) -> tuple[CpuOp, ...]:
    """Ops nest by time on their thread: the parent is the innermost op still open that reaches as far."""
    events.sort(key=attrgetter("dur"), reverse=True)
    events.sort(key=_ts)
    decode = _decoder(_OpArgs)
    ops: list[CpuOp] = []
    threads, shapes = _Threads(), _ShapesOf()
    open_ops: dict[str, list[tuple[float, int]]] = defaultdict(list)  # by thread: when each ends, and its index
    for index, event in enumerate(events):
        args = decode(event.args)
        start, duration = _times(event, base)
        end = start + duration
        thread = threads[event.pid, event.tid]
        stack = open_ops[thread]
        while stack and stack[-1][0] < start + _CLOCK_NOISE_US:
            stack.pop()
        depth = len(stack)
        while depth and stack[depth - 1][0] < end - _CLOCK_NOISE_US:
            depth -= 1
        parent = stack[depth - 1][1] if depth else None
        stack.append((end, index))
        is_annotation = event.cat == "user_annotation"
        dims = shapes[bytes(args.input_dims)]
        ops.append(CpuOp(event.name, start, duration, thread, args.external_id, is_annotation, dims, parent, index))
    return tuple(ops)


def _launches(events: list[_Event], base: float) -> tuple[Launch, ...]:
    events.sort(key=_ts)
    decode = _decoder(_LaunchArgs)
    threads = _Threads()
    launches = []
    for event in events:
        args = decode(event.args)
        start, duration = _times(event, base)
        thread = threads[event.pid, event.tid]
        is_driver = event.cat == "cuda_driver"
        launches.append(Launch(event.name, start, duration, thread, args.correlation, args.external_id, is_driver))
    return tuple(launches)


def _activities(events: list[_Event], base: float) -> tuple[GpuActivity, ...]:
    events.sort(key=_ts)
    decode = _decoder(_GpuArgs)
    activities = []
    for event in events:
        args = decode(event.args)
        start, duration = _times(event, base)
        activities.append(
            GpuActivity(
                event.name,
                start,
                duration,
                _KINDS[event.cat],
                _number(event.pid) if args.device is None else args.device,
                _number(event.tid) if args.stream is None else args.stream,
                args.correlation,
                args.external_id,
                args.grid,
                args.block,
                args.registers,
                args.shared_memory_bytes,
                args.moved_bytes,
                args.occupancy_percent,
            )
        )
    return tuple(activities)


def _spans(events: list[_Event], base: float) -> tuple[Span, ...]:
    return tuple(Span(event.name, *_times(event, base)) for event in events)


def _times(event: _Event, base: float) -> tuple[float, float]:
    """Start and duration in µs, rounded to ns as round() does, in a third of its time."""
    return int((event.ts - base) * 1000 + 0.5) / 1000, int(max(event.dur, 0.0) * 1000 + 0.5) / 1000


def _decoder(kind: type[A]) -> Callable[[Raw], A]:
    """Arguments as `kind` wants them; where their types differ, as they do between versions of torch, field by field."""
    strict = msgspec.json.Decoder(kind)

    def decode(text: Raw) -> A:
        try:
            return strict.decode(text)
        except msgspec.ValidationError:
            return _leniently(text, kind)

    return decode


def _leniently(text: Raw, kind: type[A]) -> A:
    found = {}
    with suppress(msgspec.ValidationError):
        given = msgspec.json.decode(text, type=dict[str, Raw])
        for item in msgspec.structs.fields(kind):
            with suppress(KeyError, msgspec.ValidationError):
                found[item.name] = msgspec.json.decode(given[item.encode_name], type=item.type, strict=False)
    return kind(**found)


def _number(value: object) -> int:
    try:
        return msgspec.convert(value, int, strict=False)
    except msgspec.ValidationError:
        return 0


class _Threads(dict[tuple[object, object], str]):
    def __missing__(self, key: tuple[object, object]) -> str:
        return self.setdefault(key, f"{key[0]}/{key[1]}")


class _ShapesOf(dict[bytes, Shapes]):
    """Few shapes recur in many ops: each distinct text is read once."""

    def __missing__(self, text: bytes) -> Shapes:
        return self.setdefault(text, _shapes(msgspec.json.decode(text)) if text else ())


def _shapes(dims: object) -> Shapes:
    """`[[64, 64], []]` -> ((64, 64), ()); a list of tensors, one level deeper, counts as that many inputs."""
    shapes: list[tuple[int, ...]] = []
    for dim in dims if isinstance(dims, list) else ():
        if not isinstance(dim, list):
            shapes.append(())
        elif dim and all(isinstance(inner, list) for inner in dim):
            shapes.extend(_shapes(dim))
        else:
            shapes.append(tuple(size for size in dim if isinstance(size, int)))
    return tuple(shapes)


def _steps(
    cpu_ops: tuple[CpuOp, ...],
    launches: tuple[Launch, ...],
    activities: tuple[GpuActivity, ...],
    gpu_annotations: tuple[Span, ...],
) -> tuple[tuple[Step, ...], tuple[GpuActivity, ...]]:
    """Each step with its ops, launches and GPU work, and the GPU work of none."""
    own = [(int(match[1]), op) for op in cpu_ops if op.is_annotation and (match := _STEP_NAME.fullmatch(op.name))]
    on_cpu = [(op.start_us, op.end_us, place) for place, (_, op) in enumerate(own)]
    on_gpu = _gpu_windows(gpu_annotations, {number: place for place, (number, _) in enumerate(own)})
    launch_by_correlation = _by_correlation(launches)
    work: list[list[GpuActivity]] = [[] for _ in own]
    unattributed: list[GpuActivity] = []
    for activity in activities:
        launch = None if activity.correlation is None else launch_by_correlation.get(activity.correlation)
        place = _window(on_gpu, activity.start_us) if launch is None else _window(on_cpu, launch.start_us)
        (unattributed if place is None else work[place]).append(activity)
    steps = []
    for (number, op), mine in zip(own, work, strict=True):
        ops = tuple(o for o in _starting_in(cpu_ops, op.start_us, op.end_us) if o.index != op.index)
        calls = tuple(_starting_in(launches, op.start_us, op.end_us))
        steps.append(Step(number, op.name, op.start_us, op.end_us, ops, calls, tuple(mine)))
    return tuple(steps), tuple(unattributed)


Window = tuple[float, float, int]  # start, end, which step


def _gpu_windows(annotations: tuple[Span, ...], places: dict[int, int]) -> list[Window]:
    """A step's span on the GPU, over all its streams."""
    spans: dict[int, list[Span]] = defaultdict(list)
    for span in annotations:
        if (match := _STEP_NAME.fullmatch(span.name)) and int(match[1]) in places:
            spans[places[int(match[1])]].append(span)
    return sorted((min(s.start_us for s in of), max(s.end_us for s in of), place) for place, of in spans.items())


def _window(windows: list[Window], time_us: float) -> int | None:
    """The window that holds `time_us`; an end belongs to the next one."""
    before = bisect_right(windows, time_us, key=_first)
    if before and time_us < windows[before - 1][1]:
        return windows[before - 1][2]
    return None


def _by_correlation(launches: tuple[Launch, ...]) -> dict[int, Launch]:
    return {launch.correlation: launch for launch in reversed(launches) if launch.correlation}


def _group(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    groups: dict[K, list[V]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def _starting_in(spans: Sequence[S], start_us: float, end_us: float) -> Sequence[S]:
    return spans[bisect_left(spans, start_us, key=_start_us) : bisect_left(spans, end_us, key=_start_us)]


_start_us = attrgetter("start_us")
_ts = attrgetter("ts")
_first = itemgetter(0)
