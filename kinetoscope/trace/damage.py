"""Find events whose recorded times cannot be. Records without a possible time are left out, durations are cut.

Lost records have time 0 beside times of today, or one that is days away from all others (pytorch/kineto#109, and CUPTI
from CUDA 12.6 Update 2 to 13.0). Runaway durations reach over events that ran later on the same stream
(AMD-AGI/TraceLens#669, AMD-AGI/Hyperloom#1116), or past a call that waited for the whole GPU.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import Any

from msgspec.structs import replace

from kinetoscope.trace.communication import is_collective
from kinetoscope.trace.decoding import KeptEvents
from kinetoscope.trace.events import CudaCall, Damage, DamagedEvent, GpuActivity
from kinetoscope.trace.kineto_events import Event, Kernel

LOST = "at time 0, or days away from all other events"
NO_DURATION = "with a duration that is negative or no number"
OVER_LATER = "with a duration that reaches over later events of the stream"
OVER_WAIT = "with a duration that reaches past a call that waited for the GPU"

DAY_NS = 86_400 * 10**9
ALONE_NS = 10**8
"""No event starts in this time after a lost record at time 0."""
MINORITY = 0.10
"""A larger share of events that are days away is another run, merged into the file (our limit)."""
DEPENDENT_US = 20.0
"""Programmatic dependent launch starts an event before the one before it ends, by less than this (our recordings)."""
CLOCK_US = 1000.0
"""Clocks of CPU and GPU differ by less than this (our limit)."""
RUNAWAY = 10
"""A duration this many times the longest sound one of its name is an exception (our limit)."""
RARE = 0.25
"""Exceptions are at most this share of the events of their name (our limit)."""
MAX_EVENTS = 10
_MAX_LATER = 100


def drop_lost(kept: KeptEvents, ns_per_unit: Callable[[float], int]) -> list[Damage]:
    """Remove the events without a possible time from `kept`.

    `ns_per_unit`: the nanoseconds in the unit of a time of the file.
    """
    lists = kept.lists()
    filled = [events for events in lists if events]
    first = min((min(map(_time, events)) for events in filled), default=0)
    last = max((max(map(_time, events)) for events in filled), default=0)
    shortest_ns = DAY_NS if first else ALONE_NS  # in the largest unit, microseconds
    if (last - first) * 1000 < shortest_ns:
        return []
    times = sorted(time for events in filled for event in events if (time := event.ts))
    if not times:
        return []
    unit_ns = ns_per_unit(times[len(times) // 2])
    low, high = _neighborhood(times, DAY_NS / unit_ns)
    far = bisect_left(times, low) + sum(time > high for time in times)
    if far > MINORITY * len(times):
        low, high = times[0], times[-1]
    is_alone = low * unit_ns > ALONE_NS
    starts = {call.args.correlation: call.ts for call in kept.calls if call.args.correlation} if is_alone else {}

    def is_lost(event: Any) -> bool:
        if event.ts:
            return not low <= event.ts <= high
        if low * unit_ns > DAY_NS:
            return True
        launched = isinstance(event, Kernel) and starts.get(event.args.correlation or 0, 0) * unit_ns > ALONE_NS
        return is_alone and (launched or not getattr(event, "dur", 0) > 0)

    return _drop(kept, lists, is_lost)


def _neighborhood(times: Sequence[float], most: float) -> tuple[float, float]:
    """The first and the last of the sorted times around the middle one without a gap over `most`."""
    low = high = len(times) // 2
    while low and times[low] - times[low - 1] <= most:
        low -= 1
    while high + 1 < len(times) and times[high + 1] - times[high] <= most:
        high += 1
    return times[low], times[high]


def _drop(kept: KeptEvents, lists: Iterable[list[Any]], is_lost: Callable[[Any], bool]) -> list[Damage]:
    lost: list[Any] = []
    for events in lists:
        gone = [index for index, event in enumerate(events) if is_lost(event)]
        if not gone:
            continue
        lost += [events[index] for index in gone]
        if events is kept.activities:
            kept.runs = [(pid, before - bisect_left(gone, before)) for pid, before in kept.runs]
        dropped = set(gone)
        events[:] = [event for index, event in enumerate(events) if index not in dropped]
    ids = set(map(id, lost))
    kept.without_duration = [event for event in kept.without_duration if id(event) not in ids]
    shown = tuple(DamagedEvent(name) for name in _frequent(lost))
    return [Damage(LOST, "left out", len(lost), shown)] if lost else []


def without_duration(events: Sequence[Event]) -> list[Damage]:
    """The damage of events whose duration is negative or no number."""
    shown = tuple(DamagedEvent(name, None, 0.0) for name in _frequent(events))
    return [Damage(NO_DURATION, "counted as 0 us", len(events), shown)] if events else []


def _frequent(events: Iterable[Any]) -> list[str]:
    return [name for name, _ in Counter(event.name for event in events).most_common(MAX_EVENTS)]


def cut_runaways(
    activities: tuple[GpuActivity, ...], calls: Sequence[CudaCall], processes: Sequence[str]
) -> tuple[tuple[GpuActivity, ...], list[Damage]]:
    """Cut impossible durations. `processes`: one for each activity, empty for a single process.

    Events of one stream run in order, so one cannot end after a later one has run. That is certain for launches of
    CUDA. Graph replays, dependent launches and other vendors' queues may run beside each other under one stream: there,
    the stream must be in order without such events, and their durations exceptions. Work that was launched before a
    call waited for the only GPU cannot end after the call.
    """
    streams: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for index, activity in enumerate(activities):
        streams[processes[index] if processes else "", activity.device, activity.stream].append(index)
    late = {key: found for key, stream in streams.items() if (found := _outlasting(activities, stream))}
    is_one_gpu = not processes and len({activity.device for activity in activities}) == 1
    wait = _last_wait(calls) if is_one_gpu else None
    past = [] if wait is None else _past(activities, wait)
    if not late and not past:
        return activities, []
    is_exception = _exceptions(activities, calls, {*chain.from_iterable(late.values()), *past})
    cuts: dict[str, dict[int, float]] = {OVER_LATER: {}, OVER_WAIT: {}}
    for key, suspects in late.items():
        stream = streams[key]
        are_damaged = all(map(is_exception, suspects)) and _is_in_order(activities, stream, set(suspects))
        for index in suspects:
            later = _later(activities, stream, index)
            if later and (are_damaged or any(_is_certain(activities[index], other) for other in later)):
                cuts[OVER_LATER][index] = round(later[0].start_us - activities[index].start_us, 3)
    for index in past:
        if wait is not None and index not in cuts[OVER_LATER] and is_exception(index):
            cuts[OVER_WAIT][index] = round(wait.end_us - activities[index].start_us, 3)
    return _cut(activities, cuts)


def _cut(
    activities: tuple[GpuActivity, ...], cuts: dict[str, dict[int, float]]
) -> tuple[tuple[GpuActivity, ...], list[Damage]]:
    """Replace durations; `cuts`: for each reason, index -> the longest possible duration in us."""
    how = {OVER_LATER: "cut where the next event starts", OVER_WAIT: "cut where the call ends"}
    mended, damages = list(activities), []
    for reason, places in cuts.items():
        for index, most_us in places.items():
            mended[index] = replace(activities[index], duration_us=most_us)
        longest = sorted(places, key=lambda index: (-activities[index].duration_us, index))[:MAX_EVENTS]
        shown = [DamagedEvent(activities[i].name, activities[i].duration_us, places[i]) for i in longest]
        if places:
            damages.append(Damage(reason, how[reason], len(places), tuple(shown)))
    return tuple(mended), damages


def _outlasting(activities: Sequence[GpuActivity], stream: Sequence[int]) -> list[int]:
    """The activities of a stream that end after a later one has ended."""
    running: list[tuple[float, int]] = []  # the one that ends last is first
    found = []
    for index in stream:
        end_us = activities[index].start_us + activities[index].duration_us
        while running and -running[0][0] > end_us + DEPENDENT_US:
            found.append(heappop(running)[1])
        heappush(running, (-end_us, index))
    return found


def _later(activities: Sequence[GpuActivity], stream: Sequence[int], index: int) -> list[GpuActivity]:
    """The first activities of the stream, at most 100, that start after this one and before it ends."""
    at = bisect_left(stream, index) + 1
    end_us, start_us = activities[index].end_us, activities[index].start_us
    near = (activities[other] for other in stream[at : at + _MAX_LATER])
    return [other for other in near if start_us < other.start_us < end_us]


def _is_in_order(activities: Sequence[GpuActivity], stream: Sequence[int], without: set[int]) -> bool:
    """Whether the other activities of a stream run one after the other."""
    reached_us = -math.inf
    for index in stream:
        if index not in without:
            if activities[index].start_us < reached_us - DEPENDENT_US:
                return False
            reached_us = max(reached_us, activities[index].end_us)
    return True


def _is_certain(each: GpuActivity, later: GpuActivity) -> bool:
    """Whether the later activity must have run after this one, and yet ended before."""
    ended = each.end_us - later.end_us > DEPENDENT_US
    return ended and _is_ordered(each.launch, "Graph") and _is_ordered(later.launch, "Graph", "Ex")


def _is_ordered(call: CudaCall | None, *exceptions: str) -> bool:
    return call is not None and call.name.startswith("cu") and not any(part in call.name for part in exceptions)


def _exceptions(
    activities: Sequence[GpuActivity], calls: Sequence[CudaCall], suspects: set[int]
) -> Callable[[int], bool]:
    """Whether a suspect is longer than the trace without suspects, or 10 times as long as nearly all of its name.

    Collectives have no usual duration: they wait for other GPUs.
    """
    longest = {activities[index].name: 0.0 for index in suspects}
    counts = Counter(activity.name for activity in activities if activity.name in longest)
    suspected = Counter(activities[index].name for index in suspects)
    first_us, last_us = math.inf, -math.inf
    for index, activity in enumerate(activities):
        if index not in suspects:
            first_us, last_us = min(first_us, activity.start_us), max(last_us, activity.end_us)
            if activity.name in longest:
                longest[activity.name] = max(longest[activity.name], activity.duration_us)
    span_us = max([last_us, *(call.end_us for call in calls)]) - min([first_us, *(call.start_us for call in calls[:1])])

    def is_exception(index: int) -> bool:
        name, us = activities[index].name, activities[index].duration_us
        is_rare = suspected[name] <= RARE * counts[name] and not is_collective(activities[index])
        return us > span_us or (is_rare and us > RUNAWAY * longest[name] > 0)

    return is_exception


def _past(activities: Sequence[GpuActivity], wait: CudaCall) -> list[int]:
    """The activities that were launched before a call waited for the GPU, and end after the call."""
    latest_us = wait.end_us + CLOCK_US
    return [
        index
        for index, each in enumerate(activities)
        if each.start_us + each.duration_us > latest_us and each.start_us < wait.end_us
        if each.launch is not None and each.launch.start_us < wait.start_us
    ]


def _last_wait(calls: Sequence[CudaCall]) -> CudaCall | None:
    """The last call that waits for all work of its GPU."""
    return next((call for call in reversed(calls) if "DeviceSynchronize" in call.name), None)


def _time(event: Any) -> float:
    return event.ts  # type: ignore[no-any-return]
