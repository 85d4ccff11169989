"""Find records without a possible time.

Lost records have time 0 beside times of today, or one that is days away from all others (pytorch/kineto#109, and CUPTI
from CUDA 12.6 Update 2 to 13.0). They are left out: they would begin or end the trace.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

from kinetoscope.trace.events import Damage, DamagedEvent
from kinetoscope.trace.kept_events import KeptEvents
from kinetoscope.trace.kineto_events import WORK, Kernel
from kinetoscope.trace.left_out import MAX_EVENTS

LOST = "at time 0, or days away from all other events"
TOO_LONG = "longer than 30 days"

DAY_NS = 86_400 * 10**9
ALONE_NS = 10**8
"""No event starts in this time after a lost record at time 0."""
MINORITY, MIN_RUN = 0.10, 10
"""A larger share of events that are days away is another run, merged into the file, and so many at least (our
limits)."""
MAX_NS = 30 * DAY_NS
"""A longer event is impossible (our limit); up to three times that, microseconds are exact to the nanosecond."""


def drop_lost(
    kept: KeptEvents, bounds: tuple[float, float], ns_per_unit: Callable[[float], int], *, has_base: bool
) -> list[Damage]:
    """Remove the events without a possible time from `kept`.

    `bounds`: the earliest and the latest time. `ns_per_unit`: the nanoseconds in the unit of a time of the file.
    `has_base`: whether times count from a time before the profile; else the first event of a sound file may be at 0.
    """
    lists, (first, last) = kept.lists(), bounds
    shortest_ns = DAY_NS if first else ALONE_NS  # in the largest unit, microseconds
    if (last - first) * 1000 < shortest_ns:
        return []
    times = sorted(filter(None, chain.from_iterable(map(_time, events) for events in lists)))
    if not times:
        return []
    unit_ns = ns_per_unit(times[len(times) // 2])
    low, high = _neighborhood(times, DAY_NS / unit_ns)
    far = bisect_left(times, low) + len(times) - bisect_right(times, high)
    if far > MINORITY * len(times) and far >= MIN_RUN:
        low, high = times[0], times[-1]
    is_alone = low * unit_ns > ALONE_NS
    starts = {call.args.correlation: call.ts for call in kept.calls if call.args.correlation} if is_alone else {}

    def is_lost(event: Any) -> bool:
        if event.ts:
            return not low <= event.ts <= high
        if low * unit_ns > DAY_NS:
            return True
        launched = isinstance(event, Kernel) and starts.get(event.args.correlation or 0, 0) * unit_ns > ALONE_NS
        return is_alone and (has_base or launched or not getattr(event, "dur", 0) > 0)

    return _drop(kept, lists, LOST, is_lost)


def _neighborhood(times: Sequence[float], most: float) -> tuple[float, float]:
    """The first and the last of the sorted times around the middle one without a gap over `most`."""
    if times[-1] - times[0] <= most:
        return times[0], times[-1]
    low = high = len(times) // 2
    while low and times[low] - times[low - 1] <= most:
        low -= 1
    while high + 1 < len(times) and times[high + 1] - times[high] <= most:
        high += 1
    return times[low], times[high]


def drop_endless(kept: KeptEvents, unit_ns: int) -> list[Damage]:
    """Remove events that are longer than any profile from `kept`."""
    most = MAX_NS / unit_ns
    if kept.longest <= most:
        return []
    return _drop(kept, kept.lists(), TOO_LONG, lambda event: getattr(event, "dur", 0) > most)


def _drop(kept: KeptEvents, lists: Iterable[list[Any]], reason: str, is_lost: Callable[[Any], bool]) -> list[Damage]:
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
    if not lost:
        return []
    names = Counter(event.name for event in lost).most_common(MAX_EVENTS)
    work = sum(isinstance(event, WORK) for event in lost)
    return [Damage(reason, "left out", len(lost), tuple(DamagedEvent(name) for name, _ in names), work)]


_time = attrgetter("ts")
