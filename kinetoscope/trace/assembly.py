"""Build a `Trace` from the events of a file: nest ops, link activities to launches and ops, assign work to steps."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from operator import attrgetter
from typing import TypeVar

import msgspec
from msgspec import Struct

from kinetoscope.trace.damage import drop_endless, drop_lost
from kinetoscope.trace.device_rows import counter_samples, stream_waits
from kinetoscope.trace.events import (
    Collective,
    CpuOp,
    CudaCall,
    GpuActivity,
    MemoryEvent,
    PythonFunction,
    Span,
    Trace,
)
from kinetoscope.trace.foreign import name_origin
from kinetoscope.trace.identity import Members, collective_around, collective_of, stated_rank
from kinetoscope.trace.kept_events import KeptEvents
from kinetoscope.trace.kineto_events import (
    NO_TEXT,
    Annotation,
    AnyEvent,
    Communication,
    Event,
    Instant,
    Kernel,
    Op,
    RuntimeCall,
)
from kinetoscope.trace.linking import Owners
from kinetoscope.trace.metadata import MERGED_RANKS, Metadata, device_name, most_used
from kinetoscope.trace.processes import Processes
from kinetoscope.trace.runaways import cut_runaways
from kinetoscope.trace.shapes import ShapesOf, TypesOf
from kinetoscope.trace.steps import find_steps

E = TypeVar("E", bound=AnyEvent)
CLOCK_NOISE_US = 0.002  # a timestamp is printed in ns but read as a float64, which may move it by 1 ns
_MAX_DURATIONS = 1 << 16
_YEAR_2000_NS = 946_684_800_000_000_000
_DIGITS = re.compile(r"[0-9]{1,9}")
_YEAR_2050_NS, _YEAR_2100_NS = 2_524_608_000_000_000_000, 4_102_444_800_000_000_000


def assemble(kept: KeptEvents, metadata: Metadata, *, is_cut: bool = False) -> Trace:
    """Build the trace of a file; empties the lists of `kept` as it goes, which saves memory."""
    base_ns = metadata.base_ns
    bounds = (kept.first, kept.last) if kept.first <= kept.last else (0, 0)
    lost = drop_lost(kept, bounds, lambda time: unit_ns(time, base_ns), has_base=base_ns > 0)
    clock = Clock.of(kept, kept.bounds() if lost else bounds, base_ns)
    lost += drop_endless(kept, clock.per_us)
    clock = msgspec.structs.replace(clock, base=kept.bounds()[0]) if lost else clock
    processes, threads = Processes(kept), _Threads()
    stated: dict[int, Collective] = {}
    members = Members()
    cpu_ops = _cpu_ops(kept.ops, clock, threads, stated, members)
    calls = _calls(kept.calls, clock, threads)
    process_of = {thread: processes.of(pid) for (pid, _), thread in threads.items()} if processes.names else {}
    owners = Owners(cpu_ops, calls, process_of) if kept.activities else Owners((), (), process_of)
    activities, activity_processes = _activities(kept.activities, clock, owners, processes, stated, members)
    activities, runaways = cut_runaways(activities, calls, activity_processes)
    gpu_annotations = _gpu_annotations(kept.gpu_annotations, clock)
    found = find_steps(cpu_ops, calls, activities, gpu_annotations, process_of, activity_processes)
    device = metadata.device(most_used(activity.device for activity in activities))
    return Trace(
        device=device_name(device),
        device_properties=device,
        cpu_ops=cpu_ops,
        calls=calls,
        activities=activities,
        steps=found.steps,
        overheads=_spans(kept.overheads, clock),
        gpu_annotations=gpu_annotations,
        unattributed=found.unattributed,
        steps_from=found.steps_from,
        uncounted=found.uncounted,
        devices=metadata.devices,
        functions=_functions(kept.functions, clock, threads),
        memory=_memory(kept.memory, clock, threads),
        stream_waits=stream_waits(clock.timed(kept.waits)),
        counters=counter_samples(kept.counters, clock.start_us),
        rank=stated_rank(stated.values()) if metadata.rank is None and not processes.names else metadata.rank,
        world_size=metadata.world_size,
        groups=metadata.groups,
        origin_ns=clock.origin_ns(metadata.base_ns),
        processes=processes.names,
        is_merged=MERGED_RANKS in metadata.members and bool(processes.names),
        is_cut=is_cut,
        damaged=(*lost, *runaways, *kept.left_out.damage(has_gpu_work=bool(activities))),
        unread=tuple(kept.unread.most_common()),
        origin=name_origin(kept.unread, kept.labels.values(), metadata.members) if kept.unread else "",
    )


class Clock(Struct, frozen=True):
    """Turns times of a file into microseconds since its first event, with three decimals."""

    base: float | int
    per_us: int = 1000
    """Nanoseconds in the file's unit of time, 1000 or 1."""

    @classmethod
    def of(cls, kept: KeptEvents, bounds: tuple[float, float], base_ns: int) -> Clock:
        """The clock of a file, whose times count from `base_ns` since 1970. The event in the middle tells the unit."""
        first, last = bounds
        unit = unit_ns(first, base_ns)
        if unit != unit_ns(last, base_ns):
            times = sorted(event.ts for events in kept.lists() for event in events)
            unit = unit_ns(times[len(times) // 2], base_ns)
        return cls(int(first) if abs(first) >= 2**53 else first, unit)

    def origin_ns(self, base_ns: int) -> int:
        """The time 0 of the trace in ns since 1970; 0 if the file counts from another moment."""
        origin = base_ns + round(self.base * self.per_us)
        return origin if _YEAR_2000_NS < origin < _YEAR_2100_NS else 0

    def start_us(self, event: AnyEvent) -> float:
        """The start of an event in us, rounded to ns (3 times as fast as round())."""
        return int((event.ts - self.base) * self.per_us + 0.5) / 1000

    def timed(self, events: list[E], *, outer_first: bool = False) -> Iterable[tuple[E, float, float]]:
        """Yield complete events in start order, with start and duration; empties the list on the way.

        `outer_first`: of events that start together, the longest is first, as the parent.
        """
        events.sort(key=attrgetter("ts"))
        if outer_first and any(one.ts == next_.ts and one.dur < next_.dur for one, next_ in pairwise(events)):  # type: ignore[union-attr]
            events.sort(key=lambda event: (event.ts, -event.dur))  # type: ignore[union-attr]
        events.reverse()
        base, per_us = self.base, self.per_us
        durations: dict[float, float] = {}  # many events share few durations: keep one object of each
        while events:
            event = events.pop()
            recorded = event.dur  # type: ignore[union-attr]
            duration = durations.get(recorded)
            if duration is None:
                duration = int(recorded * per_us + 0.5) / 1000 if recorded > 0 else 0.0
                if len(durations) < _MAX_DURATIONS:
                    durations[recorded] = duration
            yield event, int((event.ts - base) * per_us + 0.5) / 1000, duration


def unit_ns(time: float | int, base_ns: int) -> int:
    """The nanoseconds in the unit of a time of a file, 1000 or 1.

    The format counts in microseconds. This assumes nanoseconds only if the time would otherwise be after the year 2100,
    of a base before 2050. `displayTimeUnit` is how a viewer shows times, not how they are stored.
    """
    base_ns = min(base_ns, _YEAR_2050_NS)
    return 1 if base_ns + time * 1000 > _YEAR_2100_NS >= base_ns + time else 1000


def _cpu_ops(
    events: list[Op], clock: Clock, threads: _Threads, stated: dict[int, Collective], members: Members
) -> tuple[CpuOp, ...]:
    """Nest ops by time on their thread: the parent is the innermost open op that does not end earlier.

    Adds the collectives of `record_param_comms` operators to `stated`, under the ids of the operators.
    """
    ops: list[CpuOp] = []
    shapes, types = ShapesOf(), TypesOf()
    open_ops: dict[str, list[tuple[float, CpuOp]]] = defaultdict(list)  # thread -> (end time, op), innermost last
    for event, start, duration in clock.timed(events, outer_first=True):
        args, thread = event.args, threads[event.pid, event.tid]
        stack, end = open_ops[thread], start + duration
        reach = end - CLOCK_NOISE_US
        if reach < start + CLOCK_NOISE_US:
            reach = start + CLOCK_NOISE_US
        while stack and stack[-1][0] < reach:
            stack.pop()
        parent = stack[-1][1] if stack else None
        external = args.old_external_id if args.external_id is None else args.external_id
        if args.input_dims is NO_TEXT:
            op = CpuOp(event.name, start, duration, thread, external, type(event) is Annotation, parent=parent)
        else:
            dims, strides = shapes[bytes(args.input_dims)], shapes[bytes(args.input_strides)]
            kinds, annotates = types[bytes(args.input_types)], type(event) is Annotation
            op = CpuOp(event.name, start, duration, thread, external, annotates, dims, strides, kinds, parent)
        if type(event) is Communication and (collective := collective_of(event.collective, members)) is not None:
            stated[id(op)] = collective
        stack.append((end, op))
        ops.append(op)
    return tuple(ops)


def _calls(events: list[RuntimeCall], clock: Clock, threads: _Threads) -> tuple[CudaCall, ...]:
    calls = []
    for event, start, duration in clock.timed(events):
        args, thread = event.args, threads[event.pid, event.tid]
        calls.append(CudaCall(event.name, start, duration, thread, args.correlation, args.external, event.is_driver))
    return tuple(calls)


def _activities(
    events: list[Kernel],
    clock: Clock,
    owners: Owners,
    processes: Processes,
    stated: Mapping[int, Collective],
    members: Members,
) -> tuple[tuple[GpuActivity, ...], list[str]]:
    """The activities in start order, and the process of each if the file has several."""
    known = processes.owners(events, owners.calls_of, clock.start_us) if processes.names else []
    process_of = dict(zip(map(id, events), known, strict=True)) if known else {}
    events.sort(key=attrgetter("ts"))
    owned_by = [process_of.get(id(event), "") for event in events]
    launches, ops = [], []
    for event, process in zip(events, owned_by, strict=True):
        launch = owners.launch(event.args.correlation, process)
        launches.append(launch)
        ops.append(owners.named_op(event.args.external, launch, process))
    owners.find_around(launch for launch, op in zip(launches, ops, strict=True) if launch is not None and op is None)
    activities = []
    for (event, start, duration), launch, op in zip(clock.timed(events), launches, ops, strict=True):
        args, op = event.args, op or owners.op_around(launch)
        collective = collective_of(args, members)
        if collective is None and event.kind == "kernel":
            collective = collective_around(event.name, op, stated)
        activities.append(
            GpuActivity(
                event.name,
                start,
                duration,
                event.kind,
                _number(event.pid) if args.device is None else args.device,
                _number(event.tid) if args.stream is None else args.stream,
                args.correlation if launch is None else launch.correlation,
                args.external if op is None or op.external_id != args.external else op.external_id,
                args.grid,
                args.block,
                args.registers,
                args.shared_memory_bytes,
                args.moved_bytes,
                args.occupancy_percent,
                launch,
                op,
                collective,
                args.graph_id or None,
                args.graph_node_id or None,
            )
        )
    return tuple(activities), owned_by if known else []


def _functions(events: list[Event], clock: Clock, threads: _Threads) -> tuple[PythonFunction, ...]:
    return tuple(
        PythonFunction(event.name, start, duration, threads[event.pid, event.tid])
        for event, start, duration in clock.timed(events)
    )


def _memory(events: list[Instant], clock: Clock, threads: _Threads) -> tuple[MemoryEvent, ...]:
    events.sort(key=attrgetter("ts"))
    found = []
    for event in events:
        args = event.args
        device, at_us = args.device if args.device_type else -1, clock.start_us(event)
        totals = args.total_allocated, args.total_reserved
        thread = threads[event.pid, event.tid]
        found.append(MemoryEvent(at_us, args.bytes or 0, *totals, device, args.address, thread))
    return tuple(found)


def _spans(events: list[Event], clock: Clock) -> tuple[Span, ...]:
    return tuple(Span(event.name, start, duration) for event, start, duration in clock.timed(events))


def _gpu_annotations(events: list[Event], clock: Clock) -> tuple[CpuOp, ...]:
    """Annotations on the GPU, on device and stream as the thread."""
    return tuple(
        CpuOp(event.name, start, duration, f"{_number(event.pid)}/{_number(event.tid)}", is_annotation=True)
        for event, start, duration in clock.timed(events, outer_first=True)
    )


def _number(value: object) -> int:
    """The number of a process or thread: 7 of `7`, `"7"` and `"stream 7"`; 0 without one."""
    if type(value) is int:
        return value
    with suppress(msgspec.ValidationError):
        return msgspec.convert(value, int, strict=False)
    digits = _DIGITS.search(value) if isinstance(value, str) else None
    return int(digits[0]) if digits else 0


class _Threads(dict[tuple[object, object], str]):
    def __missing__(self, key: tuple[object, object]) -> str:
        return self.setdefault(key, f"{key[0]}/{key[1]}")
