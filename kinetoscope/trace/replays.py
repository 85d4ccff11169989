"""Give the work of CUDA graph replays the operators that were captured, by its order.

A replay launches many kernels by one call, so the trace links them to no operator. The operators are in a trace of the
capture (its launches between BeginCapture and EndCapture), or in a trace of the same program without a graph.

A replay gets the operators of such a sequence if it runs on one stream and if all of this holds: the two are equally
long; kernels, copies and fills agree one by one; without a capture, so do names and grids of the kernels; in a capture,
no pointwise kernel meets a matrix product. If several sequences fit, they must have the same operators and shapes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import structs

from kinetoscope.trace.events import CpuOp, CudaCall, GpuActivity, Trace, Triple
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.work import PRODUCTS

MIN_LENGTH = 10
"""A shorter sequence may be equal by chance."""
Ops = tuple[CpuOp | None, ...]
_Identity = tuple[str, str, Triple | None, Triple | None]
_GRAPH_LAUNCH = "GraphLaunch"
_LAUNCH = re.compile(r"(?P<kernel>LaunchKernel|LaunchCooperativeKernel)|(?P<memcpy>Memcpy)|(?P<memset>Memset)")


def with_captured_operators(trace: Trace, capture: Trace | None = None) -> tuple[Trace, int]:
    """The trace, with operators for the work of its replays, and the number of activities that got one.

    `capture`: a further trace in which to look.
    """
    replays: dict[int, list[GpuActivity]] = defaultdict(list)
    for activity in trace.activities:
        if activity.launch is not None and _GRAPH_LAUNCH in activity.launch.name:
            replays[id(activity.launch)].append(activity)
    sources = _Sources([trace] if capture is None else [trace, capture]) if replays else None
    linked: dict[int, GpuActivity] = {}
    for replay in replays.values():
        ops = sources.find(replay) if sources is not None else None
        for activity, op in zip(replay, ops or (), strict=False):
            if op is not None:
                linked[id(activity)] = structs.replace(activity, op=op)
    return (_replaced(trace, linked) if linked else trace), len(linked)


def _replaced(trace: Trace, linked: dict[int, GpuActivity]) -> Trace:
    def new(activities: Sequence[GpuActivity]) -> tuple[GpuActivity, ...]:
        return tuple(linked.get(id(activity), activity) for activity in activities)

    return structs.replace(
        trace,
        activities=new(trace.activities),
        steps=tuple(structs.replace(step, activities=new(step.activities)) for step in trace.steps),
        uncounted=tuple(structs.replace(each, activities=new(each.activities)) for each in trace.uncounted),
        unattributed=new(trace.unattributed),
    )


class _Sources:
    """Captures, and work that was launched one by one, in which the operators of a replay may be found."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self._captures = [capture for trace in traces for capture in _captures(trace)]
        self._streams = [_Stream(stream) for trace in traces for stream in _eager(trace)]
        self._found: dict[tuple[_Identity, ...], Ops | None] = {}

    def find(self, replay: Sequence[GpuActivity]) -> Ops | None:
        """The operators of a replay, None where the launch had none; None if no sequence fits, or different ones."""
        key = tuple(map(_identity, replay))
        if len(key) < MIN_LENGTH or len({(activity.device, activity.stream) for activity in replay}) > 1:
            return None
        if key not in self._found:
            fitting = [ops for kinds, ops in self._captures if _fits(replay, kinds, ops)]
            fitting += [ops for stream in self._streams for ops in stream.equal_to(key)]
            distinct = {tuple((op.name, op.input_shapes) if op else None for op in ops) for ops in fitting}
            self._found[key] = fitting[0] if len(distinct) == 1 else None
        return self._found[key]


class _Stream:
    """The activities of a stream that were launched one by one."""

    def __init__(self, activities: Sequence[GpuActivity]) -> None:
        self._activities = activities
        self._identities = tuple(map(_identity, activities))
        self._places: dict[_Identity, list[int]] = defaultdict(list)
        for place, identity in enumerate(self._identities):
            self._places[identity].append(place)

    def equal_to(self, key: tuple[_Identity, ...]) -> Iterator[Ops]:
        """The operators of each stretch with these identities; stretches do not overlap."""
        free = 0
        for place in self._places.get(key[0], ()):
            if place >= free and self._identities[place : place + len(key)] == key:
                free = place + len(key)
                yield tuple(activity.op for activity in self._activities[place:free])


def _identity(activity: GpuActivity) -> _Identity:
    return activity.kind, activity.name, activity.grid, activity.block


def _captures(trace: Trace) -> Iterator[tuple[list[str], Ops]]:
    """The kinds of work and the operators of each capture of a stream."""
    open_: dict[str, list[CudaCall]] = {}
    ops_of: dict[str, list[CpuOp]] = {}
    for call in trace.calls:
        if "BeginCapture" in call.name:
            open_[call.thread] = []
        elif "EndCapture" in call.name:
            launches = open_.pop(call.thread, [])
            if launches and call.thread not in ops_of:
                ops_of[call.thread] = [op for op in trace.cpu_ops if op.thread == call.thread]
            if launches:
                yield [_kind(each) for each in launches], _around(ops_of[call.thread], launches)
        elif call.thread in open_ and _LAUNCH.search(call.name):
            launches = open_[call.thread]
            if not launches or call.start_us >= launches[-1].end_us:  # else the driver's call inside the runtime's
                launches.append(call)


def _kind(call: CudaCall) -> str:
    match = _LAUNCH.search(call.name)
    return match.lastgroup or "" if match else ""


def _around(ops: Sequence[CpuOp], calls: Sequence[CudaCall]) -> Ops:
    """The innermost operator around each call of its thread."""
    starts = [op.start_us for op in ops]
    found = []
    for call in calls:
        index = bisect_right(starts, call.start_us) - 1
        op = ops[index] if index >= 0 else None
        while op is not None and op.end_us < call.start_us:
            op = op.parent
        found.append(op)
    return tuple(found)


def _fits(replay: Sequence[GpuActivity], kinds: Sequence[str], ops: Ops) -> bool:
    if [activity.kind for activity in replay] != list(kinds):
        return False
    return not any(
        op is not None and op.name in PRODUCTS and decode_kernel_name(activity.name).operation == "elementwise"
        for activity, op in zip(replay, ops, strict=True)
    )


def _eager(trace: Trace) -> Iterator[list[GpuActivity]]:
    """The activities of each stream that operators launched one by one."""
    streams: dict[tuple[int, int], list[GpuActivity]] = defaultdict(list)
    for activity in trace.activities:
        if activity.launch is not None and _GRAPH_LAUNCH not in activity.launch.name:
            streams[activity.device, activity.stream].append(activity)
    return iter(streams.values())
