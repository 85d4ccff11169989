"""The launches of a thread in their order, and stretches of them, in which loops.py looks for a loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from operator import itemgetter

from msgspec import Struct

from kinetoscope.trace.events import CpuOp, GpuActivity
from kinetoscope.trace.tokens import outermost


class Launches(Struct, frozen=True):
    """The launches of a thread in their order, as columns: a large trace has millions."""

    keys: list[str] = []
    details: list[int] = []
    """Numbers of the kernels with grids, or of the shapes of an operator: places in `different`."""
    different: list[tuple[Hashable, ...]] = []
    starts_us: list[float] = []
    ends_us: list[float] = []
    work_us: list[float] = []
    replays: list[bool] = []

    def __len__(self) -> int:
        return len(self.keys)


class Stretch(Struct, frozen=True):
    """Some launches, one after the other."""

    first: int
    end: int  # exclusive


def launches_of(activities: Iterable[GpuActivity]) -> Launches:
    """The launches of the thread that launched most GPU time, in their order."""
    of_call: dict[int, list[GpuActivity]] = {}
    busy: dict[str, float] = defaultdict(float)
    for activity in activities:
        if (call := activity.launch) is not None:
            busy[call.thread] += activity.duration_us
            if (work := of_call.get(id(call))) is None:
                of_call[id(call)] = [activity]
            else:
                work.append(activity)
    thread = max(busy, key=lambda each: busy[each], default="")
    begun = []
    for work in of_call.values():
        call = work[0].launch
        if call is None or call.thread != thread:
            continue
        outer = outermost(work[0].op)
        begun.append((call.start_us if outer is None else min(outer.start_us, call.start_us), outer, call, work))
    begun.sort(key=itemgetter(0))
    launches, numbers = Launches([], [], [], [start_us for start_us, *_ in begun], [], [], []), _Numbers()
    for _, outer, call, work in begun:
        replays = "GraphLaunch" in call.name
        launches.keys.append(outer.name if outer is not None and not replays else work[0].name)
        launches.details.append(numbers[tuple([(activity.name, activity.grid) for activity in work])])
        launches.ends_us.append(call.end_us if outer is None else max(outer.end_us, call.end_us))
        launches.work_us.append(sum([activity.duration_us for activity in work]))
        launches.replays.append(replays)
    launches.different.extend(numbers)
    return launches


class _Numbers(dict[tuple[Hashable, ...], int]):
    """Numbers what is different, in order."""

    def __missing__(self, value: tuple[Hashable, ...]) -> int:
        return self.setdefault(value, len(self))


def operators_of(ops: Iterable[CpuOp]) -> Launches:
    """The outermost operators of the thread that has most of them."""
    by_thread: dict[str, list[CpuOp]] = defaultdict(list)
    for op in ops:
        if not op.is_annotation and (op.parent is None or op.parent.is_annotation):
            by_thread[op.thread].append(op)
    outer = max(by_thread.values(), key=len, default=[])
    numbers = _Numbers()
    return Launches(
        [op.name for op in outer],
        [numbers[(op.name, op.input_shapes),] for op in outer],
        list(numbers),
        [op.start_us for op in outer],
        [op.end_us for op in outer],
        [op.duration_us for op in outer],
        [False] * len(outer),
    )
