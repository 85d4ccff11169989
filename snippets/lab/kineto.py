"""Kineto JSON, plain or gzipped, in; a `Trace` out. Whatever is odd in a file ends in one `TraceError`.

Each event is decoded on its own and only as far as it is needed, so that a large trace costs little and an odd event
spoils no other.
"""

from __future__ import annotations

import gc
import gzip
import io
import math
import os
import re
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union

import msgspec
from msgspec import Meta, Raw, Struct, field

from snippets.lab.trace import (
    CpuOp,
    GpuActivity,
    Kind,
    Launch,
    Shapes,
    Span,
    Step,
    Trace,
    TraceError,
    Triple,
    starting_in,
)

E = TypeVar("E", bound="_Event")

_STEP_NAME = re.compile(r"ProfilerStep#([0-9]{1,18})")
_CLOCK_NOISE_US = 0.002  # a timestamp is printed in ns but read as a float64, which may move it by 1 ns


def read(source: str | os.PathLike[str] | bytes, *, limit_bytes: int = 2_000_000_000) -> Trace:
    """Read a trace from a file or from its bytes; refuse one that is over `limit_bytes` once decompressed."""
    where = "trace" if isinstance(source, bytes) else os.fspath(source)
    with no_collection():
        return _parsed(_content(source, where, limit_bytes), where)


@contextmanager
def no_collection() -> Iterator[None]:
    """Pause the garbage collector: it would walk half a million live objects, again and again, to find no cycle."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class _OpArgs(Struct, frozen=True, gc=False):
    external_id: int | None = field(name="External id", default=None)
    input_dims: Raw = field(name="Input Dims", default=Raw(b""))
    input_strides: Raw = field(name="Input Strides", default=Raw(b""))
    input_types: Raw = field(name="Input type", default=Raw(b""))


class _CallArgs(Struct, frozen=True, gc=False):
    external_id: int | None = field(name="External id", default=None)
    correlation: int = 0


class _GpuArgs(Struct, frozen=True, gc=False):
    external_id: int | None = field(name="External id", default=None)
    device: int | None = None
    stream: int | None = None
    correlation: int | None = None
    registers: int | None = field(name="registers per thread", default=None)
    shared_memory_bytes: int | None = field(name="shared memory", default=None)
    grid: Triple | None = None
    block: Triple | None = None
    occupancy_percent: float | None = field(name="est. achieved occupancy %", default=None)
    moved_bytes: int | None = field(name="bytes", default=None)


class _Event(Struct, gc=False, tag_field="cat", tag=""):
    """A complete event; its category says which arguments matter."""

    ph: Literal["X"]
    name: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: Annotated[float, Meta(ge=-1e18, le=1e18)] = math.nan
    dur: Annotated[float, Meta(le=1e15)] = 0.0


class _Op(_Event, gc=False, tag="cpu_op"):
    args: _OpArgs = _OpArgs()


class _Annotation(_Op, gc=False, tag="user_annotation"): ...


class _RuntimeCall(_Event, gc=False, tag="cuda_runtime"):
    args: _CallArgs = _CallArgs()


class _DriverCall(_RuntimeCall, gc=False, tag="cuda_driver"): ...


class _Kernel(_Event, gc=False, tag="kernel"):
    args: _GpuArgs = _GpuArgs()


class _Memcpy(_Kernel, gc=False, tag="gpu_memcpy"): ...


class _Memset(_Kernel, gc=False, tag="gpu_memset"): ...


class _GpuAnnotation(_Event, gc=False, tag="gpu_user_annotation"): ...


class _Overhead(_Event, gc=False, tag="overhead"): ...


class _Flow(Struct, gc=False, tag_field="cat", tag="ac2g"):
    """Left out like any unknown category, but half of a trace: knowing it spares as many exceptions."""


class _PythonFunction(_Flow, gc=False, tag="python_function"): ...


_KINDS: dict[type, Kind] = {_Kernel: "kernel", _Memcpy: "memcpy", _Memset: "memset"}
_KEPT: dict[str, type[_Event]] = {
    "cpu_op": _Op,
    "user_annotation": _Annotation,
    "cuda_runtime": _RuntimeCall,
    "cuda_driver": _DriverCall,
    "kernel": _Kernel,
    "gpu_memcpy": _Memcpy,
    "gpu_memset": _Memset,
    "gpu_user_annotation": _GpuAnnotation,
    "overhead": _Overhead,
}
_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Union[_Flow, _PythonFunction, *_KEPT.values()])


class _File(Struct):
    """The events stay text until each is read by itself: half the memory, and one odd event spoils no other."""

    events: list[Raw] = field(name="traceEvents")
    device_properties: Any = field(name="deviceProperties", default=None)


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


def _parsed(data: bytes | bytearray, where: str) -> Trace:
    try:
        if data[:64].lstrip()[:1] == b"[":  # Perfetto accepts a bare list of events, and so do we
            return _trace(_File(msgspec.json.decode(data, type=list[Raw])))
        return _trace(msgspec.json.decode(data, type=_File))
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
    base = min((event.ts for events in kept.values() for event in events), default=0.0)
    cpu_ops = _cpu_ops(kept.pop(_Op) + kept.pop(_Annotation), base)  # popped: freed as soon as built
    launches = _launches(kept.pop(_RuntimeCall) + kept.pop(_DriverCall), base)
    activities = _activities(kept.pop(_Kernel) + kept.pop(_Memcpy) + kept.pop(_Memset), base)
    gpu_annotations = _spans(kept.pop(_GpuAnnotation), base)
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
        overheads=_spans(kept.pop(_Overhead), base),
        gpu_annotations=gpu_annotations,
        unattributed=unattributed,
    )


def _kept(file: _File) -> dict[type, list[Any]]:
    """The complete events by category; the file's own list is emptied."""
    decode = _DECODER.decode
    kept: dict[type, list[Any]] = {kind: [] for kind in _KEPT.values()}
    names: dict[str, str] = {}  # few names recur in many events: keep one of each
    for text in file.events:
        try:
            event = decode(text)
        except msgspec.ValidationError:
            event = _lenient(text)
        events = kept.get(type(event))
        if events is not None and event.ts == event.ts:  # NaN: no timestamp
            event.name = names.setdefault(event.name, event.name)
            events.append(event)
    file.events.clear()
    return kept


