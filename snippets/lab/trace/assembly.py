"""Build a `Trace` from the events of a file: nest ops, link activities to launches and ops, assign work to steps."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

import msgspec

from snippets.lab.trace.events import (
    CpuOp,
    CudaCall,
    GpuActivity,
    Kind,
    Shapes,
    Span,
    Step,
    Trace,
    by_start,
    starting_in,
)
from snippets.lab.trace.kineto_events import (
    Annotation,
    DriverCall,
    Event,
    GpuAnnotation,
    Kernel,
    Memcpy,
    Memset,
    Op,
    Overhead,
    RuntimeCall,
    TraceFile,
    kept_events,
)

E = TypeVar("E", bound="Event")
_STEP_NAME = re.compile(r"ProfilerStep#([0-9]{1,18})")
_CLOCK_NOISE_US = 0.002  # a timestamp is printed in ns but read as a float64, which may move it by 1 ns
_KINDS: dict[type, Kind] = {Kernel: "kernel", Memcpy: "memcpy", Memset: "memset"}


def assemble(file: TraceFile) -> Trace:
    """Build the trace of a file and empty the file's list of events, which saves memory."""
    kept = kept_events(file)
    base = min((event.ts for events in kept.values() for event in events), default=0.0)
    cpu_ops = _cpu_ops(kept.pop(Op) + kept.pop(Annotation), base)  # popped: freed as soon as built
    calls = _calls(kept.pop(RuntimeCall) + kept.pop(DriverCall), base)
    activities = _activities(kept.pop(Kernel) + kept.pop(Memcpy) + kept.pop(Memset), base, _Owners(cpu_ops, calls))
    gpu_annotations = _spans(kept.pop(GpuAnnotation), base)
    steps, unattributed = _steps(cpu_ops, calls, activities, gpu_annotations)
    properties = file.device_properties
    first = properties[0] if isinstance(properties, list) and properties and isinstance(properties[0], dict) else {}
    return Trace(
        device=name if isinstance(name := first.get("name"), str) else None,
        device_properties=first,
        cpu_ops=cpu_ops,
        calls=calls,
        activities=activities,
        steps=steps,
        overheads=_spans(kept.pop(Overhead), base),
        gpu_annotations=gpu_annotations,
        unattributed=unattributed,
    )


def _timed(events: list[E], base: float) -> Iterable[tuple[E, float, float]]:
    """Yield events in start order, with start and duration in us rounded to ns (3 times as fast as round())."""
    events.sort(key=attrgetter("ts"))
    for event in events:
        duration = int(event.dur * 1000 + 0.5) / 1000 if event.dur > 0 else 0.0
        yield event, int((event.ts - base) * 1000 + 0.5) / 1000, duration


def _cpu_ops(events: list[Op], base: float) -> tuple[CpuOp, ...]:
    """Nest ops by time on their thread: the parent is the innermost open op that ends no earlier."""
    events.sort(key=attrgetter("dur"), reverse=True)  # if two ops start together, the longer is the parent
    ops: list[CpuOp] = []
    threads, shapes, types = _Threads(), _ShapesOf(), _TypesOf()
    open_ops: dict[str, list[tuple[float, CpuOp]]] = defaultdict(list)  # thread -> (end time, op), innermost last
    for event, start, duration in _timed(events, base):
        args = event.args
        thread = threads[event.pid, event.tid]
        stack, end = open_ops[thread], start + duration
        reach = max(start + _CLOCK_NOISE_US, end - _CLOCK_NOISE_US)
        while stack and stack[-1][0] < reach:
            stack.pop()
        parent = stack[-1][1] if stack else None
        annotates, dims = type(event) is Annotation, shapes[bytes(args.input_dims)]
        strides, kinds = shapes[bytes(args.input_strides)], types[bytes(args.input_types)]
        op = CpuOp(event.name, start, duration, thread, args.external_id, annotates, dims, strides, kinds, parent)
        stack.append((end, op))
        ops.append(op)
    return tuple(ops)


def _calls(events: list[RuntimeCall], base: float) -> tuple[CudaCall, ...]:
    threads = _Threads()
    calls = []
    for event, start, duration in _timed(events, base):
        args = event.args
        thread, is_driver = threads[event.pid, event.tid], type(event) is DriverCall
        calls.append(CudaCall(event.name, start, duration, thread, args.correlation, args.external_id, is_driver))
    return tuple(calls)