def _lenient(text: Raw) -> _Event | None:
    """An event with fields of other types than expected, as they differ between versions of torch; else None."""
    with suppress(msgspec.ValidationError, KeyError):
        given = msgspec.json.decode(text, type=dict[str, Raw])
        kind = _KEPT[msgspec.json.decode(given["cat"], type=str)]
        if msgspec.json.decode(given["ph"]) == "X":
            return kind(**_readable(given, kind))
    return None


def _readable(given: dict[str, Raw], kind: type[Struct]) -> dict[str, Any]:
    """Those fields of `kind` that can be read, also from text: "7" is a stream."""
    found: dict[str, Any] = {}
    for item in msgspec.structs.fields(kind):
        with suppress(msgspec.ValidationError, KeyError):
            text = given[item.encode_name]
            if item.name == "args":
                found["args"] = item.type(**_readable(msgspec.json.decode(text, type=dict[str, Raw]), item.type))
            else:
                found[item.name] = msgspec.json.decode(text, type=item.type, strict=False)
    return found


def _timed(events: list[E], base: float) -> Iterable[tuple[E, float, float]]:
    """In start order, with start and duration rounded to ns (in a third of the time that round() takes)."""
    events.sort(key=attrgetter("ts"))
    for event in events:
        duration = int(event.dur * 1000 + 0.5) / 1000 if event.dur > 0 else 0.0
        yield event, int((event.ts - base) * 1000 + 0.5) / 1000, duration


def _cpu_ops(events: list[_Op], base: float) -> tuple[CpuOp, ...]:
    """Ops nest by time on their thread: the parent is the innermost op still open that reaches as far."""
    events.sort(key=attrgetter("dur"), reverse=True)  # of two that start together, the longer is outside
    ops: list[CpuOp] = []
    threads, shapes, types = _Threads(), _ShapesOf(), _TypesOf()
    open_ops: dict[str, list[tuple[float, int]]] = defaultdict(list)  # by thread: when each ends, and its index
    for index, (event, start, duration) in enumerate(_timed(events, base)):
        args = event.args
        thread = threads[event.pid, event.tid]
        stack, end = open_ops[thread], start + duration
        reach = max(start + _CLOCK_NOISE_US, end - _CLOCK_NOISE_US)
        while stack and stack[-1][0] < reach:
            stack.pop()
        parent = stack[-1][1] if stack else None
        stack.append((end, index))
        annotates, dims = type(event) is _Annotation, shapes[bytes(args.input_dims)]
        strides, kinds = shapes[bytes(args.input_strides)], types[bytes(args.input_types)]
        ops.append(
            CpuOp(event.name, start, duration, thread, args.external_id, annotates, dims, strides, kinds, parent, index)
        )
    return tuple(ops)


def _launches(events: list[_RuntimeCall], base: float) -> tuple[Launch, ...]:
    threads = _Threads()
    launches = []
    for event, start, duration in _timed(events, base):
        args = event.args
        thread, is_driver = threads[event.pid, event.tid], type(event) is _DriverCall
        launches.append(Launch(event.name, start, duration, thread, args.correlation, args.external_id, is_driver))
    return tuple(launches)


def _activities(events: list[_Kernel], base: float) -> tuple[GpuActivity, ...]:
    activities = []
    for event, start, duration in _timed(events, base):
        args = event.args
        activities.append(
            GpuActivity(
                event.name,
                start,
                duration,
                _KINDS[type(event)],
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
    return tuple(Span(event.name, start, duration) for event, start, duration in _timed(events, base))


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
        return self.setdefault(text, _shapes(_plain(text)))


class _TypesOf(dict[bytes, tuple[str, ...]]):
    def __missing__(self, text: bytes) -> tuple[str, ...]:
        given = _plain(text)
        types = tuple(one if isinstance(one, str) else "" for one in given) if isinstance(given, list) else ()
        return self.setdefault(text, types)


def _plain(text: bytes) -> Any:
    """JSON as Python has it; None for what is absent or cannot be read, such as a number beyond all bounds."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(text)
    return None


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
    ops = [starting_in(cpu_ops, op.start_us, op.end_us) for _, op in own]
    calls = [starting_in(launches, op.start_us, op.end_us) for _, op in own]
    launched_in: dict[int | None, int | None] = {launch.correlation: None for launch in launches if launch.correlation}
    for place, mine in enumerate(calls):
        launched_in.update((launch.correlation, place) for launch in mine if launch.correlation)
    windows = _gpu_windows(gpu_annotations, {number: place for place, (number, _) in enumerate(own)})
    work: list[list[GpuActivity]] = [[] for _ in own]
    unattributed: list[GpuActivity] = []
    for activity in activities:
        correlation = activity.correlation
        step = launched_in[correlation] if correlation in launched_in else _window(windows, activity.start_us)
        (unattributed if step is None else work[step]).append(activity)
    return tuple(
        Step(
            number,
            op.name,
            op.start_us,
            op.end_us,
            tuple(inner for inner in ops[place] if inner.index != op.index),
            tuple(calls[place]),
            tuple(work[place]),
        )
        for place, (number, op) in enumerate(own)
    ), tuple(unattributed)


Window = tuple[float, float, int]  # start, end, which step


def _gpu_windows(annotations: tuple[Span, ...], places: dict[int, int]) -> list[Window]:
    """A step's span on the GPU, over all its streams."""
    spans: dict[int, list[Span]] = defaultdict(list)
    for span in annotations:
        if (match := _STEP_NAME.fullmatch(span.name)) and int(match[1]) in places:
            spans[places[int(match[1])]].append(span)
    return sorted((min(s.start_us for s in of), max(s.end_us for s in of), place) for place, of in spans.items())


def _window(windows: list[Window], time_us: float) -> int | None:
    """The step whose window holds `time_us`; an end belongs to the next one."""
    before = bisect_right(windows, time_us, key=itemgetter(0))
    return windows[before - 1][2] if before and time_us < windows[before - 1][1] else None