class _Owners:
    """Finds the call and the op that launched an activity."""

    def __init__(self, cpu_ops: tuple[CpuOp, ...], calls: tuple[CudaCall, ...]) -> None:
        self.call_of = {call.correlation: call for call in reversed(calls) if call.correlation}
        self.op_of = {op.external_id: op for op in reversed(cpu_ops) if op.external_id is not None}
        self.ops_of_thread: dict[str, list[CpuOp]] = defaultdict(list)
        for op in cpu_ops:
            self.ops_of_thread[op.thread].append(op)

    def launch(self, correlation: int | None) -> CudaCall | None:
        """The first call with this correlation."""
        return None if correlation is None else self.call_of.get(correlation)

    def op(self, external_id: int | None, launch: CudaCall | None) -> CpuOp | None:
        """The op with the external id of the activity or of its launch, else the innermost op around the launch."""
        op = None if external_id is None else self.op_of.get(external_id)
        if op is not None or launch is None:
            return op
        if launch.external_id is not None and (op := self.op_of.get(launch.external_id)) is not None:
            return op
        ops = self.ops_of_thread.get(launch.thread, [])
        before = bisect_right(ops, launch.start_us, key=by_start)
        op = ops[before - 1] if before else None
        while op is not None and op.end_us <= launch.start_us:
            op = op.parent
        return op


def _activities(events: list[Kernel], base: float, owners: _Owners) -> tuple[GpuActivity, ...]:
    activities = []
    for event, start, duration in _timed(events, base):
        args = event.args
        launch = owners.launch(args.correlation)
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
                launch,
                owners.op(args.external_id, launch),
            )
        )
    return tuple(activities)


def _spans(events: list[Event], base: float) -> tuple[Span, ...]:
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
    """Parses each distinct text once: many ops share few shapes."""

    def __missing__(self, text: bytes) -> Shapes:
        return self.setdefault(text, _shapes(_plain(text)))


class _TypesOf(dict[bytes, tuple[str, ...]]):
    def __missing__(self, text: bytes) -> tuple[str, ...]:
        data = _plain(text)
        types = tuple(kind if isinstance(kind, str) else "" for kind in data) if isinstance(data, list) else ()
        return self.setdefault(text, types)


def _plain(text: bytes) -> Any:
    """Decode JSON; None if the text is empty or unreadable, such as a number too large to decode."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(text)
    return None


def _shapes(dims: object) -> Shapes:
    """`[[64, 64], []]` -> ((64, 64), ()); a list of tensors is one level deeper, and each tensor counts as an input."""
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
    calls: tuple[CudaCall, ...],
    activities: tuple[GpuActivity, ...],
    gpu_annotations: tuple[Span, ...],
) -> tuple[tuple[Step, ...], tuple[GpuActivity, ...]]:
    """Return the steps with their ops, calls and GPU work, and the GPU work outside all steps."""
    numbered = [(int(match[1]), op) for op in cpu_ops if op.is_annotation and (match := _STEP_NAME.fullmatch(op.name))]
    ops = [starting_in(cpu_ops, op.start_us, op.end_us) for _, op in numbered]
    step_calls = [starting_in(calls, op.start_us, op.end_us) for _, op in numbered]
    launched_in: dict[int | None, int | None] = {call.correlation: None for call in calls if call.correlation}
    for index, calls_here in enumerate(step_calls):
        launched_in.update((call.correlation, index) for call in calls_here if call.correlation)
    windows = _gpu_windows(gpu_annotations, {number: index for index, (number, _) in enumerate(numbered)})
    work: list[list[GpuActivity]] = [[] for _ in numbered]
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
            tuple(inner for inner in ops[index] if inner is not op),
            tuple(step_calls[index]),
            tuple(work[index]),
        )
        for index, (number, op) in enumerate(numbered)
    ), tuple(unattributed)


Window = tuple[float, float, int]  # start, end, index of the step


def _gpu_windows(annotations: tuple[Span, ...], indices: dict[int, int]) -> list[Window]:
    """Each step's span on the GPU, over all streams; `indices`: number of a step -> its index."""
    spans: dict[int, list[Span]] = defaultdict(list)
    for span in annotations:
        if (match := _STEP_NAME.fullmatch(span.name)) and int(match[1]) in indices:
            spans[indices[int(match[1])]].append(span)
    return sorted(
        (min(span.start_us for span in step_spans), max(span.end_us for span in step_spans), index)
        for index, step_spans in spans.items()
    )


def _window(windows: list[Window], time_us: float) -> int | None:
    """The index of the step whose window contains `time_us`; a window excludes its end."""
    before = bisect_right(windows, time_us, key=itemgetter(0))
    return windows[before - 1][2] if before and time_us < windows[before - 1][1] else None
